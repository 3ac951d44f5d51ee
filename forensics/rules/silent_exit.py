"""silent-exit: the main process, or a child, ended with an exit status, and nothing in the log says why.

Signal:      code=exited with a status other than 0, no failure in the log, no stop, no exec failure; or an end before
             the server had said that it was ready (Result=protocol).
Not this:    a traceback or usage error that explains the status; a log that was rate-limited or lost (then said so).
Followed by: nothing, or for a child SIGQUIT to main and SGLang's SIGKILL of itself. The status is all there is.
Needs:       the exit status is PID 1's; that nothing was said is known only from a log that was read completely.
To do:       read its last lines (`journalctl _SYSTEMD_INVOCATION_ID=…`).
"""

from forensics.causality import Ending
from forensics.events import Event, Remains, UnitResult, UnitState
from forensics.model import Evidence, Finding, NotThis, Role, Strength

_SHELL_SIGNALS = {129: "SIGHUP", 130: "SIGINT", 134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}


def match(ending: Ending) -> Finding | NotThis | None:
    if ending.failure is not None or ending.stop is not None:
        return None
    died = ending.child_died
    if died is not None and died.exit_code is not None and died.exit_code > 0:
        return _found(ending, died, f"A child process ({died.child})", died.exit_code, "child-status")
    run = ending.run
    if run.result == "protocol" and (run.exit_code, run.exit_status) in (("exited", 0), (None, None)):
        return _too_early(ending)
    sign = ending.main_exit or ending.timeline.last(Remains) or ending.timeline.last(UnitState)
    if run.exit_code != "exited" or run.exit_status in (0, None) or ending.echo is not None or sign is None:
        return None
    return _found(ending, sign, "The main process", run.exit_status or 0, "status")


def _too_early(ending: Ending) -> Finding | None:
    """systemd logs no exit with status 0; that it was one too early is the result."""
    sign = ending.timeline.first(UnitResult)
    if sign is None or ending.echo is not None:
        return None
    return Finding(
        strength=Strength.LIKELY,
        summary="The main process ended by itself before it had said that it was ready (Result=protocol), and its log "
        "does not say why.",
        subclass="before-ready",
        evidence=(Evidence(role=Role.INITIATING, event=sign, why="all that systemd says"), *ending.aftermath(sign)),
        key=("before-ready",),
        awaits=("kernel", "coredump"),
    )


def _found(ending: Ending, sign: Event, who: str, status: int, subclass: str) -> Finding:
    lost = dict.fromkeys(gap.reason for gap in ending.lost("server"))
    because = f"part of its log is missing ({'; '.join(lost)})" if lost else "its log does not say why"
    notes: tuple[str, ...] = ()
    if name := _SHELL_SIGNALS.get(status):
        notes = (
            f"{status} is an exit status that the program gave, not a signal; a shell reports a child's {name} so.",
        )
    return Finding(
        strength=Strength.LIKELY,
        summary=f"{who} exited with status {status} and {because}.",
        subclass=f"{subclass}-{status}",
        evidence=(
            Evidence(role=Role.INITIATING, event=sign, why="the record of the exit"),
            *ending.aftermath(sign),
        ),
        key=(subclass, str(status)),
        awaits=("kernel", "coredump"),
        notes=notes,
    )
