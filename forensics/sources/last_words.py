"""What a dying process wrote that journald could put to no unit.

journald looks a writer up when it reads the line, and then finds nothing of one that is gone. The streams that PID 1
opened keep their unit all the same; those of `systemd-cat`, syslog and journald's own protocol lose it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from forensics.entry import Entry
from forensics.sources.journal_streams import entry_at, field, open_reader

_MOST = 2_000


def last_words(pids: Iterable[int], before: Entry, path: Path | None = None) -> Iterator[Entry]:
    """The lines without a unit that stand behind each process's last one with a unit, and before an entry of the same
    boot; one process after the other, each in order.

    `_PID` is the kernel's word, so what can be read so was written by a process that had once been in the unit.
    """
    reader = None
    for pid in pids:
        reader = reader or open_reader(path)
        reader.flush_matches()
        reader.add_match(f"_BOOT_ID={before.boot_id}")
        reader.add_match(f"_PID={pid}")
        reader.seek_cursor(before.cursor)
        found: list[Entry] = []
        while len(found) < _MOST and reader._previous() and not field(reader, "_SYSTEMD_UNIT"):
            if (entry := entry_at(reader)) is not None:
                found.append(entry)
        yield from reversed(found)
    if reader is not None:
        reader.close()
