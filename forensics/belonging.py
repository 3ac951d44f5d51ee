"""Whose is it? Which run a record of the kernel, of PID 1 or of another witness may be about. Pure."""

from forensics.entry import Entry
from forensics.events import CoreDump, Event, Gap, OomKill, UserspaceOomKill
from forensics.model import RunRecord
from forensics.sources import sigtrace

LINGER_USEC = 300_000_000
"""How long a run at rest is still open for late evidence: the core dump of a large process takes minutes."""

KERNEL_LATE_USEC = 1_000_000
"""The kernel's clock lags behind: its records can seem older than they are."""

_NAMED = ("victim_pid", "oom_victim_pid", "xid_pid", "fault_pid", "coredump_pid")


def names_process_of(event: Event, record: RunRecord) -> bool:
    """Whether a record names a process of this run: then it is the run's, whatever its clock says."""
    named = next((pid for name in _NAMED if (pid := getattr(event, name, None)) is not None), None)
    return named is not None and named in record.pids


def units_of(event: Event) -> set[str]:
    """The units that a record of a kill names, which is more than a pid."""
    if isinstance(event, OomKill):
        return set((event.task_memcg or "").split("/"))
    return {event.unit or ""} if isinstance(event, UserspaceOomKill) else set()


def core_is_of(core: CoreDump, record: RunRecord) -> bool:
    return core.unit == record.unit and (
        core.coredump_pid in record.pids or record.ended_usec is None or not record.pids
    )


def signal_is_of(entry: Entry, event: Event, record: RunRecord) -> bool:
    """Whether a record of the tracer is about this run: it names the receiver's invocation, or at least its unit."""
    unit, invocation_id = sigtrace.target(entry)
    if invocation_id:
        return invocation_id == record.invocation_id
    if unit:
        return unit == record.unit
    return record.ended_usec is None or event.usec <= record.ended_usec


def lost_before_end(gap: Gap, record: RunRecord) -> bool:
    """Whether what was lost may have been written before this run's end."""
    ended = record.ended_usec or 0
    if gap.from_usec is not None:
        return gap.from_usec <= ended
    reach = LINGER_USEC if gap.source == "server" else KERNEL_LATE_USEC
    return gap.to_usec is None or gap.to_usec <= ended + reach
