"""A story told and judged at once: what a test of a rule begins with."""

from collections.abc import Callable, Iterable
from io import BytesIO

from forensics.events import CgroupMemory, Event, Gap, GpuMemory, HostMemory, Record, UnitState
from forensics.model import Verdict
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.replay import Judged, judge
from tests.cases.story import Journal, Life

Story = Callable[[Journal, Life], object]
SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"


def verdict_on(journal: Journal, life: Life, sampled: Iterable[Event] = ()) -> Judged:
    """The last judgement on one life of a journal. `sampled` are facts that the daemon took while it lived."""
    tracker = Tracker((life.unit,))
    for entry in read_json(BytesIO(journal.dump().encode())):
        tracker.feed(entry)
    tracker.add(life.invocation_id, sampled)
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in journal.gaps]
    return judge(tracker, life.invocation_id, gaps)


def told(story: Story, name: str = "") -> Verdict:
    """The verdict on the one life of a story."""
    journal = Journal(name=name or story.__qualname__)
    life = journal.life()
    story(journal, life)
    return verdict_on(journal, life).verdict


def sampled(life: Life, source: str) -> Record:
    """Where a fact stands that the daemon takes now."""
    at = life.journal.usec
    return Record(
        source=source, ref=source, boot_id=life.journal.boot_id, monotonic_usec=at, realtime_usec=at, message=""
    )


def memory_of(life: Life, **figures: int | None) -> CgroupMemory:
    """What the files of the unit's memory cgroup say now; None where a file is absent."""
    names = ("current_bytes", "peak_bytes", "max_bytes", "swap_current_bytes", "oom", "oom_kill")
    return CgroupMemory(record=sampled(life, "cgroup"), **{name: figures.get(name) for name in names})


def memory_of_host(life: Life, available_bytes: int, oom_kill: int | None = 0) -> HostMemory:
    return HostMemory(
        record=sampled(life, "host"), total_bytes=2**37, available_bytes=available_bytes, swap_free_bytes=0,
        vmstat_oom_kill=oom_kill,
    )  # fmt: skip


def unit_state(life: Life, **settings: object) -> UnitState:
    """PID 1's properties of the unit while it lived."""
    given: dict[str, object] = {
        "active_state": "active", "sub_state": "running", "result": "success", "exec_main_pid": life.main,
        "exec_main_code": 0, "exec_main_status": 0, "n_restarts": 0, "control_group": life.cgroup,
        "timeout_stop_usec": 90_000_000, "memory_max_bytes": 2**34, "oom_policy": "stop", "restart": "on-failure",
        "restart_usec": 5_000_000,
    }  # fmt: skip
    return UnitState(record=sampled(life, "unit"), **(given | settings))  # type: ignore[arg-type] - by name


def unified_gpu(life: Life) -> GpuMemory:
    """NVML on a machine whose GPU has no memory of its own: NotSupported."""
    return GpuMemory(
        record=sampled(life, "gpu"), uuid="GPU-1", index=0, name="NVIDIA GB10", pci_bus_id="000F:01:00.0",
        total_bytes=None, used_bytes=None, processes=(),
    )  # fmt: skip
