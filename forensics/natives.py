"""Crashes in native code that a run died of, as systemd-coredump and the kernel saw them. Pure.

`stop_usec` is from when on a stop was under way, None without one: a child that crashes then took nothing with it.
"""

from forensics.events import ChildDied, CoreDump, Event, Segfault
from forensics.model import Run
from forensics.oom import survived
from forensics.timeline import Timeline

_VITAL = ("scheduler", "detokenizer", "controller", "tokenizer", "child")


def core_dump(run: Run, timeline: Timeline, stop_usec: int | None) -> CoreDump | None:
    """A core of a process that the run died of; the record may come minutes after the end."""
    cores = (core for core in timeline.all(CoreDump) if core.unit == run.unit or run.owns_pid(core.coredump_pid))
    return next(
        (core for core in cores if _fell_with(run, timeline, stop_usec, core, core.coredump_pid, core.comm)), None
    )


def segfault(run: Run, timeline: Timeline, stop_usec: int | None) -> Segfault | None:
    """The kernel's record of the fault of a process that the run died of."""
    faults = (fault for fault in timeline.all(Segfault) if run.owns_pid(fault.fault_pid))
    return next(
        (fault for fault in faults if _fell_with(run, timeline, stop_usec, fault, fault.fault_pid, fault.comm)), None
    )


def _fell_with(run: Run, timeline: Timeline, stop_usec: int | None, event: Event, pid: int, comm: str) -> bool:
    """Whether a process that crashed took the run with it: main, or a child without which nothing works on."""
    if pid == run.main_pid:
        return run.exit_code != "exited"
    if stop_usec is not None and event.usec >= stop_usec:
        return False
    known = comm.startswith("sglang::") or run.pids.get(pid, "") in _VITAL
    told = any(died.child_pid == pid for died in timeline.all(ChildDied))
    return (known or told) and not survived(timeline, event.usec)
