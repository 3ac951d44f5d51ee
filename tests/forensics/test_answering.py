"""A server that runs and does not answer: the heartbeat's record, who may write it, and what a verdict makes of it."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

import service.heartbeat
from forensics import daemon
from forensics.answering import silence, unanswered, untold
from forensics.codec import dump_run_record, load_run_record
from forensics.entry import Entry
from forensics.events import Answering, NotAnswering
from forensics.model import Verdict
from forensics.public import when
from forensics.settings import Settings
from forensics.sources import heartbeat, rejected
from forensics.sources.export import read_json
from forensics.sources.journal import JournalReader
from forensics.store import Store
from tests.cases.replay import replay
from tests.cases.story import Journal, Life
from tests.forensics.factories import open_run
from tests.forensics.sources.entries import INVOCATION, UNIT, entry

SINCE_USEC = 1_772_366_391_000_000
STOPPED = "4100 S python /opt/sglang/bin/python -m sglang.launch_server\n4161 T sglang::schedul sglang::scheduler"


def beat(**fields: str) -> dict[str, str]:
    """The heartbeat's record, as journald stores it."""
    return {
        "MESSAGE_ID": heartbeat.MESSAGE_ID, "MESSAGE": f"{UNIT} runs but does not answer", "_UID": "0",
        "_TRANSPORT": "journal", "_COMM": "inquest-beat", "_PID": "4900", "_SYSTEMD_UNIT": UNIT, "INQUEST_UNIT": UNIT,
        "_SYSTEMD_INVOCATION_ID": INVOCATION, "INQUEST_HANG_STATE": "not-answering",
        "INQUEST_HANG_SINCE_USEC": str(SINCE_USEC), "INQUEST_HANG_PROBE": "nothing", "INQUEST_HANG_LOST": "",
        "INQUEST_HANG_PROCESSES": STOPPED, "INQUEST_HANG_STACKS": "4161 sglang::scheduler:\nforward (a.py:7)",
        "INQUEST_ON_HANG": "tell", **fields,
    }  # fmt: skip


def of(fields: dict[str, str]) -> Entry:
    return entry(fields["MESSAGE"], **fields)


def hang(**fields: str) -> NotAnswering:
    event = heartbeat.parse(of(beat(**fields)))
    assert isinstance(event, NotAnswering)
    return event


def again() -> Answering:
    event = heartbeat.parse(of(beat(INQUEST_HANG_STATE="answering")))
    assert isinstance(event, Answering)
    return event


def test_the_record_has_the_writer_s_id() -> None:
    assert service.heartbeat.MESSAGE_ID == heartbeat.MESSAGE_ID


def test_the_record_has_the_writer_s_field_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVOCATION_ID", INVOCATION)
    written = service.heartbeat.record("demo", [1], "nothing", 23.0, ["sglang::detoken"], restart=True)
    event = heartbeat.parse(of({**written, "_UID": "0", "_SYSTEMD_UNIT": UNIT}))
    assert isinstance(event, NotAnswering)
    assert (event.probe, event.lost, event.on_hang) == ("nothing", ("sglang::detoken",), "restart")
    assert [process.pid for process in event.processes] == [1]
    assert event.since_usec == int(written["INQUEST_HANG_SINCE_USEC"])
    better = service.heartbeat.record("demo", [1], None, 0, [], restart=True)
    assert isinstance(heartbeat.parse(of({**better, "_UID": "0", "_SYSTEMD_UNIT": UNIT})), Answering)


def test_what_it_saw_is_typed() -> None:
    event = hang()
    assert (event.since_usec, event.on_hang) == (SINCE_USEC, "tell")
    assert [(process.pid, process.state, process.comm) for process in event.processes] == [
        (4100, "S", "python"),
        (4161, "T", "sglang::schedul"),
    ]
    assert event.stacks.endswith("forward (a.py:7)")


def test_stacks_are_bounded() -> None:
    assert len(hang(INQUEST_HANG_STACKS="x" * 1_000_000).stacks) < 50_000


@pytest.mark.parametrize(
    "forged",
    [{"_UID": "990"}, {"_SYSTEMD_UNIT": "sglang-other.service"}, {"_SYSTEMD_UNIT": ""}],
    ids=["by the server's user", "from another unit", "from nowhere"],
)
def test_who_may_not_write_it_is_not_believed(forged: dict[str, str]) -> None:
    written = of(beat(**forged))
    assert heartbeat.parse(written) is None
    found = rejected.parse(written)
    assert found is not None
    assert found.claims == "inquest-beat"


def test_the_last_word_counts() -> None:
    silent = hang()
    assert unanswered([silent]) is silent
    assert unanswered([silent, again()]) is None
    assert unanswered([silent, again(), silent]) is silent


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no answer to a health check; sglang::schedul was stopped"),
        ({"INQUEST_HANG_PROBE": "ConnectionRefusedError", "INQUEST_HANG_PROCESSES": ""},
         "its health check met ConnectionRefusedError"),
        ({"INQUEST_HANG_PROCESSES": "4161 D sglang::schedul x", "INQUEST_HANG_LOST": "sglang::detoken"},
         "no answer to a health check; sglang::schedul waited in the kernel; sglang::detoken had ended"),
    ],
)  # fmt: skip
def test_a_silence_in_words(fields: dict[str, str], words: str) -> None:
    assert silence(hang(**fields)) == words


# What a verdict makes of it


