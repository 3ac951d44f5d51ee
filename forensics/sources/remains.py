"""The record that the unit's ExecStopPost= writes before systemd removes the cgroup, and with it the OOM counters."""

from forensics.entry import Entry
from forensics.events import CgroupMemory, Event, Remains

SOURCE = "remains"

# The same as service.remains.MESSAGE_ID; nothing here imports the service, and a test holds the two together.
MESSAGE_ID = "9be21e5d0ed4410f859f6bc35d9b4b7a"


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
        left_pids=_left_pids(entry.get("INQUEST_CGROUP_PROCESSES")),
        ground=tuple(filter(None, entry.get("INQUEST_GROUND").splitlines())),
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


def _left_pids(text: str) -> tuple[int, ...]:
    """`pid comm`, a line each."""
    firsts = (line.split(" ", 1)[0] for line in text.splitlines())
    return tuple(int(pid) for pid in firsts if pid.isdecimal())
