"""external-signal: a signal from neither systemd's stop, the kernel's OOM killer nor SGLang itself ended it.

Signal:      PID 1's `Sent signal … on client request`; a traced `signal_generate`; or a death by a signal that
             nothing else explains, with the OOM killer excluded.
Not this:    SIGKILL that SGLang announced (`kill_process_tree called`) or that follows a failed child; stop jobs.
Followed by: for a child `crashed with exit code -9`, EOFError, SGLang's SIGKILL of itself; for main nothing at all.
Needs:       a sender: PID 1's record, or inquest-sigtrace.service. Without, it is what is left (likely at most) when
             PID 1's records, the server's log, and the kernel's log or its counter of OOM kills were all read.
To do:       ask who was logged in or which job ran at that second (`journalctl --since` around it); a sender's unit,
             where it is known, has its own log (`journalctl _SYSTEMD_UNIT=…`). The kernel names the sender of the next
             one where `systemctl enable --now inquest-sigtrace` was run.
"""

from forensics.causality import SIGNALS, STREAM_SKEW_USEC, Ending
from forensics.events import (
    ClientKill,
    Event,
    FatalPythonError,
    LogStats,
    PreflightRefused,
    Remains,
    ServerSignal,
    SignalSent,
    SignalTracing,
    UnitResult,
)
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.phase import became_ready
from forensics.senders import Origin, by_whom, origin, signals_to, traced_throughout

_CORELESS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


def match(ending: Ending) -> Finding | NotThis | None:
    if ending.failure is not None and not _is_stop_signal(ending):
        return NotThis(why=f"the server failed by itself first: {ending.failure.record.message[:120]}")
    if (client := ending.client_kill) is not None:
        return _by_client(ending, client)
    sent = ending.outsider
    if sent is not None and (ending.stop is None or cut_short(ending)):
        return _by_tracer(ending, sent)
    if ending.stop is not None:
        return None
    return _by_elimination(ending)


def _is_stop_signal(ending: Ending) -> bool:
    failure, sent = ending.failure, ending.outsider
    if sent is not None and isinstance(failure, FatalPythonError) and failure.record.pid == sent.target_pid:
        return sent.usec <= failure.usec + STREAM_SKEW_USEC  # faulthandler's answer to SIGABRT
    return ending.client_kill is not None and failure is not None and ending.client_kill.usec <= failure.usec


def _by_client(ending: Ending, kill: ClientKill) -> Finding:
    whom = f"{kill.comm} [{kill.target_pid}]" if kill.target_pid else "the unit's processes"
    return Finding(
        strength=Strength.CONFIRMED,
        summary=f"Somebody sent {kill.signal} to {whom} through systemd (`systemctl kill`).",
        subclass="systemctl-kill",
        evidence=(
            Evidence(role=Role.INITIATING, event=kill, why="systemd sent the signal on a client's request"),
            *ending.aftermath(kill),
        ),
        key=("systemctl-kill", kill.signal),
    )


def cut_short(ending: Ending) -> bool:
    """Whether somebody lost patience with a stop that was under way, and killed main before systemd would have."""
    sent = ending.outsider
    if sent is None or ending.stop is None or ending.stop_timed_out is not None:
        return False
    return sent is ending.fatal_signal and SIGNALS.get(sent.signal) == "SIGKILL"


def _by_tracer(ending: Ending, sent: SignalSent) -> Finding:
    name = SIGNALS.get(sent.signal, str(sent.signal))
    victim = "main" if sent.target_pid == ending.run.main_pid else "child"
    known = origin(ending.run, sent) is Origin.OUTSIDE
    during = " while it was stopping" if ending.stop is not None else ""
    return Finding(
        strength=Strength.CONFIRMED if known else Strength.LIKELY,
        summary=f"{name} to the {victim} process {sent.target_pid} ({sent.target_comm}){during} "
        f"by {by_whom(ending.run, sent)}.",
        subclass=f"{name.lower()}-{victim}",
        evidence=(
            Evidence(role=Role.INITIATING, event=sent, why="the kernel's own record of the signal"),
            *ending.aftermath(sent),
        ),
        key=(name, victim),
    )


