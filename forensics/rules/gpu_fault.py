"""gpu-fault: the GPU's hardware, its link, or its firmware failed.

Signal:      a kernel record: an Xid that the catalogue calls hardware, or a GPU fallen off the bus, during the run.
Not this:    Xid 13, 31 (a kernel's own fault), 43, 45, 63 (consequences or news); another GPU's Xid long before.
Followed by: CUDA errors of every kind in every process on that GPU, NVML that hangs, SGLang's SIGKILL of itself.
"""

import re

from forensics.causality import LATE_KERNEL_USEC, Ending
from forensics.events import GpuLost, GpuMemory, Xid
from forensics.failure import finding, search
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.xid_catalog import CATALOG, Kind

_IN_LOG = re.compile(
    r"uncorrectable ECC error|uncorrectable NVLink error|GPU is lost|fallen off the bus", re.IGNORECASE
)
_NEAR_USEC = 120_000_000


def match(ending: Ending) -> Finding | NotThis | None:
    faults = [event for event in ending.timeline.events if _is_fault(event) and _near_death(ending, event)]
    if not faults:
        if found := search(_IN_LOG, ending.failure):
            assert ending.failure is not None
            return finding(
                ending,
                ending.failure,
                summary=f"A GPU reported a hardware error: {found[0]}.",
                subclass="reported-by-cuda",
                key=(found[0].lower(),),
            )
        covered = ending.timeline.covers("kernel")
        return NotThis(why="no Xid of the hardware kind in the kernel log") if covered else None
    first = faults[0]
    ours = _names_us(ending, first)
    if not ours and ending.failure is None and ending.echo is None and ending.run.exit_code == "exited":
        return None
    name = f"Xid {first.xid} ({CATALOG[first.xid].mnemonic})" if isinstance(first, Xid) else "fallen off the bus"
    gpu = first.pci_bus_id if isinstance(first, Xid | GpuLost) else None
    return Finding(
        strength=Strength.CONFIRMED if ours else Strength.LIKELY,
        summary=f"GPU {gpu or '(unnamed)'} failed: {name}. "
        "This is the hardware, its link or its firmware, not the model.",
        subclass=f"xid-{first.xid}" if isinstance(first, Xid) else "fallen-off-the-bus",
        evidence=(
            Evidence(role=Role.INITIATING, event=first, why="the driver's own record"),
            *(Evidence(role=Role.CASCADE, event=event, why="the same GPU trouble") for event in faults[1:4]),
            *ending.aftermath(first),
        ),
        key=(f"xid-{first.xid}" if isinstance(first, Xid) else "lost",),
    )


def _is_fault(event: object) -> bool:
    if isinstance(event, Xid):
        entry = CATALOG.get(event.xid)
        return entry is not None and entry.kind is Kind.HARDWARE
    return isinstance(event, GpuLost)


def _near_death(ending: Ending, event: object) -> bool:
    assert isinstance(event, Xid | GpuLost)
    first_sign = ending.failures[0].usec if ending.failures else ending.run.ended_usec
    return first_sign - _NEAR_USEC <= event.usec <= ending.run.ended_usec + LATE_KERNEL_USEC


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
