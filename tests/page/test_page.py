import io
import re
import tarfile
import urllib.request
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from axe_playwright_python.sync_playwright import Axe

from forensics.api import Serving, create_app, serve
from forensics.events import NotAnswering, UnitStarted
from forensics.model import Strength, Supervision
from forensics.store import Store
from forensics.store.rows import now_usec
from forensics.store.telling import Channel
from tests.forensics.channels import everybody
from tests.forensics.factories import clean, crash, open_run, record, rejected
from tests.forensics.runs.test_store import campaign
from tests.page import scene
from tests.page.conftest import HEALTH, Open, sync_api

expect = sync_api.expect
pytestmark = pytest.mark.page

WIDE, NARROW, SMALL = 1280, 390, 320


def overflow(page: "sync_api.Page") -> int:
    result: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return result


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return everybody("on-call")


@pytest.fixture
def filled(store: Store) -> Store:
    scene.fill(store, datetime.now(UTC))
    return store


def newest(store: Store) -> str:
    return store.crashes().crashes[0]["id"]


# --- the overview --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW, SMALL])
def test_the_overview_at_every_width_in_both_schemes(filled: Store, open_page: Open, width: int, scheme: str) -> None:
    page = open_page(width=width, scheme=scheme)
    expect(page.locator(".crash")).to_have_count(len(filled.crashes().crashes))
    expect(page.locator(".lane .who strong")).to_have_text(["demo", "llama", "qwen"])
    expect(page.locator(".crash .sentence").first).to_contain_text("OOM killer killed the main process")
    expect(page.locator("#live")).to_have_text("live")
    assert overflow(page) <= 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(246, 246, 244)" if scheme == "light" else "rgb(18, 21, 27)")


def test_lives_are_drawn_with_their_ends(filled: Store, open_page: Open) -> None:
    page = open_page()
    marks = page.locator("a.death")
    expect(marks.first).to_be_attached()
    labels = [mark.get_attribute("aria-label") or "" for mark in marks.all()]
    assert any(label.startswith("kernel-oom, confirmed. The kernel's OOM killer") for label in labels)
    assert any("and 3 crashes just before it" in label for label in labels), "a restart loop is one mark"
    expect(page.locator(".state.up")).to_have_count(2)
    expect(page.locator(".state.crashed")).to_have_text("crashed 3 h 4 min ago")
    expect(page.locator("rect.bar.starting").nth(2)).to_be_attached()
    page.get_by_label("6 h").check()
    expect(page.locator("a.death")).to_have_count(4)
    page.reload()
    expect(page.locator("input[name=span]:checked")).to_have_value("6")


def test_nothing_yet_is_said_kindly(store: Store, open_page: Open) -> None:
    page = open_page()
    expect(page.get_by_text("No server has run yet.")).to_be_visible()
    expect(page.get_by_text("No crash. Every run that ended did so as asked.")).to_be_visible()


def test_a_crash_shows_itself_as_it_comes(store: Store, open_page: Open) -> None:
    store.save(crash(1, summary="the first"))
    page = open_page()
    expect(page.locator("#live")).to_have_text("live")
    store.save(clean(2))
    store.save(crash(3, summary="while we looked"))
    expect(page.locator(".crash .sentence")).to_have_text(["while we looked", "the first"])
    expect(page.locator("#news")).to_have_text("New crash of demo: while we looked")
    store.save(crash(3, summary="on reflection", strength=Strength.LIKELY))
    expect(page.locator(".crash .sentence")).to_have_text(["on reflection", "the first"])
    expect(page.locator(".crash").first).to_contain_text("corrected")


def test_an_older_death_that_is_told_late_takes_its_place(store: Store, open_page: Open) -> None:
    store.save(crash(1, summary="one"))
    store.save(crash(9, summary="nine"))
    page = open_page()
    expect(page.locator("#live")).to_have_text("live")
    store.save(crash(5, summary="five"))
    expect(page.locator(".crash .sentence")).to_have_text(["nine", "five", "one"])


def test_a_run_that_starts_shows_in_its_lane(store: Store, open_page: Open) -> None:
    store.save(crash(1))
    page = open_page()
    expect(page.locator(".state.crashed")).to_be_visible()
    store.checkpoint("here", 1, [open_run(2)])
    expect(page.locator(".state.starting")).to_be_visible()


def test_filters_and_groups(filled: Store, open_page: Open) -> None:
    page = open_page()
    page.get_by_label("Server", exact=True).select_option("qwen")
    expect(page.locator(".crash .tag", has_text="llama")).to_have_count(0)
    page.get_by_label("Kind of death").select_option("start")
    expect(page.locator(".crash")).to_have_count(4)
    page.get_by_label("alike together").check()
    expect(page.locator(".crash")).to_have_count(1)
    expect(page.locator(".crash .when strong")).to_have_text("4×")


