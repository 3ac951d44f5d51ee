"""userspace-oom-kill: systemd-oomd, earlyoom or nohang killed it, before the kernel had to.

Signal:      PID 1's record for this unit, or the tool's own record naming our cgroup or pid, and the end soon after.
Not this:    a kernel OOM record of ours; a tool's warning that it only considered a kill; a kill that was outlived.
Followed by: code=killed, status=9/KILL (or a drain after earlyoom's SIGTERM); Result is `oom-kill` for oomd as well.
"""

from forensics.causality import LATE_KERNEL_USEC, Ending
from forensics.events import UserspaceOomKill
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.oom import survived

_SOON_USEC = 150_000_000


def match(ending: Ending) -> Finding | NotThis | None:
    ours = [event for event in ending.timeline.all(UserspaceOomKill) if _ended_it(ending, event)]
    if not ours:
        if ending.timeline.covers("systemd") and ending.timeline.covers("oomkillers"):
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


def _ended_it(ending: Ending, event: UserspaceOomKill) -> bool:
    run = ending.run
    if not run.started_usec <= event.usec <= run.ended_usec + LATE_KERNEL_USEC:
        return False
    if not (event.unit == run.unit or run.owns_cgroup(event.cgroup) or run.owns_pid(event.victim_pid)):
        return False
    drains = ending.sigterm is not None and 0 <= ending.sigterm.usec - event.usec <= 5_000_000
    return drains or (ending.end_usec - event.usec <= _SOON_USEC and not survived(ending.timeline, event.usec))
