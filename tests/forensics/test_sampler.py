"""The sampler over stand-ins for the bus and the GPUs; the host, and this process as a server, are the real ones."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from forensics.errors import SourceError
from forensics.events import CgroupMemory, Event, GpuMemory, HostMemory, ProcessTree, UnitState
from forensics.sampler import Ring, Sampler
from forensics.sources import cgroup, process
from forensics.sources.clock import sampled_now
from forensics.sources.gpu import GpuProbe
from forensics.sources.unit import LiveUnit, UnitBus
from tests.forensics.factories import open_run, record

FIRST, SECOND = "1c" * 16, "2c" * 16
GROUP = "/sglang.slice/sglang-demo.service"


def live(invocation_id: str = FIRST, unit: str = "sglang-demo.service", active: str = "active") -> LiveUnit:
    return LiveUnit(
        unit=unit, invocation_id=invocation_id, active_state=active, sub_state="running", path=f"/unit/{unit}"
    )


class StandInBus(UnitBus):
    """PID 1 with these units."""

    def __init__(self, *units: LiveUnit) -> None:
        super().__init__()
        self.units, self.silent, self.calls = list(units), False, 0

    def live_units(self, globs: Sequence[str]) -> list[LiveUnit]:
        self.calls += 1
        if self.silent:
            raise SourceError("unit", "bus-silent", "systemd does not answer over D-Bus")
        return list(self.units)

    def sample(self, live: LiveUnit) -> UnitState | None:
        if live not in self.units:
            return None
        return UnitState(
            record=sampled_now("unit", f"dbus {live.path}", ""),
            active_state=live.active_state,
            sub_state=live.sub_state,
            result="success",
            exec_main_pid=os.getpid(),
            exec_main_code=0,
            exec_main_status=0,
            n_restarts=0,
            control_group=GROUP,
            timeout_stop_usec=None,
            memory_max_bytes=None,
            oom_policy="stop",
        )


class StandInGpu(GpuProbe):
    """NVML with one GPU, or with this error."""

    error: Exception | None = None

    def sample(self) -> tuple[Event, ...] | None:
        if self.error is not None:
            raise self.error
        seen = GpuMemory(
            record=sampled_now("gpu", "NVML GPU-1", ""),
            uuid="GPU-1",
            index=0,
            name="H200",
            pci_bus_id="0000:c1:00.0",
            total_bytes=100,
            used_bytes=50,
            processes=(),
        )
        return (seen,)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup tree in which this very process is the server."""
    folder = tmp_path / GROUP[1:]
    folder.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (folder / "memory.current").write_text("4096\n")
    for function in (cgroup.sample, process.sample):
        keywords = function.__kwdefaults__ or {}
        if "mount" in keywords:
            monkeypatch.setitem(keywords, "mount", tmp_path)
    monkeypatch.setattr(cgroup.sample, "__defaults__", (tmp_path,))
    return tmp_path


def sampler(bus: StandInBus, gpu: StandInGpu | None = None, clock: Clock | None = None) -> Sampler:
    return Sampler(["sglang-*.service"], 2.0, bus=bus, gpu=gpu or StandInGpu(), clock=clock or Clock())


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_living_unit_is_looked_at_from_every_side() -> None:
    sampled = sampler(StandInBus(live()))
    sampled.sample_now()
    events, gaps = sampled.take(FIRST)
    assert gaps == []
    assert set(kinds(events)) == {"unit-state", "cgroup-memory", "process-tree", "host-memory", "gpu-memory"}
    tree = next(event for event in events if isinstance(event, ProcessTree))
    assert (tree.main_pid, [each.pid for each in tree.processes]) == (os.getpid(), [os.getpid()])
    memory = next(event for event in events if isinstance(event, CgroupMemory))
    assert memory.current_bytes == 4096
    assert [event.usec for event in events] == sorted(event.usec for event in events)
    sampled.close()


def test_what_was_taken_is_not_given_twice_but_the_host_is_looked_at_again() -> None:
    sampled = sampler(StandInBus(live()))
    sampled.sample_now()
    before = [event for event in sampled.take(FIRST)[0] if isinstance(event, HostMemory)]
    after, _ = sampled.take(FIRST)
    assert kinds(after) == ["host-memory", "unit-state"]
    assert len(before) == 2
    assert after[0].usec > before[-1].usec
    sampled.close()


def test_samples_of_two_runs_are_told_apart(mount: Path) -> None:
    bus = StandInBus(live())
    sampled = sampler(bus)
    sampled.sample_now()
    bus.units = [live(SECOND)]
    sampled.sample_now()
    first, second = sampled.take(FIRST)[0], sampled.take(SECOND)[0]
    assert kinds(first).count("cgroup-memory") == kinds(second).count("cgroup-memory") == 1
    # The first run's state is not believed any more: the invocation is another one.
    assert kinds(first).count("unit-state") == 1
    assert {event.usec for event in first}.isdisjoint(event.usec for event in second)
    sampled.close()


def test_a_failed_unit_s_state_is_read_once_and_its_cgroup_no_more() -> None:
    bus = StandInBus(live())
    sampled = sampler(bus)
    sampled.sample_now()
    bus.units = [live(active="failed")]
    for _ in range(3):
        sampled.sample_now()
    events, _ = sampled.take(FIRST)
    states = [event.active_state for event in events if isinstance(event, UnitState)]
    assert states == ["active", "failed", "failed"]  # the last one is of `take`
    assert kinds(events).count("cgroup-memory") == 1
    sampled.close()


