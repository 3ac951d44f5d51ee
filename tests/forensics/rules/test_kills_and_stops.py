"""B1 to B5, B9: stops that systemd finished by force, what they are not, and whose word a death rests on."""

from collections.abc import Callable

import pytest

from forensics.codec import dump_run, dump_verdict
from forensics.events import ProcessExit, ServerSignal, StateTimedOut, SystemdKill
from forensics.model import Crash, Evidence, Role, Verdict
from forensics.public import crash_shape
from forensics.store import Store
from tests.cases.story import Journal, Life
from tests.forensics.rules.telling import SERVE, told, verdict_on

LOGIND = "98268866d1d54a499c4e98921d93bc40"


def roles(verdict: Verdict) -> dict[Role, list[Evidence]]:
    return {role: [piece for piece in verdict.evidence if piece.role is role] for role in Role}


# --- B1: left-overs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["success", "exited-0", "killed-itself"])
def test_b1_left_overs_that_systemd_kills_at_once_make_a_clean_stop_with_a_note(end: str) -> None:
    """KillMode=mixed: as soon as main is gone, the rest of the cgroup gets SIGKILL, which systemd logs."""

    def story(j: Journal, life: Life) -> None:
        life.up().stopping().sigterm().wait(2).drain(0).wait(0.1)
        if end == "exited-0":
            life.exit("exited", 0)
        elif end == "killed-itself":
            life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}")
            life.exit("killed", 9)
        life.systemd_kills(life.detokenizer, "sglang::detoken").systemd_kills(7744, "pt_data_worker")
        life.failed("signal") if end == "killed-itself" else life.success()
        life.stopped()

    verdict = told(story, f"b1-{end}")
    assert (verdict.cause, verdict.strength, verdict.is_crash) == ("clean-stop", "confirmed", False)
    (note,) = [note for note in verdict.notes if "left behind" in note]
    assert "(sglang::detoken)" in note
    assert "7744 (pt_data_worker)" in note
    assert "configuration is not to blame" in verdict.summary
    assert {type(piece.event) for piece in roles(verdict)[Role.TEARDOWN]} >= {SystemdKill}


def test_b1_systemds_clean_up_behind_a_foreign_kill_is_no_stop() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().exit("killed", 9).systemd_kills(life.scheduler, "sglang::schedul").failed("signal")

    verdict = told(story)
    assert (verdict.cause, verdict.subclass, verdict.is_crash) == ("external-signal", "sigkill-main", True)


def test_b1_what_is_left_running_is_named() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().stopping().sigterm().wait(1).drain(0)
        life.pid1(f"{life.unit}: Unit process 7745 (nsys) remains running after unit stopped.").success().stopped()

    verdict = told(story)
    assert (verdict.cause, verdict.strength) == ("clean-stop", "confirmed")
    assert any("Left running: 7745 (nsys)" in note for note in verdict.notes)


# --- B2: the host goes down ---------------------------------------------------------------------------------------


def going_down(j: Journal) -> None:
    j.service("systemd-logind.service", "The system will reboot now!", comm="systemd-logind", _TRANSPORT="journal",
              MESSAGE_ID=LOGIND)  # fmt: skip


@pytest.mark.parametrize("told_by", ["logind", "pid-1"])
def test_b2_a_kill_in_a_shutdown_of_the_host_is_its_own_class_and_no_crash(told_by: str, store: Store) -> None:
    """The default of 90 s ends in 9/KILL and Result=timeout. Without logind PID 1 speaks of the shutdown only when the
    last unit is down, which is the one that had held it up."""
    journal = Journal(name=f"b2-{told_by}")
    life = journal.life()
    life.up()
    if told_by == "logind":
        going_down(journal)
    life.stopping().sigterm().wait(5).drain(3).wait(85).timed_out("stop-sigterm").systemd_kills()
    life.killed(9, "timeout").stopped()
    journal.wait(0.4)
    journal.pid1("Reached target shutdown.target - System Shutdown.", "started", UNIT="shutdown.target")
    journal.pid1("Shutting down.")
    journal.reboot()
    judged = verdict_on(journal, life)
    verdict = judged.verdict
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("stop-timeout", "confirmed", "shutdown-kill")
    assert "The host was shut down" in verdict.summary
    assert "3 request(s) were still running" in verdict.summary
    assert not verdict.is_crash
    store.save(Crash(run=judged.run, timeline=judged.timeline, verdict=verdict))
    assert store.crashes().crashes == ()


