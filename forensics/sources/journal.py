"""The journal as it is written: what matters of it, in order, from where the last reading ended.

Of the server's own lines those that `server.SKIPPED` matches are only counted. Two thousand of them a
second cost a few percent of a core, and half a million are passed over in a second.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from forensics.entry import Entry
from forensics.errors import SourceError
from forensics.events import Gap
from forensics.sources import bench, coredump, kernel, losses, oomkillers, server, sigtrace, systemd
from forensics.sources.journal_access import kernel_readable, readable
from forensics.sources.journal_lines import ServerLines
from forensics.sources.journal_place import Position, unpack
from forensics.sources.journal_streams import Item, Lines, Records, Stream, entry_at, field, open_reader
from forensics.sources.last_words import last_words

__all__ = ["JournalReader", "Lines", "kernel_readable", "readable"]

SOURCE = "journal"

# A lost stretch of the journal is a gap of each source that is read from it.
_RECORDED_SOURCES = ("systemd", "kernel", "server", "coredump", "oomkillers", "remains")

_MATCHES = (
    "_PID=1",
    "_TRANSPORT=kernel",
    f"MESSAGE_ID={coredump.COREDUMP}",
    f"MESSAGE_ID={systemd.SHUTDOWN}",
    f"MESSAGE_ID={losses.JOURNAL_DROPPED}",
    f"MESSAGE_ID={losses.JOURNAL_MISSED}",
    f"MESSAGE_ID={bench.MESSAGE_ID}",
    *(f"MESSAGE_ID={message_id}" for message_id in (*systemd.BY_ID, *sigtrace.MESSAGE_IDS)),
    *(f"_SYSTEMD_UNIT={unit}" for unit in oomkillers.KILLERS),
)

# journald tells others of new entries up to 250 ms late; reading the files shows them at once.
_LOOK_EVERY_SECONDS = 0.05
# Each reader has every file of the journal open.
_MOST_READERS = 16
# A unit of which PID 1 says nothing, since it runs on and on, is found by asking which units have lines.
_SURVEY_SECONDS = 60.0
# A unit that nobody knew at the checkpoint may have written this long before PID 1's record on it was read.
_UNKNOWN_UNIT_USEC = 60_000_000


class JournalReader:
    """Entries, counted `Lines` and `Gap`s of the units that match the globs, in the journal's order.

    Begins after `cursor` (a former `JournalReader.cursor`, or one of journald's), else at `since_realtime_usec`, else
    with the journal's first entry. What the cursor pointed to may be gone: then a gap comes first. `path` is a folder
    of journal files or one file, None the journal of this machine. `processes` gives the pids of a run (invocation id):
    before the record of its end come those of their last lines that lack the unit. Raises SourceError when the journal
    cannot be opened.
    """

    def __init__(
        self,
        units: Sequence[str],
        *,
        path: Path | None = None,
        cursor: str | None = None,
        since_realtime_usec: int | None = None,
        skipped: re.Pattern[bytes] = server.SKIPPED,
        processes: Callable[[str], Iterable[int]] = lambda _: (),
    ) -> None:
        self._globs = tuple(units)
        self._processes = processes
        self._path = path
        self._skipped = skipped
        saved = unpack(cursor)
        latest = saved.latest
        self._since = saved.since if cursor else since_realtime_usec
        self._since_for_unknown = (
            max(self._since or 0, latest.realtime_usec - _UNKNOWN_UNIT_USEC) if latest else self._since
        )
        self._gaps: list[Gap] = []
        self._lines: dict[str, ServerLines] = {}
        self._new_units: list[str] = []
        self._next_survey = time.monotonic() + _SURVEY_SECONDS
        try:
            self._records = Records(path, _MATCHES, self._translate)
            self._records.seek(saved.records, self._since)
            known = self._known_units()
            # The place of each unit's lines that no reader is open for.
            self._places = {unit: place for unit, place in saved.units.items() if unit in known}
            for unit in known:
                self._follow(unit)
            if latest:
                self._check_not_lost(latest)
        except (OSError, ValueError) as error:
            message = f"cannot open the journal{f' at {path}' if path else ''}: {error}"
            raise SourceError(SOURCE, "journal-unreadable", message) from error

    def close(self) -> None:
        for stream in self._streams():
            stream.close()

    @property
    def cursor(self) -> str:
        """Where to resume after everything that `read` has handed out. To be taken when `read` has come to its end."""
        units = self._places | {unit: stream.cursor for unit, stream in self._lines.items() if stream.cursor}
        return json.dumps({"since": self._since, "records": self._records.cursor, "units": units})

    def read(self, limit: int = 20_000) -> Iterator[Item]:
        """What is there now, up to its end or until about `limit` entries have been looked at."""
        while self._gaps:
            yield self._gaps.pop(0)
        looked, unsettled = 0, True
        while looked < limit or unsettled:
            unsettled = False
            for stream in self._streams():
                looked += (here := stream.fill(limit))
                unsettled = unsettled or (here == limit and not stream.offers)
            if self._new_units:
                # Their first lines may stand before the record that told of them.
                self._follow(self._new_units.pop())
                unsettled = True
            elif not unsettled:
                first = self._first()
                if first is None:
                    break
                for item in first.take():
                    if isinstance(item, Entry) and item.from_systemd and item.get("MESSAGE_ID") in systemd.AT_REST:
                        yield from last_words(self._processes(item.get("INVOCATION_ID")), item, self._path)
                    yield item
        while len(self._lines) > _MOST_READERS and self._unfollow():
            pass

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until there is something to read; False when the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while not (self._gaps or any(stream.ready() for stream in self._streams())):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _LOOK_EVERY_SECONDS))
            for stream in self._streams():
                stream.reader.process()  # files that came or went
            if time.monotonic() >= self._next_survey:
                self._next_survey = time.monotonic() + _SURVEY_SECONDS
                for unit in self._known_units() - self._places.keys():
                    self._follow(unit)
        return True

    # --- streams ------------------------------------------------------------------------------------------

    def _streams(self) -> Iterator[Stream]:
        yield self._records
        yield from list(self._lines.values())

    def _first(self) -> Stream | None:
        """The stream whose offer stands first in the journal."""
        first: Stream | None = None
        for stream in self._streams():
            if not stream.offers:
                continue
            if first is None or (stream.position and first.position and stream.position.before(first.position)):
                first = stream
        return first

    def _known_units(self) -> set[str]:
        reader = open_reader(self._path)
        try:
            names = {value.decode("utf-8", "replace") for value in reader.query_unique("_SYSTEMD_UNIT")}
        finally:
            reader.close()
        return {name for name in names if self._watched(name)}

    def _watched(self, unit: str) -> bool:
        return any(fnmatchcase(unit, glob) for glob in self._globs)

    def _follow(self, unit: str) -> None:
        """Read a unit's lines from the beginning of this reading on, or from its own saved place."""
        if unit in self._lines:
            return
        stream = ServerLines(self._path, unit, self._skipped)
        stream.seek(self._places.get(unit), self._since_for_unknown)
        self._lines[unit] = stream

    def _unfollow(self) -> bool:
        """Close the reader of the unit that was silent for longest; PID 1's next record on it opens one again."""
        idle = {unit: stream.position for unit, stream in self._lines.items() if not stream.ready()}
        if not idle:
            return False
        unit = min(idle, key=lambda unit: position.realtime_usec if (position := idle[unit]) else 0)
        stream = self._lines.pop(unit)
        if stream.cursor:
            self._places[unit] = stream.cursor
        stream.close()
        return True

    # --- records --------------------------------------------------------------------------------------------

    def _translate(self, reader: Any) -> Item | None:
        """The item for the record at the reader's position; None for what concerns nobody here."""
        transport = field(reader, "_TRANSPORT")
        if transport == "kernel":
            return entry_at(reader) if kernel.interesting(field(reader, "MESSAGE")) else None
        if transport == "driver":
            entry = entry_at(reader)
            return entry if entry and self._concerns_us(losses.parse(entry)) else None
        if field(reader, "_PID") == "1":
            unit = field(reader, "UNIT")
            if self._watched(unit):
                if unit not in self._lines and unit not in self._new_units:
                    self._new_units.append(unit)
                return entry_at(reader)
            return entry_at(reader) if _concerns_all(reader, unit) else None
        # A server that writes such a record itself is read among its lines; of users' managers nothing is wanted.
        spoken_of = field(reader, "MESSAGE_ID") not in systemd.BY_ID or self._watched(field(reader, "UNIT"))
        return entry_at(reader) if spoken_of and not self._watched(field(reader, "_SYSTEMD_UNIT")) else None

    def _concerns_us(self, loss: losses.Loss | None) -> bool:
        """Of what journald did not keep: records of the kernel, and lines of a unit that is watched."""
        return loss is not None and (loss.gap.source == "kernel" or self._watched(loss.unit))

    def _check_not_lost(self, latest: Position) -> None:
        """Whether the place of the saved cursor is still there; if not, what followed it may be gone too."""
        reader = open_reader(self._path)
        try:
            reader.seek_cursor(latest.cursor)
            found = Position.of(reader._get_cursor()) if reader._next() else None
            if found and reader.test_cursor(latest.cursor):
                return
        finally:
            reader.close()
        same_boot = found is not None and found.boot_id == latest.boot_id
        reason = (
            f"the journal after {_utc(latest.realtime_usec)} is gone (rotated, vacuumed or damaged); "
            f"{f'it goes on at {_utc(found.realtime_usec)}' if found else 'nothing follows'}"
        )
        for source in _RECORDED_SOURCES:
            gap_end = found.monotonic_usec if found and same_boot else None
            self._gaps.append(Gap(source=source, reason=reason, from_usec=latest.monotonic_usec, to_usec=gap_end))

    # --- can it be read? ------------------------------------------------------------------------------------

    def readable(self) -> str | None:
        return readable(self._path)

    def kernel_readable(self) -> str | None:
        return kernel_readable(self._path)


def _concerns_all(reader: Any, unit: str) -> bool:
    """Of PID 1's records on other units: OOM kills in the slices above ours, and the end of the host."""
    if field(reader, "MESSAGE_ID") in (systemd.UNIT_OUT_OF_MEMORY, systemd.UNIT_OOMD_KILL):
        return unit.endswith(".slice")
    return not unit or unit in systemd.SHUTDOWN_UNITS


def _utc(realtime_usec: int) -> str:
    return f"{datetime.fromtimestamp(realtime_usec / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