def test_it_samples_when_it_is_time(clock: Clock) -> None:
    bus = StandInBus(live())
    sampled = sampler(bus, clock=clock)
    sampled.tick()
    sampled.tick()
    assert (bus.calls, sampled.seconds_to_next()) == (1, 2.0)
    clock.now += 1.5
    sampled.tick()
    assert (bus.calls, sampled.seconds_to_next()) == (1, 0.5)
    clock.now += 1.0
    sampled.tick()
    assert bus.calls == 2
    sampled.close()


def test_one_broken_source_costs_a_gap_and_the_others_go_on(mount: Path) -> None:
    gpu = StandInGpu()
    sampled = sampler(StandInBus(live()), gpu)
    gpu.error = SourceError("gpu", "nvml-silent", "NVML gave no answer in 5 s: a GPU or its driver hangs")
    (mount / GROUP[1:] / "memory.current").unlink()
    sampled.sample_now()
    sampled.sample_now()
    assert {gap.source for gap in sampled.blind()} == {"gpu", "cgroup"}
    events, gaps = sampled.take(FIRST)
    assert {"process-tree", "host-memory", "unit-state"} <= set(kinds(events))
    by_source = {gap.source: gap for gap in gaps}
    assert by_source["gpu"].reason.startswith("NVML gave no answer in 5 s")
    assert "no memory controller" in by_source["cgroup"].reason
    assert by_source["gpu"].from_usec is not None
    assert by_source["gpu"].to_usec is None
    sampled.close()


def test_an_unforeseen_error_is_a_gap_too() -> None:
    gpu = StandInGpu()
    gpu.error = ZeroDivisionError("division by zero")
    sampled = sampler(StandInBus(live()), gpu)
    sampled.sample_now()
    assert [gap.reason for gap in sampled.blind()] == ["ZeroDivisionError: division by zero"]
    sampled.close()


def test_a_source_that_sees_again_leaves_a_closed_gap() -> None:
    gpu = StandInGpu()
    sampled = sampler(StandInBus(live()), gpu)
    gpu.error = SourceError("gpu", "x", "broken")
    sampled.sample_now()
    gpu.error = None
    sampled.sample_now()
    assert sampled.blind() == ()
    (gap,) = sampled.take(FIRST)[1]
    assert gap.from_usec is not None
    assert gap.to_usec is not None
    assert gap.from_usec < gap.to_usec
    sampled.close()


def test_a_gap_that_closed_before_the_run_is_not_the_run_s() -> None:
    gpu, bus = StandInGpu(), StandInBus(live())
    sampled = sampler(bus, gpu)
    gpu.error = SourceError("gpu", "x", "broken")
    sampled.sample_now()
    gpu.error = None
    sampled.sample_now()
    bus.units = [live(SECOND)]
    sampled.sample_now()
    assert sampled.take(SECOND)[1] == []
    sampled.close()


def test_without_d_bus_the_runs_of_the_journal_are_sampled(clock: Clock) -> None:
    bus = StandInBus()
    bus.silent = True
    sampled = sampler(bus, clock=clock)
    run = open_run(7)
    run.control_group = GROUP
    sampled.sample_now([run])
    sampled.sample_now([run])
    assert bus.calls == 1, "a bus that hangs is not asked at every sample"
    events, gaps = sampled.take(run.invocation_id)
    assert kinds(events).count("cgroup-memory") == 2
    assert {"process-tree", "host-memory", "gpu-memory"} <= set(kinds(events))
    assert [gap.source for gap in gaps] == ["unit"]
    clock.now += 61
    bus.silent, bus.units = False, [live()]
    sampled.sample_now([run])
    assert sampled.blind() == ()
    sampled.close()


def test_nothing_is_looked_at_while_no_unit_lives() -> None:
    gpu = StandInGpu()
    gpu.error = AssertionError("the GPUs were looked at")
    sampled = sampler(StandInBus(), gpu)
    sampled.sample_now()
    assert sampled.blind() == ()
    sampled.close()


def test_a_run_that_nobody_saw_has_no_samples() -> None:
    sampled = sampler(StandInBus())
    assert sampled.take(FIRST) == ([], [])
    sampled.close()


def series(seconds: range) -> list[Event]:
    return [
        HostMemory(
            record=record(usec=second * 1_000_000, source="host"),
            total_bytes=2,
            available_bytes=1,
            swap_free_bytes=0,
            vmstat_oom_kill=0,
        )
        for second in seconds
    ]


def test_a_ring_keeps_the_newest_in_full_and_thins_out_the_older() -> None:
    ring = Ring([(5, 0), (4, 10_000_000), (3, 60_000_000)])
    for event in series(range(0, 1000, 2)):
        ring.add(event)
    assert [event.usec // 1_000_000 for event in ring.events()] == [
        *(780, 840, 900),
        *(950, 960, 970, 980),
        *(990, 992, 994, 996, 998),
    ]


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_a_short_series_is_kept_whole(count: int) -> None:
    ring = Ring([(5, 0), (4, 0)])
    for event in series(range(count)):
        ring.add(event)
    assert [event.usec for event in ring.events()] == [second * 1_000_000 for second in range(count)]


def test_an_hour_of_samples_is_a_few_dozen(clock: Clock) -> None:
    ring = Ring()
    for event in series(range(0, 3600, 2)):
        ring.add(event)
    kept = [event.usec // 1_000_000 for event in ring.events()]
    assert len(kept) < 64
    assert kept[-15:] == list(range(3570, 3600, 2))
    assert kept[0] < 3600 - 1500
