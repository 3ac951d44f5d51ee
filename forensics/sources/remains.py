"""The record that the unit's ExecStopPost= writes before systemd removes the cgroup, and with it the OOM counters."""

from collections.abc import Iterator

from forensics.entry import Entry
from forensics.events import CgroupMemory, Event, GpuLeft, GpuUse, LeftProcess, Remains

SOURCE = "remains"

# The same as service.remains.MESSAGE_ID; nothing here imports the service, and a test holds the two together.
MESSAGE_ID = "9be21e5d0ed4410f859f6bc35d9b4b7a"

_MOST_LINES = 256


def parse(entry: Entry) -> Event | None:
    """What remained of the run, believed because root wrote it (`_UID`, which the kernel sets); None for the rest."""
    if entry.get("MESSAGE_ID") != MESSAGE_ID or entry.get("_UID") != "0":
        return None
    return Remains(
        record=entry.record(SOURCE),
        service_result=entry.get("INQUEST_SERVICE_RESULT"),
        exit_code=entry.get("INQUEST_EXIT_CODE"),
        exit_status=entry.get("INQUEST_EXIT_STATUS"),
        memory=_memory(entry),
        left=tuple(_left(entry)) if "INQUEST_LEFT_PROCESSES" in entry.fields else None,
        gpus=tuple(_gpus(entry)) if "INQUEST_GPUS" in entry.fields else None,
        last_log_usec=entry.get_int("INQUEST_LAST_LOG_USEC"),
        blind=tuple(filter(None, entry.get("INQUEST_GAPS").split("; "))),
    )


def _memory(entry: Entry) -> CgroupMemory | None:
    """The figures of cgroup v2 under its files' names, or those of v1; None when there was no memory controller."""

    def first(*names: str) -> int | None:
        return next((found for name in names if (found := entry.get_int(f"INQUEST_MEMORY_{name}")) is not None), None)

    memory = CgroupMemory(
        record=entry.record(SOURCE),
        current_bytes=first("CURRENT", "USAGE_IN_BYTES"),
        peak_bytes=first("PEAK", "MAX_USAGE_IN_BYTES"),
        max_bytes=first("MAX", "LIMIT_IN_BYTES"),
        swap_current_bytes=first("SWAP_CURRENT"),
        oom=first("EVENTS_OOM", "FAILCNT"),
        oom_kill=first("EVENTS_OOM_KILL", "OOM_CONTROL_OOM_KILL"),
    )
    figures = (memory.current_bytes, memory.peak_bytes, memory.max_bytes, memory.oom_kill)
    return None if all(figure is None for figure in figures) else memory


def _left(entry: Entry) -> Iterator[LeftProcess]:
    """`pid start_ticks state comm`, a line each."""
    for pid, ticks, state, comm in _table(entry.get("INQUEST_LEFT_PROCESSES"), 4):
        if (number := _number(pid)) is not None:
            yield LeftProcess(pid=number, start_ticks=_number(ticks) or 0, state=state, comm=comm)


def _gpus(entry: Entry) -> Iterator[GpuLeft]:
    """`index uuid pstate used total`, a line each; `?` for what NVML does not say."""
    uses = list(_table(entry.get("INQUEST_GPU_PROCESSES"), 5))
    for index, uuid, pstate, used, total in _table(entry.get("INQUEST_GPUS"), 5):
        if (number := _number(index)) is not None:
            yield GpuLeft(
                index=number,
                uuid=uuid,
                performance_state=_number(pstate),
                used_bytes=_number(used),
                total_bytes=_number(total),
                uses=tuple(_use(*row) for row in uses if row[0] == index),
            )


def _use(_: str, pid: str, used: str, whose: str, rest: str) -> GpuUse:
    """`index pid used left|other comm unit`: the unit comes last, where there is one; a name can hold spaces."""
    comm, _, unit = rest.rpartition(" ")
    if not unit.endswith((".service", ".scope")):
        comm, unit = rest, ""
    return GpuUse(pid=_number(pid) or 0, used_bytes=_number(used), left=whose == "left", comm=comm, unit=unit)


def _table(text: str, columns: int) -> Iterator[list[str]]:
    """Rows of so many words, the last of which may hold spaces; what is cut off is left out."""
    for line in text.splitlines()[:_MOST_LINES]:
        words = line.split(" ", columns - 1)
        if len(words) == columns:
            yield words


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 else None