def _by_elimination(ending: Ending) -> Finding | NotThis | None:
    run = ending.run
    if not (ending.covers("server") and ending.covers("systemd")):
        return None
    if not ending.no_oom and not _told(ending):
        return None
    if ending.systemd_had_a_reason and not _main_ended_by_itself(ending):
        return NotThis(why="systemd had a reason of its own to end it, and so sent SIGTERM itself")
    sign, name, victim = _sign(ending)
    if name is None and _ended_unrecorded(ending):
        return _unrecorded(ending)
    if name is None:
        # What ended a child of which main tells nothing stays open.
        if victim != "child" and run.exit_code == "killed" and run.exit_status == 9 and ending.self_kill:
            return NotThis(why="SGLang announced that it kills itself: " + ending.self_kill.record.message[:120])
        return None
    if inside := _from_inside(ending, sign, name, victim):
        return NotThis(why=f"the kernel's own record: {name} to {inside.target_pid} by {by_whom(run, inside)}")
    died = ending.child_died
    inferred = victim == "child" and (died is None or died.exit_code is None)
    if inferred and traced_throughout(run, ending.timeline):
        # Of a child known to have died by a signal, one that is missing from the trace was not watched well enough.
        return NotThis(why="the signal tracer ran all the time and saw no signal from outside")
    evidence = (Evidence(role=Role.INITIATING, event=sign, why="the only trace that it left"),) if sign else ()
    return Finding(
        strength=Strength.LIKELY,
        summary=f"{name} from outside ended {_whom(ending, victim)}: systemd did not send it, "
        f"{'the OOM killer was not at work, ' if ending.no_oom else ''}and SGLang neither failed before nor announced "
        f"a kill of its own. {_untraced(ending)}",
        subclass=f"{name.lower()}-{victim}",
        evidence=(*evidence, *(ending.aftermath(sign) if sign else ())),
        key=(name, victim),
        awaits=("kernel", "coredump", "sigtrace"),
    )


def _whom(ending: Ending, victim: str) -> str:
    died = ending.child_died
    if victim == "main":
        return "the main process"
    if died is None or died.exit_code is None:
        return "a child process"
    pid = f" ({died.child_pid})" if died.child_pid else ""
    return f"the {_child_name(died.child)}{pid}"


def _child_name(child: str) -> str:
    """`scheduler_0` → `scheduler of rank 0`, `Rank 0 scheduler` too."""
    role, _, rank = child.partition("_")
    if child.startswith("Rank "):
        role, rank = "scheduler", child.split()[1]
    return f"{role} of rank {rank}" if rank.isdecimal() else child


def _told(ending: Ending) -> bool:
    """Whether the server itself says which signal it got, and no failure or kill that might be the OOM killer's came
    before: the OOM killer sends only SIGKILL, which nobody can tell of."""
    sign, name, victim = _sign(ending)
    return sign is not None and victim == "main" and name in ("SIGTERM", "SIGINT") and sign in (
        ending.sigterm, ending.interrupted
    )  # fmt: skip


def _main_ended_by_itself(ending: Ending) -> bool:
    """Whether main was gone before systemd did anything: by its own record, or by the word of our wait for it."""
    if ending.main_exit is not None:
        step = ending.start_step_failed
        return ending.start_timed_out is None and (step is None or ending.main_exit.usec <= step.usec)
    return any(
        r.check == "not-ready" and "main process ended" in r.reason for r in ending.timeline.all(PreflightRefused)
    )


def _ended_unrecorded(ending: Ending) -> bool:
    """Ended without an error while loading, which SGLang never does by itself; systemd does not log how."""
    run = ending.run
    return (
        (run.result, run.exit_code) == ("success", None)
        and not became_ready(ending)
        and ending.timeline.first(LogStats) is not None
        and ending.start_step_failed is None
        and ending.sigterm is None
        and ending.interrupted is None
    )


