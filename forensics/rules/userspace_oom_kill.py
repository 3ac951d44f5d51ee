"""userspace-oom-kill: systemd-oomd, earlyoom or nohang killed it, before the kernel had to.

Signal:      PID 1's record for this unit, or the tool's own record naming our cgroup or pid, and the end soon after.
Not this:    a kernel OOM record of ours; a tool's warning that it only considered a kill; a kill that was outlived.
Followed by: code=killed, status=9/KILL (or a drain after earlyoom's SIGTERM); Result is `oom-kill` for oomd as well.
Needs:       PID 1's records, and the tool's own lines in the journal.
To do:       raise the memory that the slice may use, or exempt the server: ManagedOOMPreference=avoid (systemd-oomd),
             --avoid (earlyoom), nohang's configuration.
"""

from forensics.causality import LATE_KERNEL_USEC, Ending
from forensics.events import Batch, UserspaceOomKill
from forensics.fatality import SURVIVAL_USEC
from forensics.model import Evidence, Finding, NotThis, Role, Run, Strength
from forensics.oom import survived

_SOON_USEC = 150_000_000
_MOMENT_USEC = 10_000_000


def match(ending: Ending) -> Finding | NotThis | None:
    ours = [event for event in ending.timeline.all(UserspaceOomKill) if _ended_it(ending, event)]
    if not ours and (unnamed := _unnamed(ending)) is not None:
        return Finding(
            strength=Strength.LIKELY,
            summary=f"{unnamed.tool} signalled a victim that its record does not name, and this run ended by such a "
            "signal in the same moment.",
            subclass=unnamed.tool,
            evidence=(
                Evidence(role=Role.INITIATING, event=unnamed, why=f"{unnamed.tool} says that it killed something"),
                *ending.aftermath(unnamed),
            ),
            key=(unnamed.tool,),
        )
    if not ours:
        if ending.covers("systemd") and ending.covers("oomkillers"):
            return NotThis(why="neither PID 1 nor systemd-oomd, earlyoom or nohang recorded a kill that ended this run")
        return None
    first = ours[0]
    if ending.failure is not None and ending.failure.usec < first.usec:
        return NotThis(why=f"it was dying already as {first.tool} killed: {ending.failure.record.message[:120]}")
    others = tuple(Evidence(role=Role.INITIATING, event=event, why="the same kill") for event in ours[1:3])
    return Finding(
        strength=Strength.CONFIRMED,
        summary=f"{first.tool} killed processes of this unit to relieve memory pressure; the kernel did not.",
        subclass=first.tool,
        evidence=(
            Evidence(role=Role.INITIATING, event=first, why=f"{first.tool} says that it killed here"),
            *others,
            *ending.aftermath(first),
        ),
        key=(first.tool,),
    )


def _unnamed(ending: Ending) -> UserspaceOomKill | None:
    """nohang names its victim in a table of its own: then the moment and the kind of death must do."""
    run, died = ending.run, ending.child_died
    if ending.failure is not None or ending.stop is not None:
        return None
    by_signal = run.exit_code == "killed" and run.exit_status in (9, 15) and ending.self_kill is None
    child = died is not None and died.exit_code in (-9, -15)
    if not (by_signal or child or ending.sigterm is not None):
        return None
    first = min(ending.first_sign_usec, ending.sigterm.usec if ending.sigterm else ending.first_sign_usec)
    for event in ending.timeline.all(UserspaceOomKill):
        named = event.unit or event.cgroup or event.victim_pid
        if ending.sigterm is None and ending.timeline.first(Batch, after=event.usec + SURVIVAL_USEC) is not None:
            continue
        if not named and first - _MOMENT_USEC <= event.usec <= first + LATE_KERNEL_USEC:
            return event
    return None


def _is_ours(run: Run, event: UserspaceOomKill) -> bool:
    """Whether it is about this unit, or a cgroup above it: systemd-oomd can kill a whole slice."""
    above = run.control_group.split("/")[:-1]
    if event.unit is not None:
        return event.unit == run.unit or event.unit in above
    return bool(event.cgroup) and f"{run.control_group}/".startswith(f"{event.cgroup}/")


def _ended_it(ending: Ending, event: UserspaceOomKill) -> bool:
    run = ending.run
    if not run.started_usec <= event.usec <= run.ended_usec + LATE_KERNEL_USEC:
        return False
    if not (_is_ours(run, event) or run.owns_cgroup(event.cgroup) or run.owns_pid(event.victim_pid)):
        return False
    drains = ending.sigterm is not None and 0 <= ending.sigterm.usec - event.usec <= 5_000_000
    return drains or (ending.end_usec - event.usec <= _SOON_USEC and not survived(ending.timeline, event.usec))
