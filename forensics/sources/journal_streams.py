"""Two kinds of reading position in the journal: one for a server's own lines, one for everything else.

libsystemd answers a single match three times faster than a disjunction, and a field costs more the later it stands in
an entry. So each watched unit has its own reader with one match, which takes of a boring line only its MESSAGE and
counts it; the few other records have a reader with many matches. `journal.JournalReader` merges them in order.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from systemd import _reader

from forensics.entry import Entry
from forensics.events import Gap
from forensics.sources.export import entry_of, with_message

LOCAL_ONLY = 1
_THRESHOLD_BYTES = 256 * 1024
# So many lines are read at once where all of them are only counted.
_BULK = 128
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


Item = Entry | Lines | Gap


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


def _is(found: re.Match[bytes] | None, group: int) -> bool:
    return found is not None and found.lastindex == group


class Stream:
    """One reader, and what it offers next.

    `fill` goes on until there is something to offer (`position`) or nothing more to read; `take` hands it out: one
    entry, or counts and their sample together. `cursor` is where to resume after it, None before the first.
    """

    reopen_after = 50_000

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
    reopen_after = 2_000

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


class ServerLines(Stream):
    """The lines of one unit. What `skipped` matches is only counted; of those where its group `sample` took part,
    the last one of each count is offered all the same."""

    def __init__(self, path: Path | None, unit: str, skipped: re.Pattern[bytes]) -> None:
        super().__init__(path, [f"_SYSTEMD_UNIT={unit}"])
        self.unit = unit
        self._skipped = skipped
        self._parts: dict[str, tuple[Entry, list[str]]] = {}

    def _fill(self, budget: int) -> int:
        looked = 0
        while looked < budget and not self._offered:
            count, sampled, first, other = self._skim(budget - looked)
            looked += count
            if count:
                if other:
                    # One step back, to the last line that was counted; the next look meets the other line again.
                    self.reader._previous()
                self._offer(self._counted(count, sampled, first), self.reader._get_cursor())
            elif other:
                looked += 1
                if (entry := entry_at(self.reader)) and (joined := self._join(entry)):
                    self._offer([joined], entry.cursor)
            else:
                break
        return looked

    def _skim(self, budget: int) -> tuple[int, int, tuple[str, int], bool]:
        """Pass over lines that are only counted. Returns how many they were, which of them was the last sample (0:
        none), the first one's invocation and stamp, and whether the reader now stands on another kind of line."""
        reader, sample = self.reader, self._skipped.groupindex.get("sample", -1)
        count, sampled, first, size = 0, 0, ("", 0), 1
        while count < budget:
            # In bulk: reading and matching in turn would cost a half more.
            messages, without = self._messages(min(size, budget - count))
            if not messages and not without:
                break
            matches = list(map(self._skipped.match, messages))
            stop = self._stop(messages, matches)
            if count == 0 and stop:
                first = (field(reader, "_SYSTEMD_INVOCATION_ID"), reader._get_monotonic().timestamp)
            sampled = next((count + at + 1 for at in reversed(range(stop)) if _is(matches[at], sample)), sampled)
            count += stop
            if stop < len(messages) or without:
                if back := len(messages) - stop - (not without):
                    reader._previous(back)
                return count, sampled, first, True
            size = min(size * 2, _BULK)
        return count, sampled, first, False

    def _messages(self, count: int) -> tuple[list[bytes], bool]:
        """The MESSAGE of up to `count` entries from here, and whether an entry without one ended it."""
        messages: list[bytes] = []
        get, append = self.reader._get, messages.append
        steps = iter(self.reader._next, False)  # noqa: FBT003
        if self._on_entry:
            self._on_entry = False
            steps = chain((True,), steps)
        try:
            for _ in islice(steps, count):
                append(get("MESSAGE"))
        except KeyError:
            return messages, True
        return messages, False

    def _stop(self, messages: list[bytes], matches: list[re.Match[bytes] | None]) -> int:
        """The index of the first line that must be looked at, or how many lines there are."""
        if self._parts:
            return 0
        stop = matches.index(None) if None in matches else len(matches)
        if messages and len(max(messages, key=len)) >= _LONG_BYTES:
            stop = min(stop, next(at for at, message in enumerate(messages) if len(message) >= _LONG_BYTES))
        return stop

    def _counted(self, count: int, sampled: int, first: tuple[str, int]) -> list[Item]:
        """Counts of the `count` lines that end at the reader's position, and the sample among them by itself.

        A unit has one run at a time: where the first and the last line are of one run, all between them are.
        """
        reader = self.reader
        invocation_id, first_usec = first
        items: list[Item] = []
        if field(reader, "_SYSTEMD_INVOCATION_ID") != invocation_id:
            items += self._counted_by_run(count, sampled)
        elif kept := count - (sampled > 0):
            items.append(self._lines(invocation_id, kept, first_usec))
        if sampled:
            back = count - sampled
            if back:
                reader._previous(back)
            if entry := entry_at(reader):
                items.append(entry)
            if back:
                reader._next(back)
        return items

    def _counted_by_run(self, count: int, sampled: int) -> list[Item]:
        """A new run of the unit began among these lines: count each run's."""
        reader = self.reader
        items: list[Item] = []
        if count > 1:
            reader._previous(count - 1)
        current, kept, first_usec = "", 0, 0
        for number in range(1, count + 1):
            if number > 1:
                reader._next()
            if (invocation_id := field(reader, "_SYSTEMD_INVOCATION_ID")) != current:
                if kept:
                    reader._previous()
                    items.append(self._lines(current, kept, first_usec))
                    reader._next()
                current, kept, first_usec = invocation_id, 0, reader._get_monotonic().timestamp
            kept += number != sampled
        if kept:
            items.append(self._lines(current, kept, first_usec))
        return items

    def _lines(self, invocation_id: str, count: int, first_usec: int) -> Lines:
        monotonic = self.reader._get_monotonic()
        return Lines(
            unit=self.unit,
            invocation_id=invocation_id,
            boot_id=monotonic.bootid.hex(),
            count=count,
            first_monotonic_usec=first_usec,
            last_monotonic_usec=monotonic.timestamp,
            last_realtime_usec=self.reader._get_realtime(),
        )

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
