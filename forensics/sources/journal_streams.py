"""Two kinds of reading position in the journal: one for a server's own lines, one for everything else.

libsystemd answers a single match three times faster than a disjunction, and a field costs more the later it stands in
an entry. So each watched unit has its own reader with one match, which takes of a boring line only its MESSAGE and
counts it; the few other records have a reader with many matches. `journal.JournalReader` merges them in order.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systemd import _reader

from forensics.entry import Entry
from forensics.sources import kernel, systemd
from forensics.sources.export import entry_of, with_message

LOCAL_ONLY = 1
_THRESHOLD_BYTES = 256 * 1024
# Each page of the journal that was looked at stays mapped until the reader is closed.
_REOPEN_AFTER = 50_000
# After so many counted lines the invocation is looked at again.
_STRIDE = 256
# Only a line this long can be the part of a split one: journald's LineMax= is 48 KiB unless it was made much smaller.
_LONG_BYTES = 2048
# A split line is joined up to this size; the server's log has nothing to say beyond.
_JOINED_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines of a server that were counted, not kept: they carry no fact."""

    unit: str
    invocation_id: str
    boot_id: str
    count: int
    first_monotonic_usec: int
    last_monotonic_usec: int
    last_realtime_usec: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where an entry stands: the parts of its cursor. Compared as libsystemd does when it merges files."""

    seqnum_id: str
    seqnum: int
    boot_id: str
    monotonic_usec: int
    realtime_usec: int

    @classmethod
    def of(cls, cursor: str) -> "Position | None":
        parts = dict(part.split("=", 1) for part in cursor.split(";") if "=" in part)
        try:
            return cls(parts["s"], int(parts["i"], 16), parts["b"], int(parts["m"], 16), int(parts["t"], 16))
        except (KeyError, ValueError):
            return None

    def before(self, other: "Position") -> bool:
        if self.seqnum_id == other.seqnum_id:
            return self.seqnum < other.seqnum
        if self.boot_id == other.boot_id:
            return self.monotonic_usec < other.monotonic_usec
        return self.realtime_usec < other.realtime_usec


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


class Stream:
    """One reader and the entry that it offers next.

    `fill` goes on until there is something to offer (`head`) or nothing more to read; `take` hands it out. `cursor`
    is where to resume after what was handed out, None before the first.
    """

    def __init__(self, path: Path | None, matches: tuple[tuple[str, ...], ...]) -> None:
        self._path, self._matches = path, matches
        self.reader = self._open()
        self.head: tuple[Position | None, Entry] | None = None
        self.cursor: str | None = None
        self._on_entry = False
        self._seen = 0

    def _open(self) -> Any:
        reader = open_reader(self._path)
        for index, match in enumerate(self._matches):
            if index:
                reader.add_disjunction()
            for term in match:
                reader.add_match(term)
        reader.fileno()  # starts watching for files that come and go
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
        """Whether there is an entry to look at."""
        if self.head is None and not self._on_entry:
            self._on_entry = bool(self.reader._next())
        return self.head is not None or self._on_entry

    def fill(self, budget: int) -> int:
        """Look at up to `budget` entries; returns how many were."""
        before = self._seen
        if self.head is None:
            self._fill(budget)
        return self._seen - before

    def _fill(self, budget: int) -> None:
        raise NotImplementedError

    def take(self) -> Entry:
        assert self.head is not None
        entry = self.head[1]
        self.head = None
        self.cursor = entry.cursor
        return entry

    def flush(self) -> Iterator[Lines | Entry]:
        """What was counted since the last entry."""
        return iter(())

    def rest(self) -> None:
        """Give back the memory that a long read has mapped. For a moment when nothing is pending."""
        if self._seen < _REOPEN_AFTER or self.head is not None or self._on_entry or self.cursor is None:
            return
        self.reader.close()
        self.reader = self._open()
        self._seen = 0
        self.seek(self.cursor, None)

    def _offer(self, entry: Entry) -> None:
        self.head = (Position.of(entry.cursor), entry)


class Records(Stream):
    """What PID 1, the kernel, journald, core dumps and the userspace OOM killers have to say."""

    def __init__(self, path: Path | None, matches: tuple[tuple[str, ...], ...], wanted: Callable[[Any], bool]) -> None:
        super().__init__(path, matches)
        self._wanted = wanted

    def _fill(self, budget: int) -> None:
        end = self._seen + budget
        while self._seen < end and (self._on_entry or self.reader._next()):
            self._on_entry = False
            self._seen += 1
            if self._wanted(self.reader) and (entry := entry_at(self.reader)):
                self._offer(entry)
                return
            if self._seen % _STRIDE == 0:
                self.cursor = self.reader._get_cursor()


def field(reader: Any, name: str) -> str:
    """One field of the entry at the reader's position, or the empty string."""
    try:
        value: bytes = reader._get(name)
    except KeyError:
        return ""
    return value.decode("utf-8", "replace")


def wanted_kernel_line(reader: Any) -> bool:
    return kernel.interesting(field(reader, "MESSAGE"))


def wanted_foreign_record(reader: Any) -> bool:
    """Of PID 1's records about other units: OOM kills in the slices above ours, and the end of the host."""
    if field(reader, "MESSAGE_ID") in (systemd.UNIT_OUT_OF_MEMORY, systemd.UNIT_OOMD_KILL):
        return field(reader, "UNIT").endswith(".slice")
    return field(reader, "UNIT") in ("", *systemd.SHUTDOWN_UNITS)


class ServerLines(Stream):
    """The lines of one unit. `skipped` matches the lines that are only counted; of those where its group `sample`
    took part, the last of each run of them is offered all the same."""

    def __init__(self, path: Path | None, unit: str, skipped: re.Pattern[bytes]) -> None:
        super().__init__(path, ((f"_SYSTEMD_UNIT={unit}",),))
        self.unit = unit
        self._skipped = skipped
        self._parts: dict[str, tuple[Entry, list[str]]] = {}
        self._restart_count()

    def _restart_count(self) -> None:
        self._count = 0
        self._since_sample = -1
        self._first: tuple[int, str] | None = None
        self._invocation_id = ""
        self._flushed: list[Lines | Entry] = []

    def _fill(self, budget: int) -> None:
        reader, skipped, sample = self.reader, self._skipped, self._skipped.groupindex.get("sample", -1)
        advance, get = reader._next, reader._get
        end = self._seen + budget
        while self._seen < end and (self._on_entry or advance()):
            self._on_entry = False
            self._seen += 1
            try:
                message = get("MESSAGE")
            except KeyError:
                continue
            found = skipped.match(message)
            if found is None or len(message) >= _LONG_BYTES or self._parts:
                entry = entry_at(reader)
                if entry and (joined := self._join(entry)):
                    self._offer(joined)
                    return
                continue
            self._count += 1
            self._since_sample = 0 if found.lastindex == sample else self._since_sample + 1 if self._since_sample >= 0 else -1
            if self._count % _STRIDE == 1:
                self._check_invocation()

    def _join(self, entry: Entry) -> Entry | None:
        """The entry; or, when it is a part of a split line, the whole line once its last part is there."""
        stream = f"{entry.get('_STREAM_ID')} {entry.get('_PID')}"
        if entry.get("_LINE_BREAK") == "line-max":
            parts = self._parts.setdefault(stream, (entry, []))[1]
            if sum(map(len, parts)) < _JOINED_CHARACTERS:
                parts.append(entry.message)
            return None
        if stream in self._parts:
            first, parts = self._parts.pop(stream)
            return with_message(first, "".join((*parts, entry.message)))
        return entry