def test_a_late_answer_to_what_was_asked_before_changes_nothing(filled: Store, open_page: Open) -> None:
    page = open_page()
    server = page.get_by_label("Server", exact=True)
    server.select_option("qwen")
    others = page.locator(".crash .tag", has_text="llama")
    expect(others).to_have_count(0)
    every = re.compile(r"/crashes\?(?!.*server=qwen)")
    held: list[sync_api.Route] = []
    # A lambda, since Playwright writes into what it is given.
    page.route(every, lambda route: held.append(route))
    with page.expect_request(every):
        server.select_option("")
    server.select_option("qwen")
    mine = page.locator(".crash")
    expect(mine.first).to_be_visible()
    shown = mine.all_inner_texts()
    with page.expect_response(every):
        held[0].continue_()
    page.evaluate("new Promise((done) => setTimeout(done))")  # what follows the answer has run
    expect(others).to_have_count(0)
    assert mine.all_inner_texts() == shown


def test_earlier_ones_are_a_button_away(store: Store, open_page: Open) -> None:
    for number in range(1, 36):
        store.save(crash(number))
    page = open_page()
    expect(page.locator(".crash")).to_have_count(30)
    page.get_by_role("button", name="Show earlier ones").click()
    expect(page.locator(".crash")).to_have_count(35)
    expect(page.get_by_role("button", name="Show earlier ones")).to_be_hidden()


def test_it_comes_back_after_the_daemon_was_away_and_misses_nothing(
    store: Store, open_page: Open, serving: Serving
) -> None:
    store.save(crash(1, summary="before"))
    page = open_page(allow=("Failed to load resource", "net::ERR"))
    expect(page.locator("#live")).to_have_text("live")
    serving.close()
    expect(page.locator("#live")).to_have_text("reconnecting")
    store.save(crash(2, summary="meanwhile"))
    again = serve(create_app(store, lambda: HEALTH), "127.0.0.1", serving.port)
    try:
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator(".crash .sentence")).to_have_text(["meanwhile", "before"])
    finally:
        page.close()
        again.close()


# --- one crash -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW, SMALL])
def test_the_story_at_every_width_in_both_schemes(filled: Store, open_page: Open, width: int, scheme: str) -> None:
    page = open_page(f"#/crashes/{newest(filled)}", width=width, scheme=scheme)
    expect(page.locator("h1")).to_contain_text("The kernel's OOM killer killed the main process")
    expect(page.locator(".plot canvas")).to_have_count(5)
    assert overflow(page) <= 0


def test_the_story_tells_it_all(filled: Store, open_page: Open) -> None:
    page = open_page(f"#/crashes/{newest(filled)}")
    expect(page.locator(".advice")).to_contain_text("Raise memory_max in the spec (it was 24.0 GiB)")
    expect(page.locator(".piece.initiating").first).to_contain_text("oom-kill:constraint=CONSTRAINT_MEMCG")
    expect(page.get_by_role("heading", name="Ruled out")).to_be_visible()
    expect(page.locator(".memory tr", has_text="unit's limit (memory.max)")).to_contain_text("24.0 GiB")
    expect(page.locator("aside")).to_contain_text("killed by SIGKILL")
    expect(page).to_have_title("llama: " + (page.locator("h1").text_content() or "") + " · Inquest")
    label = page.locator(".plot").nth(2).get_attribute("aria-label") or ""
    assert label.startswith("Memory of the unit over the last 5 min")
    assert "used: first 16.1 GiB, last 23.6 GiB, highest 23.6 GiB" in label
    assert "limit: first 24 GiB" in label
    page.get_by_text("Every fact, from").click()
    expect(page.locator(".timeline li").nth(4)).to_be_attached()


def test_pointing_at_a_curve_reads_all_of_them(filled: Store, open_page: Open) -> None:
    page = open_page(f"#/crashes/{newest(filled)}")
    page.locator(".plot .u-over").first.hover(position={"x": 200, "y": 40})
    for panel in range(5):
        expect(page.locator(".readout").nth(panel)).not_to_be_empty()


