"""What people read. The golden files show each kind of message in each rendering; look at them as one who is woken."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import markdown as commonmark
import pytest

from forensics.alerts.rendering import chat, html, markdown, plain
from forensics.alerts.words import Words, words
from forensics.model import Crash, Evidence, Family, Role
from forensics.store import Delivery
from tests.forensics.alerts.deliveries import LINK, SECOND, delivery, living
from tests.forensics.factories import clean, crash, main_exit, record, traceback

GOLDEN = Path(__file__).parent / "golden"
LOCK_SCREEN_CHARS = 120

TRACEBACK = """Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/eagle_worker.py", line 97, in verify
    raise RuntimeError("tensor sizes differ")
RuntimeError: tensor sizes differ"""
OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/sglang.slice/sglang-demo.service,task_memcg=/sglang.slice/sglang-demo.service,task=python,pid=4410"
)
HOSTILE = (
    "</pre><script>alert(1)</script> **bold** [click](http://evil.example) `code` _x_ # head | @here @everyone "
    "<!channel> <@U024BE7LH> <#C024BE7LR> &amp; <img src=x onerror=alert(2)>"
)


def oom() -> Crash:
    killed = traceback(message=OOM)
    made = crash(
        1,
        cause="kernel-oom",
        family=Family.KERNEL_OOM,
        summary="The kernel's OOM killer killed the scheduler (pid 4410): the unit was at its memory limit of 24.0 GiB",
        advice=("Raise memory_max in the spec (it was 24.0 GiB), or have the server use less host memory.",),
        evidence=(Evidence(role=Role.INITIATING, event=replace(killed, record=record(OOM, source="kernel"))),),
    )
    return made


def hostile() -> Crash:
    said = Evidence(role=Role.INITIATING, event=traceback(message=HOSTILE))
    return crash(1, summary=f"The scheduler died of {HOSTILE}", evidence=(said,), advice=(f"Do this: {HOSTILE}",))


def every_kind() -> Iterator[Delivery]:
    died = 1_772_366_461 * SECOND
    minute = 60 * SECOND
    yield delivery(of=oom())
    yield delivery("amended", of=oom())
    yield delivery("amended", of=clean(1))
    yield delivery("folded", of=oom(), count=7, since_usec=died - 10 * minute)
    yield delivery("folded", of=oom(), count=1, since_usec=died - 50 * minute, back_usec=died + 2 * minute, down=False)
    yield delivery("start-limit", of=oom(), count=10, since_usec=died - 5 * minute)
    yield delivery("recovered", of=oom(), count=0, until_usec=died + 4 * minute + 12 * SECOND, down=False)
    yield delivery("recovered", of=oom(), count=99, until_usec=died + 64 * minute, down=False)
    yield living("hang", details={"said": "no answer to a health check; sglang::schedul was stopped"})
    yield living("answering", since_usec=died, until_usec=died + 3 * minute, down=False)
    yield living("recovered", since_usec=died, until_usec=died + 3 * minute, down=False)
    yield delivery(of=crash(1, cause="unknown", strength=None, summary="Nothing decides", evidence=(), advice=()))
    yield delivery("test", of=oom())


def said(message: Delivery) -> Words:
    return words(message, host="gpu7", link=LINK)


def golden(name: str, text: str) -> None:
    """The text is that of the golden file. To write it anew: delete the file and run the tests twice."""
    path = GOLDEN / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was missing and has been written: look at it")
    assert text == path.read_text()


def test_every_kind_of_message_as_plain_text() -> None:
    shown = (f"[{one.kind}] {said(one).title}\n{plain(said(one))}\n" for one in every_kind())
    golden("plain.txt", "\n".join(shown))


def test_a_message_as_markdown_and_as_html() -> None:
    golden("crash.md", markdown(said(delivery(of=oom()))) + "\n")
    golden("crash.html", html(said(delivery(of=oom()))) + "\n")


def test_hostile_lines_as_markdown_and_as_html() -> None:
    golden("hostile.md", markdown(said(delivery(of=hostile()))) + "\n")
    golden("hostile.html", html(said(delivery(of=hostile()))) + "\n")


@pytest.mark.parametrize("message", [*every_kind()], ids=lambda one: one.kind)
def test_a_locked_telephone_shows_who_what_and_why(message: Delivery) -> None:
    shown = plain(said(message))[:LOCK_SCREEN_CHARS]
    assert "demo on gpu7" in shown
    if message.crash is not None:
        what = {"clean-stop": "stopped as asked", "unknown": "cause unknown"}
        assert what.get(message.crash["cause"], message.crash["cause"]) in shown
    if message.kind == "folded":
        assert ("7 more times" in shown) or ("once more" in shown)


def test_the_parts_come_in_the_order_in_which_they_are_read() -> None:
    initiating = Evidence(role=Role.INITIATING, event=traceback(message=TRACEBACK))
    message = delivery(
        of=crash(
            1,
            cause="configuration-error",
            summary="SGLang refused its arguments",
            advice=("Lower speculative.num_steps.", "second thoughts"),
            evidence=(Evidence(role=Role.CASCADE, event=main_exit()), initiating),
        )
    )
    assert plain(said(message)).splitlines() == [
        "demo on gpu7 died of configuration-error (confirmed): SGLang refused its arguments",
        "The configuration is to blame.",
        "Lower speculative.num_steps.",
        "RuntimeError: tensor sizes differ",
        "http://127.0.0.1:8642/crashes/000000000001",
    ]


def test_blame_is_not_given_where_the_cause_does_not_settle_it() -> None:
    assert said(delivery(of=oom())).blame == ""


def test_without_decisive_evidence_it_says_what_was_not_seen() -> None:
    message = said(delivery(of=crash(1, cause="unknown", strength=None, evidence=(), advice=())))
    assert message.line == "Not seen: gpu: no NVIDIA driver on this machine"


def test_a_verdict_that_may_change_says_so() -> None:
    message = said(delivery(of=crash(1, awaits=("kernel",))))
    assert "died of python-exception (confirmed, may still change):" in message.sentence


def test_hostile_text_stays_on_its_line() -> None:
    message = said(delivery(of=crash(1, summary="a\r\nb\x1b[2Jc\u202ed\u2028e")))
    assert message.sentence == "demo on gpu7 died of python-exception (confirmed): a b [2Jc d e"


# --- nothing comes of what a log line holds ------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_has_no_tags_but_its_own() -> None:
    seen = Tags(html(said(delivery(of=hostile()))))
    assert seen.tags == ["p", "b", "p", "p", "code", "p", "a"]
    assert seen.attributes == [("href", f"{LINK}/crashes/000000000001")]
    assert "<script>alert(1)</script>" in seen.text, "it is there, as text"


def test_markdown_has_no_markup_but_its_own() -> None:
    """As a renderer of Markdown sees it."""
    seen = Tags(commonmark.markdown(markdown(said(delivery(of=hostile())))))
    assert [tag for tag in seen.tags if tag not in ("p", "a")] == ["strong", "code"]
    assert not [value for name, value in seen.attributes if name != "href" or value is None or "evil" in value]


@pytest.mark.parametrize("render", [chat, markdown, html])
def test_nobody_is_called_and_no_link_is_disguised(render: object) -> None:
    text = render(said(delivery(of=hostile())))  # type: ignore[operator]
    for mention in ("@here", "@everyone", "<!channel", "<@U", "<#C"):
        assert mention not in text
    assert not re.search(r"<[!@#]\w", text)
    assert "](" not in text
