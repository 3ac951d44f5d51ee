"""Looks at the living servers every two seconds, since what it sees vanishes with them.

Of each run it keeps the last half minute in full and thins out what is older. A source that cannot be read is a gap,
and the others go on.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from forensics.errors import SourceError
from forensics.events import CgroupMemory, Event, Gap, ProcessTree
from forensics.model import RunRecord
from forensics.sources import cgroup, host, process
from forensics.sources.clock import monotonic_usec
from forensics.sources.gpu import GpuProbe
from forensics.sources.unit import LiveUnit, UnitBus

T = TypeVar("T")

SOURCES = frozenset({"unit", "cgroup", "process", "host", "gpu"})

# (at most, microseconds between two): half a minute of two-second samples, two minutes more, then half an hour.
_TIERS = ((15, 0), (12, 10_000_000), (30, 60_000_000))
# A unit that died stays in sight of D-Bus; what is not asked for within this time is dropped.
_FORGET_USEC = 600_000_000
_MOST_PAST_GAPS = 64
# A D-Bus call that gets no answer blocks for two seconds: not at every sample.
_BUS_RETRY_SECONDS = 60.0


class Ring:
    """A bounded series: the newest in full, the older ones thinned out tier by tier."""

    def __init__(self, tiers: Sequence[tuple[int, int]] = _TIERS) -> None:
        self._tiers = [(most, spacing, deque[Event]()) for most, spacing in tiers]

    def add(self, event: Event) -> None:
        moved: Event | None = event
        for most, spacing_usec, events in self._tiers:
            if moved is None or (events and moved.usec - events[-1].usec < spacing_usec):
                return
            events.append(moved)
            moved = events.popleft() if len(events) > most else None

    def events(self) -> Iterator[Event]:
        return chain.from_iterable(events for _, _, events in reversed(self._tiers))

    @property
    def newest(self) -> Event | None:
        return self._tiers[0][2][-1] if self._tiers[0][2] else None


@dataclass(slots=True)
class _Watched:
    """What is known of one run."""

    live: LiveUnit | None
    unit: str
    control_group: str = ""
    main_pid: int | None = None
    first_usec: int = field(default_factory=monotonic_usec)
    last_usec: int = field(default_factory=monotonic_usec)
    series: dict[tuple[str, str], Ring] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self.last_usec = event.usec
        self.series.setdefault((event.kind, event.record.ref), Ring()).add(event)


class Sampler:
    """`tick` samples when it is time; `take` gives what was seen of a run. Nothing here blocks for long: NVML is read
    at arm's length, D-Bus calls end after two seconds."""

    sources = SOURCES

    def __init__(
        self,
        units: Sequence[str],
        interval_seconds: float = 2.0,
        *,
        bus: UnitBus | None = None,
        gpu: GpuProbe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._units = tuple(units)
        self._interval = interval_seconds
        self._bus = bus or UnitBus()
        self._gpu = gpu or GpuProbe()
        self._clock = clock
        self._next = clock()
        self._runs: dict[str, _Watched] = {}
        # by source and unit; of a source that is the same for all, the unit is empty
        self._blind: dict[tuple[str, str], Gap] = {}
        self._past_gaps: deque[tuple[str, Gap]] = deque(maxlen=_MOST_PAST_GAPS)
        self._bus_retry_at = 0.0

    def close(self) -> None:
        self._bus.close()
        self._gpu.close()

    # --- when -----------------------------------------------------------------------------------------------

    def seconds_to_next(self) -> float:
        return max(0.0, self._next - self._clock())

    def tick(self, open_runs: Iterable[RunRecord] = ()) -> None:
        """Sample if it is time. `open_runs` are those that the journal knows of, for when D-Bus is silent."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._interval
            self.sample_now(open_runs)

    def sample_now(self, open_runs: Iterable[RunRecord] = ()) -> None:
        """Look at every watched unit that is not at rest."""
        living = self._living(open_runs)
        for watched in living:
            self._sample_unit(watched)
        if living:
            self._share(living, self._try("host", host.sample))
            for event in self._try("gpu", self._gpu.sample) or ():
                self._share(living, event)
        self._forget()

    # --- what -----------------------------------------------------------------------------------------------

    def take(self, invocation_id: str) -> tuple[list[Event], list[Gap]]:
        """Everything kept of this run, in order, and the gaps; it is not kept any longer. Looks at the host and the
        unit once more, since what has changed over the death is what counts."""
        watched = self._runs.get(invocation_id)
        if watched is None:
            return [], self._gaps("", 0)
        if event := self._try("host", host.sample):
            watched.add(event)
        if watched.live is not None and (state := self._try("unit", self._bus.sample, watched.live)):
            watched.add(state)
        events = sorted(chain.from_iterable(ring.events() for ring in watched.series.values()), key=_usec)
        watched.series.clear()
        return events, self._gaps(watched.unit, watched.first_usec)

    def _gaps(self, unit: str, first_usec: int) -> list[Gap]:
        past = [gap for of, gap in self._past_gaps if of in ("", unit) and (gap.to_usec or 0) >= first_usec]
        return past + [gap for (_, of), gap in self._blind.items() if of in ("", unit)]

    def blind(self) -> tuple[Gap, ...]:
        """The sources that could not be read when last tried."""
        return tuple(self._blind.values())

    # --- how ------------------------------------------------------------------------------------------------

    def _living(self, open_runs: Iterable[RunRecord]) -> list[_Watched]:
        listed = None
        if self._clock() >= self._bus_retry_at:
            listed = self._try("unit", self._bus.live_units, self._units)
        if listed is None:
            # D-Bus is silent: what the journal said must do.
            self._bus_retry_at = max(self._bus_retry_at, self._clock() + _BUS_RETRY_SECONDS)
            return [self._watch(run.invocation_id, run.unit, run.control_group) for run in open_runs]
        living = []
        for live in listed:
            watched = self._watch(live.invocation_id, live.unit)
            before, watched.live = watched.live, live
            if before != live and (state := self._try("unit", self._bus.sample, live)):
                watched.control_group = state.control_group or watched.control_group
                watched.main_pid = state.exec_main_pid
                watched.add(state)
            if live.active_state != "failed":
                living.append(watched)
        return living

    def _watch(self, invocation_id: str, unit: str, control_group: str = "") -> _Watched:
        watched = self._runs.setdefault(invocation_id, _Watched(None, unit))
        watched.control_group = watched.control_group or control_group
        return watched

    def _sample_unit(self, watched: _Watched) -> None:
        if not watched.control_group:
            return
        memory: CgroupMemory | None = self._try("cgroup", cgroup.sample, watched.control_group, of=watched.unit)
        if memory:
            watched.add(memory)
        tree: ProcessTree | None = self._try(
            "process", process.sample, watched.control_group, watched.main_pid, of=watched.unit
        )
        if tree:
            watched.add(tree)

    @staticmethod
    def _share(living: Iterable[_Watched], event: Event | None) -> None:
        if event is not None:
            for watched in living:
                watched.add(event)

    def _try(self, source: str, sample: Callable[..., T], *args: object, of: str = "") -> T | None:
        """What the source says; when it cannot, it is blind from now on, and seeing again when it says something."""
        blind = self._blind.get((source, of))
        try:
            seen = sample(*args)
        except SourceError as error:
            reason = error.message
        except Exception as error:  # a broken source costs a gap, never the daemon
            reason = f"{type(error).__name__}: {error}"
        else:
            if blind and seen is not None:
                self._past_gaps.append((of, replace(blind, to_usec=monotonic_usec())))
                del self._blind[source, of]
            return seen
        since = blind.from_usec if blind else monotonic_usec()
        self._blind[source, of] = Gap(source=source, reason=reason, from_usec=since)
        return None

    def _forget(self) -> None:
        now = monotonic_usec()
        for invocation_id, watched in list(self._runs.items()):
            if now - watched.last_usec > _FORGET_USEC:
                del self._runs[invocation_id]


def _usec(event: Event) -> int:
    return event.usec
