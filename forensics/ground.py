"""The state of the ground after a death, in up to three lines: was anything logged, does anything still run, what do
the GPUs hold. Pure.

The unit's own ExecStopPost looked, before the cgroup was gone; where it did not, the sampled facts say what they can.
"""

from collections.abc import Iterator

from forensics.causality import Ending
from forensics.events import GpuLeft, GpuMemory, GpuProcess, LeftOverProcess, LogStats, Remains

_GIB = 2**30


def ground(ending: Ending) -> tuple[str, ...]:
    """The lines; none of them guesses what nobody looked at."""
    remains = ending.timeline.last(Remains)
    return (_logged(ending, remains), *_running(ending, remains), *_graphics(ending, remains))


def _logged(ending: Ending, remains: Remains | None) -> str:
    logged = ending.timeline.first(LogStats)
    if logged is not None:
        seconds = max(0.0, (ending.run.ended_usec - logged.last_usec) / 1e6)
        return f"The server logged {logged.lines} lines, the last {seconds:.0f} s before the unit came to rest."
    if remains is not None and remains.last_log_usec is not None:
        seconds = max(0.0, (remains.record.realtime_usec - remains.last_log_usec) / 1e6)
        return f"The server's last line, {seconds:.0f} s before its end was looked at, is not among what was read."
    return "The server logged nothing."


def _running(ending: Ending, remains: Remains | None) -> Iterator[str]:
    found = {event.left_pid: event.comm for event in ending.timeline.all(LeftOverProcess)}
    for process in (remains.left if remains else None) or ():
        found[process.pid] = f"{process.comm}{_doing(process.state)}"
    if found:
        yield "Still there after its end: " + ", ".join(f"{words} ({pid})" for pid, words in found.items()) + "."
    elif remains is not None and remains.left is not None:
        yield "Nothing of the unit still runs."


def _doing(state: str) -> str:
    return {"D": ", waiting in the kernel", "T": ", stopped", "t": ", stopped"}.get(state, "")


def _graphics(ending: Ending, remains: Remains | None) -> Iterator[str]:
    """What NVML said after the death; an earlier reading says nothing about it."""
    if remains is not None and remains.gpus is not None:
        yield from map(_seen, remains.gpus)
        return
    last: dict[str, GpuMemory] = {}
    for gpu in ending.timeline.all(GpuMemory):
        if gpu.usec >= ending.run.ended_usec:
            last[gpu.uuid] = gpu
    if last:
        yield from map(_sampled, last.values())
    elif remains is not None:
        yield from (f"{said}." for said in remains.blind if said.startswith("GPUs:"))


def _seen(gpu: GpuLeft) -> str:
    uses = []
    for use in gpu.uses:
        whose = "left over " if use.left else ""
        where = f", {use.unit}" if use.unit and not use.left else ""
        uses.append(f"{whose}{use.comm} ({use.pid}{where}){_holding(use.used_bytes)}")
    return _gpu(gpu.index, gpu.performance_state, gpu.used_bytes, gpu.total_bytes, uses)


def _sampled(gpu: GpuMemory) -> str:
    def words(process: GpuProcess) -> str:
        return f"process {process.pid}{_holding(process.used_bytes)}"

    return _gpu(gpu.index, gpu.performance_state, gpu.used_bytes, gpu.total_bytes, [*map(words, gpu.processes)])


def _gpu(index: int, state: int | None, used: int | None, total: int | None, uses: list[str]) -> str:
    of = "" if total is None else f" of {total / _GIB:.1f}"
    held = "does not tell its memory" if used is None else f"holds {used / _GIB:.1f}{of} GiB"
    at = "" if state is None else f", P{state}"
    return f"GPU {index} {held}{at}: {'; '.join(uses) or 'no process'}."


def _holding(used: int | None) -> str:
    return "" if used is None else f" with {used / _GIB:.1f} GiB"
