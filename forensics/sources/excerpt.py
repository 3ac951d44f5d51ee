"""The journal's own records of one run, in export form, for a bundle that is sent elsewhere: secrets removed.

All of PID 1's on that invocation, each record that its timeline refers to, and of the server's lines the first and the
last; in the order of time, one at a time, so that a long life costs no memory.
"""

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from forensics.entry import Entry
from forensics.redact import redact
from forensics.sources.journal_streams import entry_at, open_reader

FIRST_LINES = 500
LAST_LINES = 5000


def excerpt(invocation_id: str, refs: Iterable[str], path: Path | None = None) -> Iterator[bytes]:
    """Each record as `journalctl -o export` writes it, with the empty line behind it. OSError when the journal cannot
    be opened; what is no longer in it is left out."""
    readers: list[Any] = []

    def reader(*matches: str) -> Any:
        opened = open_reader(path)
        readers.append(opened)
        for match in matches:
            opened.add_match(match)
        return opened

    try:
        sources = (
            _all(reader("_PID=1", f"INVOCATION_ID={invocation_id}")),
            _both_ends(reader(f"_SYSTEMD_INVOCATION_ID={invocation_id}")),
            iter(_referred(reader(), refs)),
        )
        last = ""
        for entry in heapq.merge(*sources, key=lambda entry: (entry.realtime_usec, entry.cursor)):
            if entry.cursor != last:
                yield export(entry)
            last = entry.cursor
    finally:
        for opened in readers:
            opened.close()


def export(entry: Entry) -> bytes:
    """A record in export form; a field with a line break or a control character by its length (systemd's
    JOURNAL_EXPORT_FORMATS)."""
    parts = [
        f"__CURSOR={entry.cursor}\n__REALTIME_TIMESTAMP={entry.realtime_usec}\n"
        f"__MONOTONIC_TIMESTAMP={entry.monotonic_usec}\n".encode()
    ]
    for name, value in entry.fields.items():
        data = redact(value).encode()
        if any(byte < 32 and byte != 9 for byte in data):
            parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts) + b"\n"


def _all(reader: Any) -> Iterator[Entry]:
    reader.seek_head()
    while reader._next():
        if (entry := entry_at(reader)) is not None:
            yield entry


def _both_ends(reader: Any) -> Iterator[Entry]:
    reader.seek_head()
    cursor = ""
    for _ in range(FIRST_LINES):
        if not reader._next():
            return
        if (entry := entry_at(reader)) is not None:
            yield entry
        cursor = reader._get_cursor()
    reader.seek_tail()
    reader._previous(LAST_LINES)
    if _before(reader._get_cursor(), cursor):
        reader.seek_cursor(cursor)
        reader._next()
    elif (entry := entry_at(reader)) is not None and reader._get_cursor() != cursor:
        yield entry
    while reader._next():
        if (entry := entry_at(reader)) is not None:
            yield entry


def _before(cursor: str, other: str) -> bool:
    """Whether a cursor is an earlier place than another one: by the wall clock, of which both have the stamp."""
    return _stamp(cursor) < _stamp(other)


def _stamp(cursor: str) -> int:
    return next((int(part[2:], 16) for part in cursor.split(";") if part.startswith("t=")), 0)


def _referred(reader: Any, refs: Iterable[str]) -> list[Entry]:
    found = []
    for ref in dict.fromkeys(refs):
        if not ref.startswith("s=") or ";i=" not in ref:
            continue  # a path, or a stand-in
        try:
            reader.seek_cursor(ref)
        except (OSError, ValueError):
            continue
        if reader._next() and reader.test_cursor(ref) and (entry := entry_at(reader)) is not None:
            found.append(entry)
    return sorted(found, key=lambda entry: (entry.realtime_usec, entry.cursor))
