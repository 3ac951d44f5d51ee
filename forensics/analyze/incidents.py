"""Kernel records alone: somebody was killed or a GPU failed, and no log of a server stands beside them.

Each incident becomes a run of the process that the records name, so that the same rules judge it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forensics.analyze.stamps import when
from forensics.events import DriverNoMemory, Event, GpuLost, OomKill, OomVictim, Xid
from forensics.model import Evidence, Family, Finding, Role, Run, Strength
from forensics.rules import Rule
from forensics.timeline import Timeline
from forensics.xid_catalog import CATALOG, Kind

_TOGETHER_USEC = 90_000_000
_XIDS_TOGETHER_USEC = 600_000_000


@dataclass(frozen=True, slots=True)
class Incident:
    run: Run
    timeline: Timeline
    rules: tuple[Rule, ...] | None = None


def incidents(events: Iterable[Event], only: str | None) -> Iterator[Incident]:
    """Kernel records → one incident for those that belong together."""
    kills: list[Event] = []
    faults: list[Event] = []
    for event in events:
        (kills if isinstance(event, OomKill | OomVictim) else faults).append(event)
    for group in _groups(kills, _TOGETHER_USEC):
        if (found := _oom(group, only)) is not None:
            yield found
    for group in _groups(faults, _XIDS_TOGETHER_USEC):
        if only is None and (found := _gpu(group)) is not None:
            yield found


def _groups(events: list[Event], within_usec: int) -> Iterator[list[Event]]:
    group: list[Event] = []
    for event in sorted(events, key=lambda event: (event.record.boot_id, event.usec)):
        if group and (event.record.boot_id != group[-1].record.boot_id or event.usec - group[-1].usec > within_usec):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def _oom(group: list[Event], only: str | None) -> Incident | None:
    cgroup = next((e.task_memcg for e in group if isinstance(e, OomKill) and e.task_memcg), "")
    victims = {e.victim_pid: e.task for e in group if isinstance(e, OomVictim)}
    chosen = {e.oom_victim_pid: e.task for e in group if isinstance(e, OomKill) and e.oom_victim_pid is not None}
    pids = dict.fromkeys((*chosen, *victims), "")
    if not pids:
        return None
    unit = next((part for part in reversed(cgroup.split("/")) if part.endswith((".service", ".scope"))), "")
    if only is not None and unit != only:
        return None
    first = next(iter(chosen or victims))
    comm = {**chosen, **victims}[first]
    return Incident(_run(unit or comm, cgroup, first, pids, group), Timeline.of(group, (), {"kernel"}))


def _gpu(group: list[Event]) -> Incident | None:
    pids = {e.xid_pid: "" for e in group if isinstance(e, Xid) and e.xid_pid is not None}
    hardware = any(isinstance(e, GpuLost) or (isinstance(e, Xid) and _kind(e) is Kind.HARDWARE) for e in group)
    own = [e for e in group if isinstance(e, Xid) and _kind(e) is Kind.APPLICATION]
    name = next((e.name for e in group if isinstance(e, Xid) and e.name), "")
    run = _run(name or "gpu", "", next(iter(pids), None), pids, group)
    timeline = Timeline.of(group, (), {"kernel"})
    if hardware:
        return Incident(run, timeline, (Rule("gpu-fault", Family.CUDA, lambda _: _hardware_finding(group)),))
    if own:
        return Incident(run, timeline, (Rule("cuda-error", Family.CUDA, lambda _: _xid_finding(own)),))
    starved = [e for e in group if isinstance(e, DriverNoMemory)]
    if starved:
        return Incident(run, timeline, (Rule("unknown", Family.UNKNOWN, lambda _: _starved(starved)),))
    return None


def _kind(xid: Xid) -> Kind | None:
    entry = CATALOG.get(xid.xid)
    return entry.kind if entry is not None else None


def _run(unit: str, cgroup: str, pid: int | None, pids: dict[int, str], group: list[Event]) -> Run:
    first, last = group[0], group[-1]
    killed = any(isinstance(event, OomKill | OomVictim) for event in group)
    return Run(
        unit=unit,
        invocation_id=f"kernel:{first.record.ref}",
        boot_id=first.record.boot_id,
        control_group=cgroup,
        main_pid=pid,
        pids=dict(pids),
        started_usec=first.usec,
        ended_usec=last.usec,
        died_at=when(first.record.realtime_usec),
        result=None,
        exit_code="killed" if killed else None,
        exit_status=9 if killed else None,
    )


def _hardware_finding(group: list[Event]) -> Finding:
    faults = [e for e in group if isinstance(e, GpuLost) or (isinstance(e, Xid) and _kind(e) is Kind.HARDWARE)]
    first = faults[0]
    lost = isinstance(first, GpuLost) or (isinstance(first, Xid) and first.xid == 79)
    name = "it fell off the bus" if lost else ""
    if isinstance(first, Xid) and not lost:
        name = f"Xid {first.xid} ({CATALOG[first.xid].mnemonic})"
    gpu = getattr(first, "pci_bus_id", None) or "(unnamed)"
    subclass = f"xid-{first.xid}" if isinstance(first, Xid) else "fallen-off-the-bus"
    return Finding(
        strength=Strength.LIKELY,
        summary=f"GPU {gpu} failed: {name}. This is the hardware, its link or its firmware, not a program.",
        subclass=subclass,
        evidence=(
            Evidence(role=Role.INITIATING, event=first, why="the driver's own record"),
            *(Evidence(role=Role.CASCADE, event=e, why="the same GPU trouble") for e in faults[1:5]),
        ),
        key=(subclass,),
    )


def _xid_finding(xids: list[Xid]) -> Finding:
    first = xids[0]
    mnemonic = CATALOG[first.xid].mnemonic
    whose = f"process {first.xid_pid}{f' ({first.name})' if first.name else ''}" if first.xid_pid else "a process"
    return Finding(
        strength=Strength.LIKELY,
        summary=f"The driver stopped a kernel of {whose} on GPU {first.pci_bus_id}: Xid {first.xid} ({mnemonic}), "
        "a fault of the program, most often an address out of bounds.",
        subclass=f"xid-{first.xid}",
        evidence=(
            Evidence(role=Role.INITIATING, event=first, why="the driver's own record"),
            *(Evidence(role=Role.CASCADE, event=xid, why="what followed") for xid in xids[1:5]),
        ),
        key=(f"xid-{first.xid}",),
        notes=("Whether the process ended of it, and what it said, is in its own log.",),
    )


def _starved(starved: list[DriverNoMemory]) -> Finding:
    return Finding(
        strength=Strength.LIKELY,
        summary="The driver could not get host memory. On a machine whose GPU shares the host's memory this precedes a "
        "wedge of the whole machine; whether it went down is told by the next boot (`journalctl --list-boots`, and "
        "`journalctl -b -1 -e`).",
        subclass="driver-out-of-host-memory",
        evidence=(Evidence(role=Role.CONTEXT, event=starved[0], why="the driver was out of host memory"),),
        key=("driver-out-of-host-memory",),
    )
