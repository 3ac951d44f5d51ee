"""What the tracer's word does to verdicts: who sent it, who did not, and what silence is worth."""

from typing import Any

from forensics.classify import classify
from forensics.coverage import RECORDED
from forensics.events import (
    Batch,
    ChildDied,
    CoreDump,
    Event,
    FatalPythonError,
    OomKill,
    ProcessExit,
    ServerSignal,
    SignalSent,
    SignalTracing,
    StateTimedOut,
    StopRequested,
)
from forensics.model import Role, Verdict
from forensics.senders import Origin, origin, traced_throughout
from forensics.timeline import Timeline
from tests.forensics.factories import record, run

MAIN, SCHEDULER, UNIT = 4321, 4400, "sglang-demo.service"


def sent(usec: int = 59_990_000, **changes: Any) -> SignalSent:
    """`kill -9` of main from somebody's shell."""
    given: dict[str, Any] = {
        "record": record("SIGKILL to python3 [4321] by bash [512]", usec, source="sigtrace", pid=700),
        "signal": 9,
        "sender_pid": 512,
        "sender_comm": "bash",
        "from_kernel": False,
        "target_pid": MAIN,
        "target_comm": "python3",
        "sender_detail": "`bash`, uid 1000, session-3.scope",
        "sender_unit": "session-3.scope",
        "target_unit": UNIT,
    }
    return SignalSent(**(given | changes))


def own(usec: int, target_pid: int = MAIN, sender_pid: int = MAIN) -> SignalSent:
    return sent(usec, sender_pid=sender_pid, sender_comm="python3", target_pid=target_pid, sender_unit=UNIT)


def exit_by(status: int, usec: int = 60_000_000, code: str = "killed") -> ProcessExit:
    message = f"Main process exited, code={code}, status={status}"
    return ProcessExit(
        record=record(message, usec, source="systemd", pid=1),
        process="main",
        command="ExecStart",
        exit_code=code,
        exit_status=status,
    )


def watching(since_usec: int | None = 1_000_000, usec: int = 11_000_000) -> SignalTracing:
    return SignalTracing(record=record("tracing", usec, source="sigtrace", pid=700), since_usec=since_usec)


def batch(usec: int) -> Batch:
    return Batch(record=record("Decode batch", usec, pid=SCHEDULER), phase="decode", values=())


def judge(*events: Event, **changes: Any) -> Verdict:
    return classify(run(**changes), Timeline.of(events, (), RECORDED))


def why_not(verdict: Verdict, cause: str = "external-signal") -> str:
    return next((other.why for other in verdict.ruled_out if other.cause == cause), "")


# --- who it was -------------------------------------------------------------------------------------------------


def test_an_outsider_is_named() -> None:
    verdict = judge(watching(), sent(), exit_by(9))
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("external-signal", "confirmed", "sigkill-main")
    assert verdict.summary.startswith(
        "SIGKILL to the main process 4321 (python3) by pid 512 (bash, `bash`, uid 1000, session-3.scope)."
    )
    assert verdict.evidence[0].event.kind == "signal-sent"
    assert verdict.settled
    assert "session-3.scope" in verdict.advice[0]


def test_a_sender_that_was_gone_too_soon_is_only_likely() -> None:
    verdict = judge(sent(sender_unit="", sender_detail="gone before its cgroup could be read"), exit_by(9))
    assert (verdict.cause, verdict.strength) == ("external-signal", "likely")


def test_without_a_tracer_the_sender_is_unknown_and_the_verdict_says_what_is_missing() -> None:
    verdict = judge(exit_by(9))
    assert (verdict.cause, verdict.strength) == ("external-signal", "likely")
    assert "inquest-sigtrace.service, which would, was not running" in verdict.summary
    assert "sigtrace" in verdict.awaits


def test_a_child_killed_from_outside() -> None:
    died = ChildDied(
        record=record("crashed with exit code -9", 59_995_000), child="scheduler_0", child_pid=SCHEDULER, exit_code=-9
    )
    verdict = judge(sent(target_pid=SCHEDULER, target_comm="sglang::schedul"), died, own(59_999_000), exit_by(9))
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("external-signal", "confirmed", "sigkill-child")
    assert "main died of this signal, sent by the process itself" in [piece.why for piece in verdict.evidence]