def test_b2_a_shutdown_long_after_the_stop_has_nothing_to_do_with_it() -> None:
    """Stopped by hand, killed by the timeout; a minute later the host is shut down."""

    def story(j: Journal, life: Life) -> None:
        life.up().stopping().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
        j.wait(60)
        going_down(j)
        j.pid1("Shutting down.")

    verdict = told(story)
    assert (verdict.cause, verdict.subclass, verdict.is_crash) == ("stop-timeout", "stop-sigterm", True)


def test_b2_a_server_that_failed_before_the_shutdown_is_a_crash() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().scheduler_raised(SERVE, "KeyError: 'rid-8'")
        life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(9)
        going_down(j)
        life.stopping().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")

    verdict = told(story)
    assert (verdict.cause, verdict.is_crash) == ("python-exception", True)


def test_b2_a_server_that_ended_in_time_was_shut_down_cleanly() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        going_down(j)
        life.stopping().sigterm().wait(3).drain(0).success().stopped()

    verdict = told(story)
    assert (verdict.cause, verdict.subclass, verdict.is_crash) == ("clean-stop", "host-shutdown", False)


# --- B3: the timeout of a stop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [10, 90, 600])
def test_b3_a_stop_timeout_says_how_long_it_waited_and_what_the_server_was_doing(seconds: int) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().stopping().wait(0.1).sigterm().wait(seconds / 2).drain(2).wait(seconds / 2 - 0.1)
        life.timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()

    verdict = told(story, f"b3-{seconds}")
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("stop-timeout", "confirmed", "stop-sigterm")
    assert f"by SIGKILL after {seconds} s" in verdict.summary
    assert "2 request(s) were still running" in verdict.summary
    assert dict(verdict.doing.figures)["running-req"] == "3"
    assert verdict.phase == "shutdown"
    by_role = roles(verdict)
    assert any(isinstance(piece.event, StateTimedOut) for piece in by_role[Role.INITIATING])
    assert {type(piece.event) for piece in by_role[Role.TEARDOWN]} == {SystemdKill, ProcessExit}


@pytest.mark.parametrize(
    ("wording", "state"),
    [
        ("State 'stop-sigterm' timed out. Killing.", "stop-sigterm"),
        ("State 'stop-sigterm' timed out. Aborting.", "stop-sigterm"),
        ("State 'stop-watchdog' timed out. Killing.", "stop-watchdog"),
        ("Stopping timed out. Killing.", "stop"),
        ("State 'final-sigterm' timed out. Killing.", "final-sigterm"),
        ("State 'stop-final-sigterm' timed out. Killing.", "final-sigterm"),
        ("State 'stop-post' timed out. Killing.", "stop-post"),
    ],
)
def test_b3_each_state_and_each_versions_word_for_it(wording: str, state: str) -> None:
    """systemd 245 to 258."""

    def story(j: Journal, life: Life) -> None:
        life.up().stopping().wait(30).pid1(f"{life.unit}: {wording}").systemd_kills().killed(9, "timeout").stopped()

    verdict = told(story, wording)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("stop-timeout", "confirmed", state)


