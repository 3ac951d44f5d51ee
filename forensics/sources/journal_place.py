"""Places in the journal: one entry's, and the saved places of a whole reading."""

import json
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Where an entry stands: the parts of its cursor. Compared as libsystemd does when it merges files."""

    cursor: str
    seqnum_id: str
    seqnum: int
    boot_id: str
    monotonic_usec: int
    realtime_usec: int

    @classmethod
    def of(cls, cursor: str) -> "Position | None":
        parts = dict(part.split("=", 1) for part in cursor.split(";") if "=" in part)
        try:
            return cls(cursor, parts["s"], int(parts["i"], 16), parts["b"], int(parts["m"], 16), int(parts["t"], 16))
        except (KeyError, ValueError):
            return None

    def before(self, other: "Position") -> bool:
        if self.seqnum_id == other.seqnum_id:
            return self.seqnum < other.seqnum
        if self.boot_id == other.boot_id:
            return self.monotonic_usec < other.monotonic_usec
        return self.realtime_usec < other.realtime_usec


class Saved:
    """The places of one reading: of the records, and of each unit's lines."""

    def __init__(self, since: int | None, records: str | None, units: dict[str, str]) -> None:
        self.since, self.records, self.units = since, records, units

    def all(self) -> Iterator[str]:
        yield from filter(None, (self.records, *self.units.values()))

    @property
    def latest(self) -> Position | None:
        positions = [position for text in self.all() if (position := Position.of(text))]
        return max(positions, key=lambda position: position.realtime_usec, default=None)


def unpack(cursor: str | None) -> Saved:
    """What `JournalReader.cursor` wrote; a plain cursor of journald is taken for the records' place."""
    if not cursor:
        return Saved(None, None, {})
    try:
        saved = json.loads(cursor)
        return Saved(saved["since"], saved["records"], dict(saved["units"]))
    except (ValueError, KeyError, TypeError):
        return Saved(None, cursor, {})