def test_an_abort_from_outside_is_no_native_crash() -> None:
    fatal = FatalPythonError(
        record=record("Fatal Python error: Aborted", 59_995_000, pid=MAIN), error="Aborted", process="main", frames=()
    )
    core = CoreDump(
        record=record("dumped core", 59_998_000, source="coredump"),
        coredump_pid=MAIN,
        comm="python3",
        exe=None,
        signal=6,
        unit=UNIT,
    )
    end = {"exit_code": "dumped", "exit_status": 6}
    crash = judge(fatal, core, exit_by(6, code="dumped"), **end)
    assert crash.cause == "native-crash"
    verdict = judge(sent(signal=6), fatal, core, exit_by(6, code="dumped"), **end)
    assert (verdict.cause, verdict.strength) == ("external-signal", "confirmed")
    assert "sent from outside" in why_not(verdict, "native-crash")


# --- who it was not ---------------------------------------------------------------------------------------------


def test_the_servers_own_kill_rules_an_outsider_out() -> None:
    verdict = judge(watching(), own(59_990_000), exit_by(9))
    assert verdict.cause == "unexplained-kill"
    assert "SIGKILL to 4321 by the process itself" in why_not(verdict)
    assert "why cannot be told" in verdict.summary


def test_a_scheduler_that_kills_main_is_the_servers_own() -> None:
    verdict = judge(own(59_990_000, sender_pid=SCHEDULER), exit_by(9))
    assert "the server's own process 4400 (scheduler)" in why_not(verdict)


def test_a_signal_that_the_server_outlived_is_not_to_blame() -> None:
    # A helper of ours was killed two minutes before; the server worked on, and then killed itself.
    verdict = judge(
        sent(100_000_000, target_pid=4500),
        batch(290_000_000),
        own(299_990_000),
        exit_by(9, 300_000_000),
        usec=300_000_000,
    )
    assert verdict.cause != "external-signal"


def test_a_thread_that_kills_its_own_process_is_gone_with_it_and_no_outsider() -> None:
    thread = sent(sender_pid=4350, sender_comm="python3", sender_unit="", sender_detail="")
    verdict = judge(thread, exit_by(9))
    assert verdict.cause == "unexplained-kill"
    assert "the server itself (pid 4350, python3)" in why_not(verdict)


def test_a_signal_that_main_shrugged_off_a_minute_before_is_not_to_blame() -> None:
    assert judge(sent(10_500_000, signal=1), own(59_990_000), exit_by(9)).cause == "unexplained-kill"


def test_sigterm_that_main_answered_is_to_blame_however_long_it_drained() -> None:
    said = ServerSignal(record=record("SIGTERM received.", 12_000_000), name="sigterm-received")
    verdict = judge(sent(11_900_000, signal=15), said, own(59_990_000), exit_by(9))
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("external-signal", "confirmed", "sigterm-main")


def test_a_signal_that_an_idle_server_took_an_hour_before_is_not_to_blame() -> None:
    hour = 3_700_000_000
    verdict = judge(
        sent(100_000_000, signal=1), own(hour - 10_000), exit_by(9, hour), usec=hour, started_usec=10_000_000
    )
    assert verdict.cause == "unexplained-kill"


def test_a_helper_of_the_server_that_was_killed_is_not_to_blame() -> None:
    # Nobody missed the compiler; the server killed itself soon after for a reason of its own.
    compiler = sent(55_000_000, target_pid=4500, target_comm="ptxas")
    assert judge(compiler, own(59_990_000), exit_by(9)).cause == "unexplained-kill"


def test_another_units_signal_is_not_ours() -> None:
    verdict = judge(sent(target_pid=9999, target_unit="sglang-other.service"), exit_by(9))
    assert (verdict.cause, verdict.strength) == ("external-signal", "likely")


def test_the_kernels_kill_backs_the_oom_record() -> None:
    kill = OomKill(
        record=record("oom-kill:constraint=CONSTRAINT_MEMCG", 59_980_000, source="kernel", pid=None),
        constraint="CONSTRAINT_MEMCG",
        oom_memcg=f"/sglang.slice/{UNIT}",
        task_memcg=f"/sglang.slice/{UNIT}",
        task="python3",
        oom_victim_pid=MAIN,
    )
    verdict = judge(kill, sent(59_979_000, from_kernel=True, sender_pid=MAIN, sender_unit=UNIT), exit_by(9))
    assert verdict.cause == "kernel-oom"
    assert "traced: the kernel itself sent the SIGKILL" in [piece.why for piece in verdict.evidence]


def test_a_kill_by_the_kernel_without_its_log_is_nobodys_from_outside() -> None:
    verdict = classify(run(), Timeline.of([sent(from_kernel=True), exit_by(9)], (), RECORDED - {"kernel"}))
    assert verdict.cause == "unexplained-kill"
    assert "the signal was sent by the kernel" in verdict.summary