def _unrecorded(ending: Ending) -> Finding:
    result = ending.timeline.first(UnitResult)
    return Finding(
        strength=Strength.LIKELY,
        summary="It ended while it was still loading, without an error and without a stop. systemd calls an end by "
        "SIGTERM, SIGINT, SIGHUP or SIGPIPE a success and does not log it: one of these, from outside, fits.",
        subclass="unrecorded-main",
        evidence=(Evidence(role=Role.INITIATING, event=result, why="all that systemd says"),) if result else (),
        key=("unrecorded",),
        awaits=("kernel", "coredump", "sigtrace"),
    )


def _from_inside(ending: Ending, sign: Event | None, name: str, victim: str) -> SignalSent | None:
    """The traced signal that left this trace, where none came from outside (`Ending.outsider` would be it): to main, to
    the child whose death main tells, or to any child before main noticed."""
    died, main = ending.child_died, ending.run.main_pid
    pid = main if victim == "main" else died.child_pid if died is not None else None
    found = None
    for sent in signals_to(ending.run, ending.timeline, pid=pid):
        early = sign is None or sent.usec <= sign.usec + STREAM_SKEW_USEC
        if early and SIGNALS.get(sent.signal) == name and (victim == "main" or sent.target_pid != main):
            found = sent
    return found


def _untraced(ending: Ending) -> str:
    if ending.timeline.first(SignalTracing) is None:
        return "Who sent it is not recorded: inquest-sigtrace.service, which would, was not running."
    return "Who sent it is not recorded: the signal tracer has no record of it."


def _sign(ending: Ending) -> tuple[Event | None, str | None, str]:
    """The trace that the signal left, its name, and whom it hit: a child (main tells), or main itself."""
    run, died = ending.run, ending.child_died
    first_failed = ending.failures[0].usec if ending.failures else run.ended_usec
    if ending.sigterm is not None and ending.sigterm.usec <= first_failed and _ended_of_sigterm(ending):
        return ending.sigterm, "SIGTERM", "main"
    if died is not None and died.exit_code is not None:
        name = SIGNALS.get(-died.exit_code) if died.exit_code < 0 else None
        return died, name if name in _CORELESS else None, "child"
    if ending.sigquit is not None and ending.sigquit.name == "sigquit-received" and ending.echo is None:
        return ending.sigquit, "SIGQUIT", "main"
    if ending.echo is not None and ending.core_dump is None and ending.segfault is None:
        # Main lost a child that said nothing and left no core: only a signal without a core does that.
        covered = ending.covers("coredump") and not ending.self_kill
        return ending.echo, "SIGKILL" if covered else None, "child"
    if ending.sigquit is not None or ending.self_kill is not None:
        return None, None, ""
    if run.exit_code == "killed" and run.exit_status in (1, 2, 9, 13, 15):
        return ending.main_exit or ending.sigterm or ending.timeline.last(Remains), SIGNALS[run.exit_status], "main"
    if ending.interrupted is not None:
        return ending.interrupted, "SIGINT", "main"
    return None, None, ""


def _ended_of_sigterm(ending: Ending) -> bool:
    """Whether main's end is what SIGTERM leads to: it drained and left, or (up to 0.5.19) killed itself at the end."""
    run = ending.run
    if run.exit_code == "killed" and run.exit_status == 9:
        return ending.self_kill is not None or _drained(ending)
    if run.exit_code == "exited":
        # It leaves with 0, or as some do with 128 + 15; another status has another reason.
        return run.exit_status in (0, 143) or ending.echo is not None
    return True


def _drained(ending: Ending) -> bool:
    drains = [signal for signal in ending.timeline.all(ServerSignal) if signal.name == "draining"]
    return any(dict(signal.values).get("remaining") == "0" for signal in drains)
