"""userspace-oom-kill: systemd-oomd, earlyoom or nohang killed it, before the kernel had to.

Signal:      PID 1's record for this unit, or the tool's own record naming our cgroup or pid.
Not this:    a kernel OOM record of ours; a tool's warning that it only considered a kill.
Followed by: code=killed, status=9/KILL (or a drain after earlyoom's SIGTERM); Result is `oom-kill` for oomd as well.
"""

from forensics.causality import LATE_KERNEL_USEC, Ending
from forensics.events import UserspaceOomKill
from forensics.model import Evidence, Finding, NotThis, Role, Strength


def match(ending: Ending) -> Finding | NotThis | None:
    ours = [event for event in ending.timeline.all(UserspaceOomKill) if _is_ours(ending, event)]
    if not ours:
        if ending.timeline.covers("systemd"):
            return NotThis(why="neither PID 1 nor systemd-oomd, earlyoom or nohang recorded a kill in this unit")
        return None
    first = ours[0]
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


def _is_ours(ending: Ending, event: UserspaceOomKill) -> bool:
    run = ending.run
    if event.usec > run.ended_usec + LATE_KERNEL_USEC:
        return False
    return event.unit == run.unit or run.owns_cgroup(event.cgroup) or run.owns_pid(event.victim_pid)
