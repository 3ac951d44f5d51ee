"""The state of the ground after a death, in up to three lines: was anything logged, does anything still run, what do
the GPUs hold. Pure.

The unit's own ExecStopPost looked, before the cgroup was gone; where it did not, the sampled facts say what they can.
"""

from collections.abc import Iterator

from forensics.causality import Ending
from forensics.events import GpuMemory, LeftOverProcess, LogStats, Remains

_GIB = 2**30


def ground(ending: Ending) -> tuple[str, ...]:
    """The lines; none of them guesses what nobody looked at."""
    remains = ending.timeline.last(Remains)
    if remains is not None and remains.ground:
        return remains.ground
    return (_logged(ending), *_running(ending, remains), *_graphics(ending))


def _logged(ending: Ending) -> str:
    logged = ending.timeline.first(LogStats)
    if logged is None:
        return "The server logged nothing."
    seconds = max(0.0, (ending.run.ended_usec - logged.last_usec) / 1e6)
    return f"The server logged {logged.lines} lines, the last {seconds:.0f} s before the unit came to rest."


def _running(ending: Ending, remains: Remains | None) -> Iterator[str]:
    left = [(event.left_pid, event.comm) for event in ending.timeline.all(LeftOverProcess)]
    if left:
        yield "Still running: " + ", ".join(f"{comm} ({pid})" for pid, comm in left) + "."
    elif remains is not None:
        pids = remains.left_pids
        yield f"Still running: processes {', '.join(map(str, pids))}." if pids else "Nothing of the unit still runs."


def _graphics(ending: Ending) -> Iterator[str]:
    """What NVML read after the death; an earlier reading says nothing about it."""
    last: dict[str, GpuMemory] = {}
    for gpu in ending.timeline.all(GpuMemory):
        if gpu.usec >= ending.run.ended_usec:
            last[gpu.uuid] = gpu
    if not last:
        return
    holders = [
        f"GPU {gpu.index}: process {process.pid} ({(process.used_bytes or 0) / _GIB:.1f} GiB)"
        for gpu in last.values()
        for process in gpu.processes
    ]
    yield f"Held on the GPUs: {', '.join(holders)}." if holders else "No process holds memory on the GPUs."
