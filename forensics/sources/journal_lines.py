"""A unit's own lines: the interesting ones one by one, the boring ones counted."""

import re
from itertools import chain, islice, repeat
from operator import itemgetter
from pathlib import Path

from forensics.entry import Entry
from forensics.sources.export import with_message
from forensics.sources.journal_streams import Item, Lines, Stream, entry_at, field

# So many lines are read ahead.
_BULK = 64
TALLIED_A_SECOND = 50
"""Of the decode lines that one second's prefix bears, so many are handed out: a server prints one every 40 steps, and
only one that runs wild prints more."""

# Where SGLang's prefix has its time.
_SECOND = slice(1, 20)
# Only a line this long can be the part of a split one: journald's LineMax= is 48 KiB unless it was made much smaller.
_LONG_BYTES = 2048
# A split line is joined up to this size; the server's log has nothing to say beyond.
_JOINED_CHARACTERS = 1 << 20


class ServerLines(Stream):
    """The lines of one unit. What `skipped` matches is only counted; of those where its group `sample` took part,
    the last one of each count is offered all the same. Those where `decode` did go with the counts, as text, up to
    `TALLIED_A_SECOND`.

    Lines are read some way ahead: reading and matching each in turn would cost a half more.
    """

    def __init__(self, path: Path | None, unit: str, skipped: re.Pattern[bytes]) -> None:
        super().__init__(path, [f"_SYSTEMD_UNIT={unit}"])
        self.unit = unit
        self._skipped = skipped
        self._parts: dict[str, tuple[Entry, list[str]]] = {}
        # Of the lines that are being counted: which they are of them, and their text; and of the second of the last
        # one, how many more are taken.
        self._decodes: list[tuple[int, bytes]] = []
        self._second, self._room = b"", 0
        # The lines read ahead with what the gate said, which of them is to be looked at next, where the reader stands.
        self._ahead: list[bytes] = []
        self._gated: list[re.Match[bytes] | None] = []
        self._next, self._at = 0, -1

    def ready(self) -> bool:
        if self._next < len(self._ahead):
            return True
        self._stand_on(len(self._ahead) - 1)
        return super().ready()

    def _fill(self, budget: int) -> int:
        looked = 0
        while looked < budget and not self._offered:
            count, sampled, first, other = self._skim(budget - looked)
            looked += count
            if count:
                self._stand_on(self._next - 1)
                self._offer(self._counted(count, sampled, first), self.reader._get_cursor())
            elif other:
                looked += 1
                self._stand_on(self._next)
                self._next += 1
                if (entry := entry_at(self.reader)) and (joined := self._join(entry)):
                    self._offer([joined], entry.cursor)
            else:
                break
        return looked

    def _skim(self, budget: int) -> tuple[int, int, tuple[str, int], bool]:
        """Pass over lines that are only counted. Returns how many they were, which of them was the last sample (0:
        none), the first one's invocation and stamp, and whether another kind of line comes next."""
        sample, decode = self._skipped.groupindex.get("sample", -1), self._skipped.groupindex.get("decode")
        count, sampled, first = 0, 0, ("", 0)
        self._decodes = []
        while count < budget:
            if self._next == len(self._ahead) and not self._read_ahead(min(_BULK, budget - count) if count else 1):
                return count, sampled, first, False
            begin = self._next
            stop = min(self._stop(), begin + budget - count)
            if stop > begin:
                if not count:
                    self._stand_on(begin)
                    first = (field(self.reader, "_SYSTEMD_INVOCATION_ID"), self.reader._get_monotonic().timestamp)
                if decode:
                    self._take_decodes(begin, stop, count + 1, decode)
                backwards = reversed(range(begin, stop))
                sampled = next((count + at - begin + 1 for at in backwards if self._is(at, sample)), sampled)
                count += stop - begin
                self._next = stop
            if stop < len(self._ahead):
                return count, sampled, first, count < budget
        return count, sampled, first, False

    def _take_decodes(self, begin: int, stop: int, number: int, decode: int) -> None:
        """Keep the decode lines among these, the first of which is the given number of those being counted."""
        if not self._room and self._ahead[begin][_SECOND] == self._ahead[stop - 1][_SECOND] == self._second:
            return  # all of a second of which enough were taken, but for a rank's that is late
        for at in range(begin, stop):
            line = self._ahead[at]
            if (second := line[_SECOND]) == self._second and not self._room:
                continue
            if (match := self._gated[at]) and match.start(decode) >= 0:
                if second != self._second:
                    self._second, self._room = second, TALLIED_A_SECOND
                self._room -= 1
                self._decodes.append((number + at - begin, line))

    def _is(self, at: int, group: int) -> bool:
        match = self._gated[at]
        return match is not None and match.lastindex == group

    def _stop(self) -> int:
        """Of the lines ahead, the first that must be looked at by itself; their number when there is none."""
        if self._parts:
            return self._next
        try:
            return self._gated.index(None, self._next)
        except ValueError:
            return len(self._gated)

    def _read_ahead(self, count: int) -> bool:
        """Read up to `count` more lines; False when there are none."""
        self._stand_on(len(self._ahead) - 1)
        self._ahead, self._next = [], 0
        steps = iter(self.reader._next, False)  # noqa: FBT003 - iter's sentinel
        if self._on_entry:
            self._on_entry = False
            steps = chain((True,), steps)
        # All in C, step and message in turn: this is where half a million lines go through.
        pairs = zip(islice(steps, count), map(self.reader._get, repeat("MESSAGE")), strict=False)
        try:
            self._ahead.extend(map(itemgetter(1), pairs))
        except KeyError:  # an entry without one; those before it are in the list
            self._ahead.append(b"")
        self._at = len(self._ahead) - 1
        self._gated = list(map(self._skipped.match, self._ahead))
        if self._ahead and not 0 < len(min(self._ahead, key=len)) <= len(max(self._ahead, key=len)) < _LONG_BYTES:
            for at, message in enumerate(self._ahead):
                if not 0 < len(message) < _LONG_BYTES:
                    self._gated[at] = None
        return bool(self._ahead)

    def _stand_on(self, at: int) -> None:
        """Put the reader onto one of the lines ahead, or onto the one before them (-1)."""
        if at > self._at:
            self.reader._next(at - self._at)
        elif at < self._at:
            self.reader._previous(self._at - at)
        self._at = at

    def _reopen(self) -> None:
        self._stand_on(self._next - 1)
        self._ahead, self._gated, self._next, self._at = [], [], 0, -1
        super()._reopen()

    def _counted(self, count: int, sampled: int, first: tuple[str, int]) -> list[Item]:
        """Counts of the `count` lines that end at the reader's position, and the sample among them by itself.

        A unit has one run at a time: where the first and the last line are of one run, all between them are.
        """
        reader = self.reader
        invocation_id, first_usec = first
        items: list[Item] = []
        self._decodes = [(number, text) for number, text in self._decodes if number != sampled]
        if field(reader, "_SYSTEMD_INVOCATION_ID") != invocation_id:
            items += self._counted_by_run(count, sampled)
        elif kept := count - (sampled > 0):
            items.append(self._lines(invocation_id, kept, first_usec, count))
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
                    items.append(self._lines(current, kept, first_usec, number - 1))
                    reader._next()
                current, kept, first_usec = invocation_id, 0, reader._get_monotonic().timestamp
            kept += number != sampled
        if kept:
            items.append(self._lines(current, kept, first_usec, count))
        return items

    def _lines(self, invocation_id: str, count: int, first_usec: int, last: int) -> Lines:
        """`count` lines of one run, of which the one at the reader's position is the number `last` of all."""
        monotonic = self.reader._get_monotonic()
        decodes = tuple(text.decode("utf-8", "replace") for number, text in self._decodes if number <= last)
        self._decodes = [(number, text) for number, text in self._decodes if number > last]
        return Lines(
            unit=self.unit,
            invocation_id=invocation_id,
            boot_id=monotonic.bootid.hex(),
            count=count,
            first_monotonic_usec=first_usec,
            last_monotonic_usec=monotonic.timestamp,
            last_realtime_usec=self.reader._get_realtime(),
            decodes=decodes,
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
