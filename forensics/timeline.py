"""The facts of one run in order, and what could not be read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from forensics.events import Event, Gap

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Facts ordered by the monotonic clock, the gaps, and the names of the sources that were read.

    Absence is evidence only where `covers` holds.
    """

    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()
    sources: frozenset[str] = frozenset()

    @classmethod
    def of(cls, events: Iterable[Event], gaps: Iterable[Gap] = (), sources: Iterable[str] = ()) -> "Timeline":
        # A stable sort: records with one stamp keep the order in which they were read.
        return cls(tuple(sorted(events, key=lambda event: event.usec)), tuple(gaps), frozenset(sources))

    def all(self, fact: type[E]) -> Iterator[E]:
        return (event for event in self.events if isinstance(event, fact))

    def first(self, fact: type[E], after: int | None = None) -> E | None:
        """The earliest fact of this class, at or after a stamp if one is given."""
        return next((event for event in self.all(fact) if after is None or event.usec >= after), None)

    def last(self, fact: type[E], before: int | None = None) -> E | None:
        """The latest fact of this class, at or before a stamp if one is given."""
        found = None
        for event in self.all(fact):
            if before is None or event.usec <= before:
                found = event
        return found

    def covers(self, source: str) -> bool:
        """Whether the source was read from the run's start to its end without a gap."""
        return source in self.sources and not any(gap.source == source for gap in self.gaps)

    def why_not_covered(self, source: str) -> str:
        """In words, why silence of this source proves nothing."""
        reasons = [gap.reason for gap in self.gaps if gap.source == source]
        return "; ".join(dict.fromkeys(reasons)) or f"{source} was not read"