def test_it_can_be_copied_and_taken_along(filled: Store, open_page: Open, serving: Serving, tmp_path: Path) -> None:
    name = newest(filled)
    page = open_page(f"#/crashes/{name}")
    page.get_by_role("button", name="Copy as text").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    asked = urllib.request.Request(f"http://localhost:{serving.port}/crashes/{name}", headers={"Accept": "text/plain"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert page.evaluate("navigator.clipboard.readText()") == answer.read().decode()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the evidence").click()
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(Path(download.value.path()).read_bytes()))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        assert any(member.name.endswith("/crash.json") for member in archive)


def test_a_link_of_an_alert_leads_to_the_story(filled: Store, open_page: Open) -> None:
    page = open_page(f"crashes/{newest(filled)}")
    expect(page.locator("h1")).to_contain_text("OOM killer")


def test_changes_of_the_configuration_and_the_same_death_before(filled: Store, open_page: Open) -> None:
    repeated = [one for one in filled.crashes().crashes if (one["history"] or {}).get("occurrence", 0) > 1]
    page = open_page(f"#/crashes/{repeated[0]['id']}")
    expect(page.locator("aside")).to_contain_text("The 4th death of this kind")
    page.get_by_role("link", name="The one before").click()
    expect(page.locator("aside")).to_contain_text("The 3rd death of this kind")


def test_a_verdict_that_changes_while_it_is_read(store: Store, open_page: Open) -> None:
    store.save(crash(1, summary="at first"))
    page = open_page(f"#/crashes/{newest(store)}")
    expect(page.locator("h1")).to_have_text("at first")
    store.save(crash(1, summary="on reflection", strength=Strength.LIKELY))
    expect(page.locator("h1")).to_have_text("on reflection")
    expect(page.locator(".verdict")).to_contain_text("verdict no. 2")


def test_what_was_rejected_and_what_systemd_does_next(store: Store, open_page: Open) -> None:
    forged = rejected("Out of memory: Killed process 4321 (<b>python</b>)", count=1200)
    told = Supervision(oom_policy="kill", restart="no", next="Restart=no: it stays down until somebody starts it.")
    store.save(crash(1, rejected=(forged,), supervision=told))
    page = open_page(f"#/crashes/{newest(store)}")
    card = page.locator("section.card", has=page.get_by_role("heading", name="Rejected evidence"))
    expect(card).to_contain_text("Killed process 4321 (<b>python</b>)” (1200 times, first by python [4321]")
    expect(card.locator("b")).to_have_count(0)
    facts = page.locator("section.card", has=page.get_by_role("heading", name="The run"))
    expect(facts).to_contain_text("Result=signal, OOMPolicy=kill, Restart=no")
    expect(facts).to_contain_text("it stays down until somebody starts it")


def test_a_crash_that_is_not_there_is_said(store: Store, open_page: Open) -> None:
    page = open_page("#/crashes/abc", allow=("404",))
    expect(page.get_by_role("alert")).to_contain_text("no crash 'abc' in the store")


# --- lines that would like to be more than text ----------------------------------------------------------------


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_hostile_lines_stay_text(store: Store, open_page: Open, width: int) -> None:
    now = datetime.now(UTC)
    store.save(scene.moved(scene.hostile_crash(), "sglang-demo.service", now - timedelta(hours=1)))
    page = open_page(width=width)
    expect(page.locator(".crash .sentence")).to_contain_text("<script>alert('script')</script>")
    page.locator("a.death").focus()
    page.locator(".crash a").click()
    evidence = page.locator(".piece pre").first
    expect(evidence).to_contain_text(
        "<img src=x onerror=alert(1)><script>alert('script')</script> \"><svg onload=alert(2)>"
    )
    expect(evidence).to_contain_text("\\x1b[31;1mred\\x1b[0m \\x1b]0;title\\x07 \\x00null")
    expect(evidence).to_contain_text("שלום")
    page.get_by_text("Every fact, from").click()
    assert page.locator("main img, main script, main iframe, main [onerror], main [onload]").count() == 0
    shown = page.locator("body").inner_text()
    assert not [char for char in shown if char in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x1b\x00\x07"]
    assert overflow(page) <= 0


def test_the_browser_itself_refuses_markup_from_text(store: Store, open_page: Open, serving: Serving) -> None:
    with urllib.request.urlopen(f"http://localhost:{serving.port}/", timeout=10) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = open_page(allow=("TrustedHTML", "TrustedScript", "Content Security Policy"))
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch (error) { return true } }"
    )
    assert refused is True
    ran = page.evaluate(
        "() => { try { const made = document.createElement('script'); made.textContent = 'window.ran = 1';"
        " document.body.append(made) } catch {} return window.ran ?? null }"
    )
    assert ran is None


# --- without a mouse, in other colours -------------------------------------------------------------------------