# --- B4: how it ended ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "signal", "core"),
    [
        ("exited", 1, None, False), ("exited", 137, None, False), ("exited", 203, None, False),
        ("killed", 9, "SIGKILL", False), ("killed", 11, "SIGSEGV", False), ("killed", 40, "signal 40", False),
        ("dumped", 6, "SIGABRT", True), ("dumped", 11, "SIGSEGV", True),
        ("remains: exited", 0, None, False), ("remains: killed", 15, "SIGTERM", False), ("", None, None, None),
    ],
)  # fmt: skip
def test_b4_every_record_has_code_status_signal_and_whether_a_core_was_dumped(
    code: str, status: int | None, signal: str | None, *, core: bool | None
) -> None:
    """Also of ends that systemd does not log (status 0, SIGTERM), if ExecStopPost= was told; null if nobody was."""
    journal = Journal(name=f"b4-{code}-{status}")
    life = journal.life()
    life.up().wait(1)
    if code.startswith("remains"):
        code = code.removeprefix("remains: ")
        life.remains("success", code, "TERM" if status else "0").success()
    elif status is not None:
        life.exit(code, status).failed("exit-code")
    else:
        life.success()
    judged = verdict_on(journal, life)
    run = crash_shape(dump_run(judged.run), dump_verdict(judged.verdict))["run"]
    assert (run["exit_code"], run["exit_status"]) == (code or None, status)
    assert (run["signal"], run["core_dumped"]) == (signal, core)


# --- B5: no record stops at `signal: killed` -------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["main", "scheduler"])
def test_b5_a_kill_names_five_origins_that_were_looked_for_and_the_evidence_of_each(victim: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().wait(0.5)
        life.killed() if victim == "main" else life.subprocess_died(-9).self_kill()

    verdict = told(story, f"b5-{victim}")
    assert verdict.cause == "external-signal"
    reasons = {ruled.cause: ruled.why for ruled in verdict.ruled_out}
    assert "the kernel log was read completely" in reasons["kernel-oom"]
    assert "systemd-oomd, earlyoom or nohang" in reasons["userspace-oom-kill"]
    assert reasons["stop-timeout"] == "nobody asked systemd to stop this unit"
    assert "watchdog" in reasons["hang"]
    assert "no core dump" in reasons["native-crash"]
    assert "SGLang neither failed before nor announced a kill of its own" in verdict.summary
    assert "Who sent it is not recorded" in verdict.summary


@pytest.mark.parametrize("source", ["kernel", "systemd", "server"])
def test_b5_an_origin_that_could_not_be_looked_for_is_not_ruled_out(source: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().killed()
        j.gap(source, "it could not be read")

    verdict = told(story, f"b5-without-{source}")
    assert verdict.cause == "unexplained-kill"
    assert "it could not be read" in verdict.summary
    silent = {"kernel": "kernel-oom", "systemd": "stop-timeout", "server": "python-exception"}
    assert silent[source] not in {ruled.cause for ruled in verdict.ruled_out}


# --- B9: a child's death ----------------------------------------------------------------------------------------


def _exception(life: Life) -> Life:
    return life.scheduler_raised(SERVE, "ValueError: negative dimension -3")


def _detokenizer(life: Life) -> Life:
    return life.raised("managers/detokenizer_manager.py:301 in event_loop", "ValueError: negative dimension -3",
                       life.detokenizer, header="DetokenizerManager hit an exception")  # fmt: skip


@pytest.mark.parametrize("fails", [_exception, _detokenizer], ids=["scheduler", "detokenizer"])
@pytest.mark.parametrize("announced", [True, False], ids=["0.5.13-and-later", "before"])
def test_b9_the_childs_traceback_is_the_cause_and_the_kill_of_the_tree_is_teardown(
    fails: Callable[[Life], Life], *, announced: bool
) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        fails(life).self_kill(announced=announced)

    verdict = told(story, f"b9-{announced}")
    assert (verdict.cause, verdict.strength) == ("python-exception", "confirmed")
    by_role = roles(verdict)
    (first,) = by_role[Role.INITIATING]
    assert "negative dimension -3" in first.event.record.message
    assert {type(piece.event) for piece in by_role[Role.TEARDOWN]} <= {ServerSignal, ProcessExit}
    assert any(isinstance(piece.event, ProcessExit) for piece in by_role[Role.TEARDOWN])
    assert {"kernel-oom", "stop-timeout"} <= {ruled.cause for ruled in verdict.ruled_out}


def test_b9_a_child_that_died_without_a_word_is_explained_by_mains_word_of_its_status() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().wait(0.6).subprocess_died(3).self_kill()

    verdict = told(story)
    assert (verdict.cause, verdict.subclass) == ("silent-exit", "child-status-3")
    assert "its log does not say why" in verdict.summary
