"""clean-stop: the server was asked to stop and ended within the time, or ended by itself with status 0. No crash.

Signal:      PID 1's `Stopping …` (or a shutdown of the host) and no timeout; else exit status 0 without a failure.
Not this:    a stop that ran into its timeout; a failure from before the stop; SIGTERM from somebody else.
Followed by: SGLang up to 0.5.19 ends even a clean drain by SIGKILL of itself: Result=signal, status=9/KILL.
Needs:       PID 1's records of this unit; the server's log tells that a SIGKILL at the end was its own.
To do:       nothing. Where it ended by itself and nobody had asked, read its last lines (`journalctl
             _SYSTEMD_INVOCATION_ID=…`).
"""

from forensics import stops
from forensics.causality import NATIVE_SIGNALS, Ending
from forensics.events import (
    Event,
    LeftOverProcess,
    LogStats,
    ProcessExit,
    ServerSignal,
    StateTimedOut,
    SystemdKill,
    UnitResult,
)
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.phase import became_ready
from forensics.rules.external_signal import cut_short

AS_IT_CAME = "The server failed in the moment in which the stop came: which was first, the records do not tell."
_HOW = {
    "requested": "A stop was asked for",
    "host-shutdown": "The host was shut down",
    "runtime-limit": "The unit's own limit (RuntimeMaxSec=) ran out",
}


def match(ending: Ending) -> Finding | NotThis | None:
    if ending.run.result == "exec-condition":
        return _skipped(ending)
    if ending.failure is not None or ending.echo is not None:
        return None
    if ending.stop is not None:
        return _requested(ending, ending.stop)
    if ending.outsider is not None:
        return NotThis(why="a signal from outside ended it")
    return _unasked(ending)


def _requested(ending: Ending, stop: Event) -> Finding | NotThis | None:
    run = ending.run
    if ending.stop_timed_out is not None or (run.exit_status in NATIVE_SIGNALS and run.exit_code != "exited"):
        return None
    if cut_short(ending):
        return NotThis(why="somebody killed it before it could end by itself")
    kind = "runtime-limit" if isinstance(stop, StateTimedOut) else "requested"
    if stops.host_shutdown(run, ending.timeline) is not None:
        kind = "host-shutdown"
    evidence = [Evidence(role=Role.INITIATING, event=stop, why="the stop was asked for")]
    if ending.sigterm:
        evidence.append(Evidence(role=Role.CASCADE, event=ending.sigterm, why="SGLang began to drain"))
    if ending.main_exit:
        evidence.append(Evidence(role=Role.TEARDOWN, event=ending.main_exit, why="how the main process ended"))
    # SGLang says so when it kills itself at the end of a stop, in one way or another.
    foreign = run.exit_code == "killed" and run.exit_status == 9 and not _said_why(ending)
    left = _left_overs(ending)
    evidence += [Evidence(role=Role.TEARDOWN, event=event, why="what main had left behind") for event in left[:4]]
    notes = []
    if foreign:
        notes.append("It did not say that it killed itself at the end of the stop: somebody may have cut it short.")
    if ending.failed_as_it_came is not None:
        notes.append(AS_IT_CAME)
    if ending.unhealthy:
        notes.append("Its health check had failed before the stop: something was wrong that no record here names.")
    strength = Strength.LIKELY if notes else Strength.CONFIRMED
    if left:
        notes.append(_told(left))
    return Finding(
        strength=strength,
        summary=f"{_HOW[kind]} and {_ended(ending)}.",
        subclass=kind,
        evidence=tuple(evidence),
        notes=tuple(notes),
    )


def _left_overs(ending: Ending) -> list[SystemdKill | LeftOverProcess]:
    """Processes of the unit that main's orderly end left behind: killed by systemd at once, or left to run."""
    main = ending.run.main_pid
    kills = [kill for kill in ending.timeline.all(SystemdKill) if kill.target_pid != main]
    return [*kills, *ending.timeline.all(LeftOverProcess)]


def _told(left: list[SystemdKill | LeftOverProcess]) -> str:
    killed = [f"{event.target_pid} ({event.comm})" for event in left if isinstance(event, SystemdKill)]
    running = [f"{event.left_pid} ({event.comm})" for event in left if isinstance(event, LeftOverProcess)]
    said = []
    if killed:
        said.append(f"systemd killed what the main process had left behind: {', '.join(killed[:4])}.")
    if running:
        said.append(f"Left running: {', '.join(running[:4])}.")
    return " ".join(said)


def _ended(ending: Ending) -> str:
    run = ending.run
    if run.exit_code is None and run.result is None:
        return "took the server along; its own end was not recorded"
    if run.exit_code == "killed" and run.exit_status == 9 and _said_why(ending):
        return "the server ended within its time (by SIGKILL of itself, as SGLang does up to 0.5.19)"
    return f"the server ended within its time ({ending.exit_words})"


def _said_why(ending: Ending) -> bool:
    if ending.self_kill is not None or ending.sigquit is not None:
        return True
    for signal in ending.timeline.all(ServerSignal):
        if signal.name == "force-exit" or (signal.name == "draining" and dict(signal.values).get("remaining") == "0"):
            return True
    return False


def _unasked(ending: Ending) -> Finding | NotThis | None:
    """systemd is silent about a main process that ended well; the result is all it says."""
    run = ending.run
    if ending.sigterm is not None or ending.interrupted is not None or ending.start_timed_out or ending.stop_timed_out:
        return None
    if run.result == "protocol":
        return NotThis(why="it ended before it had said that it was ready, which systemd calls a failure")
    silent = (run.exit_code, run.exit_status) == (None, None) and ending.main_exit is None
    well = run.result == "success" or (_only_the_end_failed(ending) and ending.start_step_failed is None)
    if (run.exit_code, run.exit_status) != ("exited", 0) and not (silent and well):
        return None
    if silent and not became_ready(ending) and ending.timeline.first(LogStats) is not None:
        return NotThis(why="a server that is still loading does not end by itself without an error")
    result = ending.timeline.first(UnitResult)
    return Finding(
        strength=Strength.LIKELY,
        summary="The server ended by itself without an error, and nobody asked systemd for it.",
        subclass="unasked",
        evidence=(Evidence(role=Role.INITIATING, event=result, why="all that systemd says"),) if result else (),
        awaits=("kernel",),
        notes=("A process that ends by SIGTERM, SIGINT, SIGHUP or SIGPIPE counts as a success for systemd too.",)
        if silent
        else (),
    )


def _only_the_end_failed(ending: Ending) -> bool:
    """ExecStop= or ExecStopPost= failed behind a main process that had ended well."""
    ends = ("ExecStop", "ExecStopPost")
    return any(e.command in ends and e.exit_status != 0 for e in ending.timeline.all(ProcessExit))


def _skipped(ending: Ending) -> Finding:
    step = ending.start_step_failed
    return Finding(
        strength=Strength.CONFIRMED,
        summary="ExecCondition= said no, so systemd skipped the start: nothing failed.",
        subclass="exec-condition",
        evidence=(Evidence(role=Role.INITIATING, event=step, why="the condition's exit"),) if step else (),
    )
