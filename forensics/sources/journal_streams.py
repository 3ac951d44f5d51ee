"""Readers of the journal that `journal.JournalReader` merges in order.

libsystemd answers a single match three times faster than a disjunction, so each watched unit has a reader of its own
(`journal_lines`), and the few other records have one with many matches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systemd import _reader

from forensics.entry import Entry
from forensics.events import Gap
from forensics.sources.export import entry_of
from forensics.sources.journal_place import Position

LOCAL_ONLY = 1
_THRESHOLD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines of a server that were counted, not kept: they carry no fact. `decodes` are those of them whose figures
    go into the run's tally."""

    unit: str
    invocation_id: str
    boot_id: str
    count: int
    first_monotonic_usec: int
    last_monotonic_usec: int
    last_realtime_usec: int
    decodes: tuple[str, ...] = ()


Item = Entry | Lines | Gap


def open_reader(path: Path | None) -> Any:
    """libsystemd's reader on this machine's journal, or on a folder of journal files or one such file."""
    if path is None:
        reader = _reader._Reader(flags=LOCAL_ONLY)
    elif path.is_dir():
        reader = _reader._Reader(flags=0, path=str(path))
    else:
        reader = _reader._Reader(flags=0, files=[str(path)])
    reader.data_threshold = _THRESHOLD_BYTES
    return reader


def entry_at(reader: Any) -> Entry | None:
    """The whole entry at the reader's position; of a field that occurs more than once the first value."""
    fields: dict[str, str] = {}
    for name, value in reader._get_all().items():
        if not name.startswith("COREDUMP_PROC") and name not in ("COREDUMP", "COREDUMP_ENVIRON"):
            fields[name] = (value[0] if isinstance(value, list) else value).decode("utf-8", "replace")
    fields["__CURSOR"] = reader._get_cursor()
    fields["__REALTIME_TIMESTAMP"] = str(reader._get_realtime())
    fields["__MONOTONIC_TIMESTAMP"] = str(reader._get_monotonic().timestamp)
    return entry_of(fields)


def field(reader: Any, name: str) -> str:
    """One field of the entry at the reader's position, or the empty string."""
    try:
        value: bytes = reader._get(name)
    except KeyError:
        return ""
    return value.decode("utf-8", "replace")


class Stream:
    """One reader, and what it offers next.

    `fill` goes on until there is something to offer (`position`) or nothing more to read; `take` hands it out: one
    entry, or counts and their sample together. `cursor` is where to resume after it, None before the first.
    """

    reopen_after = 20_000

    def __init__(self, path: Path | None, matches: Sequence[str]) -> None:
        self._path, self._matches = path, matches
        self.reader = self._open()
        self.cursor: str | None = None
        self._offered: list[Item] = []
        self._offered_cursor = ""
        self.position: Position | None = None
        self._on_entry = False
        self._looked = 0

    def _open(self) -> Any:
        reader = open_reader(self._path)
        for index, match in enumerate(self._matches):
            if index:
                reader.add_disjunction()
            reader.add_match(match)
        reader.fileno()  # from now on libsystemd watches for files that come and go
        return reader

    def close(self) -> None:
        self.reader.close()

    def seek(self, cursor: str | None, since_realtime_usec: int | None) -> None:
        """Stand before the first entry after the cursor, or at or after the time, or before the first of all.

        A cursor whose entry is gone leads to the first entry after its place.
        """
        position = Position.of(cursor) if cursor else None
        if cursor and position:
            self.cursor = cursor
            self.reader.seek_cursor(cursor)
            while self.reader._next():
                found = Position.of(self.reader._get_cursor())
                if found and position.before(found):
                    self._on_entry = True
                    return
        elif since_realtime_usec is not None:
            self.reader.seek_realtime(since_realtime_usec)
        else:
            self.reader.seek_head()

    def ready(self) -> bool:
        """Whether there is something to offer or an entry to look at."""
        if not self._offered and not self._on_entry:
            self._on_entry = bool(self.reader._next())
        return bool(self._offered) or self._on_entry

    @property
    def offers(self) -> bool:
        return bool(self._offered)

    def take(self) -> list[Item]:
        offered, self._offered = self._offered, []
        self.cursor = self._offered_cursor
        return offered

    def fill(self, budget: int) -> int:
        """Look at up to `budget` entries until there is something to offer; returns how many were looked at."""
        if self._offered:
            return 0
        if self._looked >= self.reopen_after:
            self._reopen()
        looked = self._fill(budget)
        self._looked += looked
        return looked

    def _fill(self, budget: int) -> int:
        raise NotImplementedError

    def _offer(self, items: list[Item], cursor: str) -> None:
        self._offered, self._offered_cursor, self.position = items, cursor, Position.of(cursor)

    def _reopen(self) -> None:
        """Give back the memory: each page of the journal that was looked at stays mapped until the reader is closed."""
        self._looked = 0
        try:
            place = self.reader._get_cursor()
        except OSError:  # not on any entry yet
            return
        self.reader.close()
        self.reader = self._open()
        self.reader.seek_cursor(place)
        if self.reader._next() and not self.reader.test_cursor(place):
            self._on_entry = True


class Records(Stream):
    """The records for which `translate` has an item: what PID 1, the kernel, journald … have to say."""

    # They lie far apart.
    reopen_after = 500

    def __init__(self, path: Path | None, matches: Sequence[str], translate: Callable[[Any], Item | None]) -> None:
        super().__init__(path, matches)
        self._translate = translate

    def _fill(self, budget: int) -> int:
        looked = 0
        while looked < budget and (self._on_entry or self.reader._next()):
            self._on_entry = False
            looked += 1
            if looked % self.reopen_after == 0:
                self._reopen()
            if (item := self._translate(self.reader)) is not None:
                self._offer([item], self.reader._get_cursor())
                return looked
        if looked:
            self.cursor = self.reader._get_cursor()
        return looked
