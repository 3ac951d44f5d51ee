"""Behind `tee`, `systemd-cat` or a container's client one process writes all lines: live and from saved files alike."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from forensics.analyze import analyze
from forensics.events import ProcessTree, ServerError, Traceback
from forensics.relay import relay_of
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.replay import Judged, judge, replay
from tests.cases.stories.one_writer import SERVE, Relayed, relayed
from tests.cases.story import Journal
from tests.forensics import factories


def lived() -> Relayed:
    life = relayed(Journal(name="relay"))
    life.up().line("free(): invalid pointer").raised("a.py:1 in f", "KeyError: 3")
    life.scheduler_raised(SERVE, "RuntimeError: bad table").self_kill()
    return life


def judged(life: Relayed) -> Judged:
    return replay(read_json(BytesIO(life.journal.dump().encode())), {life.unit})[0]


def test_what_a_relay_wrote_is_nobody_s_word_in_particular() -> None:
    one = judged(lived())
    told = [event for event in one.timeline.events if event.record.source == "server"]
    assert len(told) > 10
    assert {event.record.pid for event in told if event.kind != "log-stats"} == {None}
    assert [event.process for event in told if isinstance(event, ServerError)] == [""]
    assert [(event.header, event.process) for event in told if isinstance(event, Traceback)] == [
        ("", ""),
        ("Scheduler hit an exception", "scheduler"),
    ]
    assert (one.run.main_pid, one.run.pids) == (None, {})


def test_systemd_knows_the_processes_all_the_same() -> None:
    life = lived()
    tracker = Tracker((life.unit,))
    for entry in read_json(BytesIO(life.journal.dump().encode())):
        tracker.feed(entry)
    (record,) = tracker.records()
    seen = replace(record.events[0].record, source="process")
    tracker.add(record.invocation_id, [ProcessTree(record=seen, main_pid=life.main, processes=())])
    run = judge(tracker, record.invocation_id).run
    assert (run.main_pid, run.pids) == (life.main, {life.main: "main"})


def test_whose_schedulers_write_themselves_has_no_relay() -> None:
    life = Journal(name="none").life()
    life.up().line(f"[{life.journal.clock()}] Decode batch, #running-req: 3, token usage: 0.01, #queue-req: 0").killed()
    (one,) = replay(read_json(BytesIO(life.journal.dump().encode())), {life.unit})
    assert relay_of(one.timeline) is None
    assert one.run.pids == {life.main: "main", life.scheduler: "scheduler"}
    assert relay_of(factories.crash().timeline) is None


def test_the_pipe_s_own_status_hides_nothing() -> None:
    """`python … | tee log` ends with tee's status, 0, whatever became of SGLang: systemd calls that a success."""
    started = relayed(Journal(name="status-at-start"))
    started.starting().wait(3).say("server_args=ServerArgs(model_path='/srv/m', speculative_algorithm='EAGL')")
    started.raised("server_args.py:3 in check", "ValueError: Unknown speculative algorithm: 'EAGL'").success()
    served = relayed(Journal(name="status-serving"))
    served.up().scheduler_raised(SERVE, "KeyError: 'lora'")
    served.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(5).success()
    causes = [(one.verdict.cause, one.verdict.strength) for one in map(judged, (started, served))]
    assert causes == [("configuration-error", "likely"), ("python-exception", "likely")]


@pytest.mark.parametrize("error", ["RuntimeError: bad table", "torch.AcceleratorError: CUDA error: misaligned address"])
def test_a_saved_journal_gives_the_same_verdict(error: str, tmp_path: Path) -> None:
    life = relayed(Journal(name="saved"))
    life.up().scheduler_raised(SERVE, error).self_kill()
    path = tmp_path / "journal.json"
    path.write_text(life.journal.dump())
    (saved,) = analyze([str(path)]).crashes
    live = judged(life).verdict
    assert (saved["cause"], saved["strength"], saved["summary"]) == (live.cause, live.strength, live.summary)
    assert live.strength == "likely"