def silent(life: Life, **fields: str) -> Life:
    """The heartbeat's record, 20 s after the server's last answer."""
    life.wait(20)
    since = int(life.journal._boot_began_usec + life.journal.usec) - 20_000_000
    own = {"_SYSTEMD_UNIT": life.unit, "INQUEST_UNIT": life.unit, "_SYSTEMD_INVOCATION_ID": life.invocation_id}
    life.journal.write(beat(**own, INQUEST_HANG_SINCE_USEC=str(since), **fields))
    return life


def verdict_on(story: Callable[[Life], object]) -> Verdict:
    journal = Journal(name=story.__qualname__)
    life = journal.life()
    story(life)
    (judged,) = replay(read_json(BytesIO(journal.dump().encode())), {life.unit}, [])
    return judged.verdict


def test_a_hang_that_systemd_ended_is_told_with_what_was_seen() -> None:
    def story(life: Life) -> None:
        silent(life.up(), INQUEST_ON_HANG="restart")
        life.pid1(f"{life.unit}: Watchdog request (last status: does not answer since 20 s)!")
        life.systemd_kills().killed(9, "watchdog")

    verdict = verdict_on(story)
    assert (verdict.cause, verdict.strength) == ("hang", "confirmed")
    assert verdict.summary == (
        "It did not answer for 20 s (no answer to a health check; sglang::schedul was stopped),"
        " and systemd's watchdog ended it."
    )
    first = verdict.evidence[0].event
    assert isinstance(first, NotAnswering)
    assert "forward (a.py:7)" in first.stacks
    stopped, stacks = verdict.advice
    assert stopped.startswith("Find out who stopped it")
    assert "INQUEST_HANG_STATE=not-answering" in stacks


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        (
            {"INQUEST_HANG_PROCESSES": "4161 S sglang::schedul x"},
            "Where each process stood is in the heartbeat's record",
        ),
        ({"INQUEST_HANG_PROCESSES": "", "INQUEST_HANG_STACKS": "no stacks: py-spy is not installed"}, "Install py-spy"),
    ],
)
def test_advice_on_a_hang_is_about_what_was_seen(fields: dict[str, str], advice: str) -> None:
    def story(life: Life) -> None:
        silent(life.up(), **fields)
        life.pid1(f"{life.unit}: Watchdog request (last status: x)!").systemd_kills().killed(9, "watchdog")

    said = verdict_on(story).advice[0]
    assert said.startswith(advice)


def test_a_watchdog_request_without_the_heartbeat_s_record_is_a_hang_as_well() -> None:
    def story(life: Life) -> None:
        life.up().pid1(f"{life.unit}: Watchdog request (last status: anything)!").systemd_kills().killed(9, "watchdog")

    verdict = verdict_on(story)
    assert (verdict.cause, verdict.strength) == ("hang", "confirmed")
    assert "anything" not in verdict.summary


def test_whoever_stops_a_hung_server_reads_that_it_hung() -> None:
    def story(life: Life) -> None:
        silent(life.up()).wait(40).stopping().wait(90)
        life.timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")

    verdict = verdict_on(story)
    assert verdict.cause == "stop-timeout"
    assert not verdict.summary.startswith("It had served well")
    assert any(note.startswith("It had run without answering for the last 150 s") for note in verdict.notes)


def test_one_that_answered_again_had_served_well() -> None:
    def story(life: Life) -> None:
        silent(silent(life.up()), INQUEST_HANG_STATE="answering").stopping().wait(90)
        life.timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")

    verdict = verdict_on(story)
    assert verdict.summary.startswith("It had served well")
    assert not any("without answering" in note for note in verdict.notes)


# While it lasts


def test_a_server_that_does_not_answer_says_so_until_it_does(tmp_path: Path) -> None:
    run = open_run(1)
    run.events.append(hang())
    with closing(Store(tmp_path / "inquest.sqlite")) as store:
        store.checkpoint("here", 1, [run])
        (server,) = store.servers()
        assert server["running"] is not None
        assert server["running"]["not_answering_since"] == when(SINCE_USEC)
        run.events.append(again())
        store.checkpoint("there", 2, [run])
        (server,) = store.servers()
        assert server["running"] is not None
        assert server["running"]["not_answering_since"] is None


def test_each_word_of_the_heartbeat_is_passed_on_once() -> None:
    run = open_run(1)
    assert untold(run) == []
    run.events.append(hang(INQUEST_ON_HANG="restart"))
    (heard,) = untold(run)
    assert (heard.kind, heard.at_usec) == ("hang", SINCE_USEC)
    said = "no answer to a health check; sglang::schedul was stopped"
    assert heard.details == {"said": said, "lost": [], "on_hang": "restart", "stacks": True}
    run.silences_told = 1
    assert untold(run) == []
    run.events.append(again())
    assert [heard.kind for heard in untold(run)] == ["answering"]


def test_a_daemon_that_comes_back_remembers_what_it_passed_on() -> None:
    run = open_run(1)
    run.events.append(hang())
    run.silences_told = 1
    assert untold(load_run_record(dump_run_record(run))) == []


def test_the_daemon_tells_those_who_listen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    monkeypatch.setattr(daemon, "JournalReader", partial(JournalReader, path=journal))
    run = open_run(1)
    run.events.append(hang())
    with closing(daemon.Daemon(Settings(state_dir=tmp_path))) as made:
        made._tell_silence([run])
        made._tell_silence([run])
        run.events.append(again())
        made._tell_silence([run])
        told = made._store.news.after(0, 10)
    assert [item.kind for item in told] == ["hang", "answering"]
    assert told[0].data["said"] == "no answer to a health check; sglang::schedul was stopped"
    assert told[0].data["at"] == when(SINCE_USEC)
