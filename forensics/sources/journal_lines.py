"""A unit's own lines: the interesting ones one by one, the boring ones counted."""

import re
from itertools import chain, islice
from pathlib import Path

from forensics.entry import Entry
from forensics.sources.export import with_message
from forensics.sources.journal_streams import Item, Lines, Stream, entry_at, field

# So many lines are read at once where all of them are only counted.
_BULK = 128
# Only a line this long can be the part of a split one: journald's LineMax= is 48 KiB unless it was made much smaller.
_LONG_BYTES = 2048
# A split line is joined up to this size; the server's log has nothing to say beyond.
_JOINED_CHARACTERS = 1 << 20


def _is(found: re.Match[bytes] | None, group: int) -> bool:
    return found is not None and found.lastindex == group


class ServerLines(Stream):
    """The lines of one unit. What `skipped` matches is only counted; of those where its group `sample` took part,
    the last one of each count is offered all the same. Those where `decode` did go with the counts, as text."""

    def __init__(self, path: Path | None, unit: str, skipped: re.Pattern[bytes]) -> None:
        super().__init__(path, [f"_SYSTEMD_UNIT={unit}"])
        self.unit = unit
        self._skipped = skipped
        self._parts: dict[str, tuple[Entry, list[str]]] = {}
        # Of the lines that are being counted: which they are of them, and their text.
        self._decodes: list[tuple[int, bytes]] = []

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
        decode = self._skipped.groupindex.get("decode")
        count, sampled, first, size = 0, 0, ("", 0), 1
        self._decodes = []
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
            if decode:
                self._decodes += [
                    (count + at + 1, messages[at])
                    for at, match in enumerate(matches[:stop])
                    if match is not None and match.start(decode) >= 0
                ]
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