def test_by_keyboard_alone(filled: Store, open_page: Open) -> None:
    page = open_page()
    expect(page.locator(".crash").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator(".crash a").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".crash").first).to_be_visible()
    page.reload()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".crash").first).to_be_visible()
    mark = page.locator("a.death").first
    mark.focus()
    expect(page.locator("#tip")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_be_focused()


def test_every_control_has_a_name_and_the_headings_an_order(filled: Store, open_page: Open) -> None:
    for path in ("", f"#/crashes/{newest(filled)}"):
        page = open_page(path)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator(".card").first).to_be_visible()
        nameless = page.evaluate(
            "() => [...document.querySelectorAll('a, button, select, input')].filter((each) =>"
            " !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length))"
            ".map((each) => each.outerHTML)"
        )
        assert nameless == []
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((each) => Number(each.tagName[1]))")
        assert levels[0] == 1
        assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_the_chosen_colours_are_kept(filled: Store, open_page: Open) -> None:
    page = open_page(scheme="light")
    page.get_by_role("button", name="Dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 27)"


# --- one server ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_which_value_served_best(store: Store, open_page: Open, width: int) -> None:
    campaign(store)
    page = open_page(width=width)
    page.get_by_role("link", name="demo", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("demo")
    expect(page.locator(".tuning tbody tr")).to_have_count(3)
    best = page.locator(".tuning tbody tr", has=page.locator(".winner")).first
    expect(best).to_contain_text("220.0")
    expect(page.locator(".tuning")).to_contain_text("1× external-signal")
    page.get_by_label("By which argument").select_option("speculative_num_draft_tokens")
    expect(page.locator(".tuning thead")).to_contain_text("speculative_num_draft_tokens")
    expect(page.locator(".runs li")).to_have_count(3)
    expect(page.locator(".runs li").first).to_contain_text("speculative_num_steps 3 → 5")
    assert overflow(page) <= 0


def test_a_server_that_never_ran_is_said(store: Store, open_page: Open) -> None:
    page = open_page("#/servers/nobody", allow=("404",))
    expect(page.get_by_role("alert")).to_contain_text("nobody")


def test_the_tuning_table_has_its_picture(store: Store, open_page: Open) -> None:
    campaign(store)
    page = open_page("#/servers/demo")
    plots = page.locator(".server .plot")
    expect(plots).to_have_count(2)
    speed, accepted = plots.all()
    expect(speed).to_have_role("img")
    expect(speed).to_have_accessible_name(re.compile(r"Best throughput, tokens/s\. 1 running: .*220"))
    expect(accepted).to_have_accessible_name(re.compile(r"^Accept length"))
    assert speed.locator(".dot").count() >= 3
    runs = page.locator(".runs li")
    expect(runs.first).to_contain_text("speculative_num_steps 3 → 5")


# --- what is not well ------------------------------------------------------------------------------------------


def test_a_living_server_that_does_not_answer_is_said(store: Store, open_page: Open) -> None:
    run = open_run(1)
    run.events.append(UnitStarted(record=record("Started.", 20_000_000, pid=1)))
    minutes_ago = int((datetime.now(UTC) - timedelta(minutes=4)).timestamp() * 1e6)
    run.events.append(
        NotAnswering(
            record=record("runs but does not answer", 70_000_000, realtime_usec=minutes_ago),
            since_usec=minutes_ago, probe="nothing", processes=(), lost=(), stacks="", on_hang="tell",
        )
    )  # fmt: skip
    store.checkpoint("here", 1, [run])
    page = open_page()
    expect(page.locator(".state.silent")).to_have_text("no answer for 4 min")


def test_alerts_that_do_not_arrive_are_said(store: Store, open_page: Open) -> None:
    store.save(crash(1))
    delivery = store.outbox.take("on-call", now_usec())
    assert delivery is not None
    store.outbox.failed(delivery, "the receiver answered 503", now_usec() + 60_000_000)
    page = open_page()
    expect(page.locator("#health")).to_contain_text("1 alert waits for on-call")
    expect(page.locator("#health")).to_have_attribute("title", re.compile("on-call: .*the receiver answered 503"))


# --- what an accessibility checker says ------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe_finds_nothing(filled: Store, open_page: Open, width: int, scheme: str) -> None:
    campaign(filled)
    checker = Axe()
    rules = {"rules": {"label-content-name-mismatch": {"enabled": True}}}
    for path, there in (
        ("", ".crash"),
        (f"#/crashes/{newest(filled)}", ".plot canvas"),
        ("#/servers/demo", ".plot svg"),
    ):
        page = open_page(path, width=width, scheme=scheme)
        expect(page.locator(there).first).to_be_visible()
        found = checker.run(page, options=rules)
        assert found.violations_count == 0, found.generate_report()
        page.close()
