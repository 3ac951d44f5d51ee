"""gpu-fault: the GPU's hardware, its link, or its firmware failed.

Signal:      a kernel record: an Xid that the catalogue calls hardware, or a GPU fallen off the bus, during the run.
Not this:    Xid 13, 31 (a kernel's own fault), 43, 45, 63 (consequences or news); another GPU's Xid long before.
Followed by: CUDA errors of every kind in every process on that GPU, NVML that hangs, SGLang's SIGKILL of itself.
Needs:       the kernel's log: without it there is no Xid, and the CUDA errors that follow are all that is seen.
To do:       what the catalogue says for this Xid: reset (`nvidia-smi --gpu-reset`) or replace the GPU, look at its
             power and its seat, or, where the fault was contained, just restart the server.
"""

import re
from collections.abc import Iterator

from forensics.causality import LATE_KERNEL_USEC, Ending, Failure
from forensics.events import Event, FatalPythonError, GpuLost, GpuMemory, NativeAbort, ServerError, Xid
from forensics.failure import CUDA, finding, search_machine
from forensics.fatality import speaks_of_peers
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.oom import survived
from forensics.xid_catalog import CATALOG, RECOVERY, Kind, kind

_IN_LOG = re.compile(
    r"uncorrectable ECC error|uncorrectable NVLink error|GPU is lost|fallen off the bus", re.IGNORECASE
)
_NEAR_USEC = 120_000_000
_HANGING_USEC = 1_800_000_000


def match(ending: Ending) -> Finding | NotThis | None:
    if ending.stop is not None and ending.failure is None:
        return None
    seen = [event for event in ending.timeline.events if _is_fault(event) and _before_the_end(ending, event)]
    failure, faults = ending.failure, suspects(ending)
    if not faults or not (failure is None or _fits(failure)):
        if found := _reported(failure):
            assert failure is not None
            return finding(
                ending,
                failure,
                summary=f"A GPU reported a hardware error: {found}.",
                subclass="reported-by-cuda",
                key=(found.lower(),),
            )
        words = "an error of the GPU's hardware was recorded, but the failure that began it is of another kind"
        covered = ending.covers("kernel")
        return NotThis(why=words if seen else "no Xid of the hardware kind in the kernel log") if covered else None
    first = next((event for event in faults if _names_us(ending, event)), faults[0])
    ours = _names_us(ending, first)
    number = _number(first) if isinstance(first, Xid) else None
    name = f"Xid {number} ({CATALOG[number].mnemonic})" if number is not None else "fallen off the bus"
    gpu = first.pci_bus_id if isinstance(first, Xid | GpuLost) else None
    notes = () if ours else ("The driver's record names no process of this run, and which GPUs it used is not known.",)
    return Finding(
        strength=Strength.CONFIRMED if ours else Strength.LIKELY,
        summary=f"GPU {gpu or '(unnamed)'} failed: {name}. "
        "This is the hardware, its link or its firmware, not the model.",
        subclass="fallen-off-the-bus" if number is None else f"xid-{number}",
        evidence=(
            Evidence(role=Role.INITIATING, event=first, why="the driver's own record"),
            *_asked_for(ending, first),
            *(Evidence(role=Role.CASCADE, event=e, why="the same GPU trouble") for e in faults if e is not first),
            *ending.aftermath(first),
        )[:12],
        key=("lost" if number is None else f"xid-{number}",),
        notes=notes,
    )


def _asked_for(ending: Ending, first: Event) -> Iterator[Evidence]:
    """The driver's word on what the GPU needs now; the last one counts."""
    bus = _bus(getattr(first, "pci_bus_id", None))
    said = [xid for xid in ending.timeline.all(Xid) if xid.xid == RECOVERY and _bus(xid.pci_bus_id) == bus]
    if said and said[-1].usec >= first.usec - LATE_KERNEL_USEC:
        yield Evidence(role=Role.CONTEXT, event=said[-1], why="what the driver says the GPU needs now")


def names_us(ending: Ending) -> bool:
    """Whether a record of broken hardware before the end names a process or a GPU of ours."""
    return any(_names_us(ending, event) for event in suspects(ending))


def suspects(ending: Ending) -> list[Event]:
    """The records of broken hardware that may have begun it: those that name us, and, where the failure is of a fitting
    kind, those that name nobody else."""
    near = [event for event in ending.timeline.events if _is_fault(event) and _before_the_end(ending, event)]
    fits = _fits(ending.failure)
    return [event for event in near if _names_us(ending, event) or (fits and not _others(ending, event))]


def _is_fault(event: object) -> bool:
    if isinstance(event, Xid):
        return kind(_number(event), event.record.message) is Kind.HARDWARE
    return isinstance(event, GpuLost)


def _number(xid: Xid) -> int:
    """The Xid that counts: a removal of channels names the one that brought it about."""
    return xid.xid if xid.caused_by_xid is None else xid.caused_by_xid


def _before_the_end(ending: Ending, event: Event) -> bool:
    """Not long before the first sign of the end, and not after it: a dying process brings about Xids of its own. A
    process of ours that never worked again after it hung in the driver until a watchdog fired."""
    reach = _HANGING_USEC if _names_us(ending, event) and not survived(ending.timeline, event.usec) else _NEAR_USEC
    return ending.first_sign_usec - reach <= event.usec <= ending.first_sign_usec + LATE_KERNEL_USEC


def _fits(failure: Failure | None) -> bool:
    """Whether a failure is of a kind that a broken GPU brings about."""
    if isinstance(failure, FatalPythonError | NativeAbort):
        return True
    if isinstance(failure, ServerError):
        return failure.name != "usage-error"
    return (
        failure is not None
        and (search_machine(CUDA, failure) or speaks_of_peers(failure) or _reported(failure)) is not None
    )


def _reported(failure: Failure | None) -> str | None:
    found = search_machine(CUDA, failure)
    words = _IN_LOG.search(found.string[found.start() :]) if found else None
    return words[0] if words else None


def _others(ending: Ending, event: Event) -> bool:
    """Whether the record is about a process or a GPU that is not ours."""
    if isinstance(event, Xid) and event.xid_pid is not None:
        # `_names_us` knows ours, but behind a pipe or in a container no scheduler is known by its number.
        anonymous = "scheduler" not in ending.run.pids.values()
        return not (anonymous and (event.name or "").startswith("sglang::"))
    gpus = [gpu for gpu in ending.timeline.all(GpuMemory) if any(ending.run.owns_pid(p.pid) for p in gpu.processes)]
    return bool(gpus)


def _names_us(ending: Ending, event: object) -> bool:
    """Whether the record names a process of ours, or a GPU on which NVML saw one."""
    if isinstance(event, Xid) and ending.run.owns_pid(event.xid_pid):
        return True
    bus = _bus(getattr(event, "pci_bus_id", None))
    return bool(bus) and any(
        _bus(gpu.pci_bus_id) == bus and any(ending.run.owns_pid(process.pid) for process in gpu.processes)
        for gpu in ending.timeline.all(GpuMemory)
    )


def _bus(pci_bus_id: str | None) -> str:
    """`00000000:17:00.0` and `0000:17:00` name the same device."""
    return ":".join((pci_bus_id or "").lower().split(".")[0].split(":")[-2:])