# --- stops ------------------------------------------------------------------------------------------------------


def stop(usec: int = 40_000_000) -> StopRequested:
    return StopRequested(record=record("Stopping", usec, source="systemd", pid=1), job_type="stop")


def test_systemds_kill_backs_the_stop_timeout() -> None:
    timed_out = StateTimedOut(
        record=record("State 'stop-sigterm' timed out. Killing.", 59_980_000, source="systemd", pid=1),
        state="stop-sigterm",
        action="Killing",
    )
    kill = sent(59_985_000, sender_pid=1, sender_comm="systemd", sender_unit="init.scope")
    verdict = judge(stop(), timed_out, kill, exit_by(9))
    assert verdict.cause == "stop-timeout"
    assert "traced: sent by systemd (pid 1)" in [piece.why for piece in verdict.evidence]


def test_somebody_who_lost_patience_with_a_stop() -> None:
    verdict = judge(stop(), sent(), exit_by(9))
    assert (verdict.cause, verdict.strength) == ("external-signal", "confirmed")
    assert "while it was stopping" in verdict.summary
    assert "before it could end by itself" in why_not(verdict, "clean-stop")


def test_a_stop_that_sglang_ends_by_killing_itself_stays_clean() -> None:
    asked = sent(40_001_000, signal=15, sender_pid=1, sender_comm="systemd", sender_unit="init.scope")
    said = ServerSignal(record=record("SIGTERM received.", 40_100_000), name="sigterm-received")
    assert judge(stop(), asked, said, own(59_990_000), exit_by(9)).cause == "clean-stop"


# --- what silence is worth --------------------------------------------------------------------------------------


def test_a_run_is_covered_only_when_traced_from_before_its_start_without_interruption() -> None:
    life = run()

    def covered(*events: Event) -> bool:
        return traced_throughout(life, Timeline.of(events))

    assert covered(watching())
    assert not covered()
    assert not covered(watching(since_usec=life.started_usec + 1))
    assert not covered(watching(), watching(since_usec=None, usec=30_000_000))
    assert covered(watching(), watching(since_usec=None, usec=life.ended_usec + 1))


def test_silence_does_not_rule_out_a_signal_that_must_have_been_there() -> None:
    verdict = judge(watching(), exit_by(9))
    assert (verdict.cause, verdict.strength) == ("external-signal", "likely")
    assert "the signal tracer has no record of it" in verdict.summary


def test_the_servers_kills_after_a_childs_death_do_not_clear_an_outsider() -> None:
    # The tracer missed the kill of the scheduler; that main then killed the detokenizer says nothing about it.
    died = ChildDied(
        record=record("crashed with exit code -9", 59_990_000), child="scheduler_0", child_pid=SCHEDULER, exit_code=-9
    )
    verdict = judge(watching(), died, own(59_995_000, target_pid=4401), own(59_999_000), exit_by(9))
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("external-signal", "likely", "sigkill-child")
    assert why_not(verdict) == ""


def test_a_child_killed_by_main_is_no_outsiders() -> None:
    died = ChildDied(
        record=record("crashed with exit code -9", 59_990_000), child="scheduler_0", child_pid=SCHEDULER, exit_code=-9
    )
    verdict = judge(watching(), own(59_980_000, target_pid=SCHEDULER), died, own(59_999_000), exit_by(9))
    assert verdict.cause == "unexplained-kill"
    assert why_not(verdict).startswith(
        "the kernel's own record: SIGKILL to 4400 by the server's own process 4321 (main)"
    )


def test_origins() -> None:
    life = run()
    assert origin(life, sent()) is Origin.OUTSIDE
    assert origin(life, own(1)) is Origin.OWN
    assert origin(life, sent(from_kernel=True)) is Origin.KERNEL
    assert origin(life, sent(sender_pid=1, sender_unit="init.scope")) is Origin.SYSTEMD
    assert origin(life, sent(sender_unit="")) is Origin.UNKNOWN
    assert origin(life, sent(sender_unit="", sender_pid=SCHEDULER)) is Origin.OWN
    assert origin(life, sent(sender_pid=SCHEDULER)) is Origin.OUTSIDE, "a pid that was used again"


def test_the_evidence_begins_with_the_signal() -> None:
    verdict = judge(sent(), exit_by(9))
    assert [piece.role for piece in verdict.evidence] == [Role.INITIATING, Role.TEARDOWN]
