"""How it is known that a death was not the kernel OOM killer's. Pure functions of (run, timeline) and of its kills.

`first_sign_usec` is the first sign of the end.
"""

from collections.abc import Iterable, Sequence

from forensics.events import HostMemory, Remains, UnitOomKill, Unparsed
from forensics.fatality import LINGER_USEC
from forensics.model import Run
from forensics.oom import LATE_KERNEL_USEC, Kill, survived
from forensics.timeline import Timeline


def notice(run: Run, timeline: Timeline, kills: Iterable[Kill]) -> UnitOomKill | None:
    """systemd's count of an OOM kill, unless the server worked on after it, or after the kill that it counts."""
    over = [kill.usec for kill in kills if kill.outlived(run, timeline)]
    for one in timeline.all(UnitOomKill):
        counted = any(abs(one.usec - usec) <= LATE_KERNEL_USEC for usec in over)
        if not counted and not survived(timeline, one.usec):
            return one
    return None


def unread(run: Run, timeline: Timeline, first_sign_usec: int) -> Unparsed | None:
    """A record near the end in which the kernel speaks of an OOM kill in words that nobody here knows."""
    since, until = first_sign_usec - LINGER_USEC, run.ended_usec + LATE_KERNEL_USEC
    near = (one for one in timeline.all(Unparsed) if since <= one.usec <= until)
    return next((one for one in near if one.about == "oom"), None)


def why(run: Run, timeline: Timeline, kills: Sequence[Kill], first_sign_usec: int, *, kernel_heard: bool) -> str | None:
    """The witness in words; None when it is not known.

    Three witnesses, any of which suffices: the kernel log read without a gap; the unit's own memory.events, read after
    the death and before the cgroup was gone; the host-wide counter of /proc/vmstat, before and after.
    """
    outlived = [kill for kill in kills if kill.outlived(run, timeline)]
    if len(outlived) < len(kills) or notice(run, timeline, kills):
        return None
    remains = timeline.last(Remains)
    counted = remains.memory.oom_kill if remains and remains.memory else None
    if (counted or 0) > len(outlived):
        return None
    if kernel_heard and unread(run, timeline, first_sign_usec) is None:
        if outlived:
            return "the kernel's OOM kills in this unit were long before, and the server worked on after them"
        whole = "completely" if timeline.covers("kernel") else "completely up to the end, from minutes before it"
        return f"no kernel OOM record names a process or cgroup of this run; the kernel log was read {whole}"
    if counted == 0:
        return "the unit's memory.events counted no OOM kill (oom_kill 0, read after the death)"
    before = timeline.last(HostMemory, before=first_sign_usec)
    after = timeline.first(HostMemory, after=run.ended_usec)
    if before and after and before.vmstat_oom_kill is not None and before.vmstat_oom_kill == after.vmstat_oom_kill:
        return "the kernel's counter of OOM kills (oom_kill in /proc/vmstat) did not move over the death"
    return None
