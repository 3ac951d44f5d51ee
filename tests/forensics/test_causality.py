"""Who died first: what was asked for and when, which failure was first, what only echoed it, what was outlived."""

from dataclasses import replace
from io import BytesIO

import pytest

from forensics.causality import Ending
from forensics.events import ChildDied, StateTimedOut, StopRequested, Traceback, UnitStopped
from forensics.oom import kills
from forensics.sources.export import read_json
from tests.cases.replay import replay
from tests.cases.story import Journal, Life

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"


def begun() -> tuple[Journal, Life]:
    journal = Journal(name="causality")
    return journal, journal.life()


def ending(journal: Journal, life: Life) -> Ending:
    (one,) = replay(read_json(BytesIO(journal.dump().encode())), {life.unit})
    return Ending(one.run, one.timeline)


def test_a_stop_of_a_healthy_server_is_the_stop() -> None:
    journal, life = begun()
    life.up().stopping().sigterm().wait(1).drain(0).success()
    assert isinstance(ending(journal, life).stop, StopRequested)


def test_a_stop_of_a_dying_server_is_none() -> None:
    journal, life = begun()
    life.up().scheduler_raised(SERVE, "KeyError: 1").wait(3).stopping().wait(30).timed_out("stop-sigterm").killed()
    at_end = ending(journal, life)
    assert at_end.stop is None
    assert isinstance(at_end.stop_timed_out, StateTimedOut)
    assert isinstance(at_end.failure, Traceback)


def test_what_follows_a_stop_is_teardown() -> None:
    journal, life = begun()
    life.up().stopping().wait(0.5).scheduler_raised(SERVE, "KeyError: 1").self_kill()
    at_end = ending(journal, life)
    assert at_end.failures == ()
    assert isinstance(at_end.failed_while_stopping, Traceback)


def test_a_stop_before_the_unit_was_up_is_known_by_its_end() -> None:
    journal, life = begun()
    life.starting().load().exit("exited", 1).failed("exit-code").stopped("stop")
    assert isinstance(ending(journal, life).stop, UnitStopped)


@pytest.mark.parametrize("job", ["restart", "stop"])
def test_the_end_of_a_job_long_after_the_death_asks_for_nothing(job: str) -> None:
    journal, life = begun()
    life.starting().load().exit("killed", 9).failed("signal").wait(30).stopped(job)
    assert ending(journal, life).stop is None


def test_the_first_failure_that_is_no_echo_began_it() -> None:
    journal, life = begun()
    life.up().raised("a.py:1 in f", "EOFError", life.detokenizer, header="DetokenizerManager hit an exception")
    life.scheduler_raised(SERVE, "ValueError: first").self_kill()
    at_end = ending(journal, life)
    assert isinstance(at_end.failure, Traceback)
    assert at_end.failure.exception == "ValueError"
    assert at_end.echo is at_end.failures[0]


@pytest.mark.parametrize(
    ("error", "began"),
    [
        ("RuntimeError: NCCL error: unhandled system error", False),
        ("torch.distributed.DistBackendError: NCCL error in: x", False),
        ("KeyError: 'mine'", True),
    ],
)
def test_what_a_rank_says_of_another_s_loss_is_no_failure(error: str, *, began: bool) -> None:
    """Rank 1 is killed; within the second in which main has not looked, rank 0 speaks."""
    journal, life = begun()
    life.up().scheduler_raised(SERVE, error).wait(0.7).subprocess_died(-9, "scheduler_1", life.scheduler + 1)
    life.self_kill()
    assert (ending(journal, life).failure is not None) is began


def test_a_child_s_death_that_main_itself_caused_is_no_blow() -> None:
    """Newer versions reap for a minute, and main's watchdog then sees children die of main's own SIGKILL."""
    journal, life = begun()
    life.up().scheduler_raised(SERVE, "RuntimeError: NCCL error: internal error")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(5)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}")
    life.wait(0.3).subprocess_died(-9).wait(0.2).killed()
    assert isinstance(ending(journal, life).failure, Traceback)


@pytest.mark.parametrize(("seconds", "outlived"), [(1, False), (5, True), (4000, True)])
def test_a_traceback_that_work_followed_was_outlived(seconds: int, *, outlived: bool) -> None:
    journal, life = begun()
    life.up().scheduler_raised(SERVE, "KeyError: 1").wait(seconds).serve(1, every=0).exit("exited", 1).failed(
        "exit-code"
    )
    assert (ending(journal, life).failure is None) is outlived


def test_main_does_not_speak_for_its_children() -> None:
    journal, life = begun()
    life.up().raised("a.py:1 in f", "KeyError: 1", life.main, header="Scheduler hit an exception").killed()
    assert ending(journal, life).failures == ()


def test_a_signal_that_was_announced_hours_ago_is_not_this_one() -> None:
    journal, life = begun()
    life.up().say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(400).killed()
    at_end = ending(journal, life)
    assert at_end.sigquit is None
    assert at_end.self_kill is None


def test_children_are_told_of_by_their_exit_code() -> None:
    journal, life = begun()
    life.up().subprocess_died(-11).self_kill()
    at_end = ending(journal, life)
    assert isinstance(at_end.child_died, ChildDied)
    assert at_end.child_died.exit_code == -11


def test_the_oom_killer_is_excluded_by_any_of_three_witnesses() -> None:
    journal, life = begun()
    life.up().exit("killed", 9).remains("signal", "killed", "KILL", oom_kill=0).failed("signal")
    at_end = ending(journal, life)
    assert "kernel log was read completely" in (at_end.no_oom or "")
    blind = Ending(at_end.run, replace(at_end.timeline, sources=frozenset({"systemd", "server"})))
    assert "memory.events counted no OOM kill" in (blind.no_oom or "")
    kept = tuple(event for event in at_end.timeline.events if event.kind != "remains")
    assert Ending(at_end.run, replace(blind.timeline, events=kept)).no_oom is None


def test_one_kill_is_several_records() -> None:
    journal, life = begun()
    life.up()
    journal.oom(life.cgroup, life.main, "python", limit=life.cgroup, limit_kb=1024)
    life.killed()
    at_end = ending(journal, life)
    (kill,) = kills(at_end.run, at_end.timeline)
    assert (kill.pid, kill.victim, kill.memcg, kill.oom_memcg) == (life.main, "main", True, life.cgroup)
    assert kill.limit is not None
    assert kill.limit.limit_bytes == 1024 * 1024
    assert kill.size is not None


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("/sglang.slice/sglang-alder.service", True),
        ("/sglang.slice/sglang-alder.service/worker", True),
        ("/machine.slice/m.scope/payload/sglang.slice/sglang-alder.service", True),
        ("/system.slice/docker-1.scope/system.slice/sglang-alder.service", True),
        ("/sglang.slice/sglang-alder.service.d", False),
        ("/sglang.slice/sglang-alder2.service", False),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/sglang-alder.service", False),
        ("/", False),
        ("", False),
    ],
)
def test_a_cgroup_is_ours_by_whole_names(path: str, *, ours: bool) -> None:
    journal, life = begun()
    life.up().killed()
    assert ending(journal, life).run.owns_cgroup(path) is ours
