"""Journal entries from saved text: `journalctl -o export` and `-o json`, read as a stream.

Formats: systemd's JOURNAL_EXPORT_FORMATS. The same `Entry` comes out as from the live journal.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, BinaryIO

from forensics.entry import Entry

# Fields that hold whole files; nobody asks for them here, and a core dump can be gigabytes.
_UNWANTED = frozenset(
    {
        "COREDUMP",
        "COREDUMP_ENVIRON",
        "COREDUMP_OPEN_FDS",
        "COREDUMP_PROC_AUXV",
        "COREDUMP_PROC_LIMITS",
        "COREDUMP_PROC_MAPS",
        "COREDUMP_PROC_MOUNTINFO",
        "COREDUMP_PROC_STATUS",
    }
)
# A field longer than this is cut.
_LONGEST_BYTES = 1 << 20


def read_export(file: str | PathLike[str] | BinaryIO) -> Iterator[Entry]:
    """Entries of an export stream: a path, or a binary file object such as standard input's buffer.

    An entry that the end of the file cuts short is dropped, and so is one without its stamps.
    """
    return _from(file, _export_fields)


def read_json(file: str | PathLike[str] | BinaryIO) -> Iterator[Entry]:
    """Entries of `journalctl -o json`: an object a line. Lines that are no JSON object are passed over."""
    return _from(file, _json_fields)


def _from(
    file: str | PathLike[str] | BinaryIO, fields_of: Callable[[BinaryIO], Iterable[Mapping[str, str]]]
) -> Iterator[Entry]:
    if isinstance(file, (str, PathLike)):
        with open(file, "rb") as opened:
            yield from _joined(fields_of(opened))
    else:
        yield from _joined(fields_of(file))


def _joined(records: Iterable[Mapping[str, str]]) -> Iterator[Entry]:
    """Entries; the parts into which journald split one long line (`_LINE_BREAK=line-max`) become one again."""
    open_lines: dict[str, tuple[Entry, list[str]]] = {}
    for fields in records:
        entry = entry_of(fields)
        if entry is None:
            continue
        stream = f"{entry.get('_STREAM_ID')} {entry.get('_PID')}"
        if entry.get("_LINE_BREAK") == "line-max":
            open_lines.setdefault(stream, (entry, []))[1].append(entry.message)
            continue
        if open_lines and stream in open_lines:
            first, parts = open_lines.pop(stream)
            entry = with_message(first, "".join((*parts, entry.message)))
        yield entry
    for first, parts in open_lines.values():
        yield with_message(first, "".join(parts))


def with_message(entry: Entry, message: str) -> Entry:
    return Entry(
        cursor=entry.cursor,
        boot_id=entry.boot_id,
        monotonic_usec=entry.monotonic_usec,
        realtime_usec=entry.realtime_usec,
        fields={**entry.fields, "MESSAGE": message},
    )


def entry_of(fields: Mapping[str, str]) -> Entry | None:
    """An entry from its fields and its four address fields (`__CURSOR` …); None when it has no time stamp."""
    realtime = _decimal(fields.get("__REALTIME_TIMESTAMP", ""))
    if realtime is None:
        return None
    monotonic = _decimal(fields.get("__MONOTONIC_TIMESTAMP", ""))
    if fields.get("_TRANSPORT") == "kernel":
        stamped = _decimal(fields.get("_SOURCE_MONOTONIC_TIMESTAMP", ""))
        monotonic = monotonic if stamped is None else stamped
    return Entry(
        cursor=fields.get("__CURSOR", ""),
        boot_id=fields.get("_BOOT_ID", ""),
        monotonic_usec=realtime if monotonic is None else monotonic,
        realtime_usec=realtime,
        fields={name: value for name, value in fields.items() if not name.startswith("__")},
    )


def _decimal(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _export_fields(file: BinaryIO) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    while True:
        line = file.readline(_LONGEST_BYTES)
        if not line:
            break
        if line == b"\n":
            if fields:
                yield fields
                fields = {}
            continue
        whole = line.endswith(b"\n")
        while not line.endswith(b"\n") and (rest := file.readline(_LONGEST_BYTES)):
            line, whole = line[:_LONGEST_BYTES] if not rest.endswith(b"\n") else line + b"\n", rest.endswith(b"\n")
        name, equals, value = line.rstrip(b"\n").partition(b"=")
        if not equals:
            value, whole = _sized(file)
        key = name.decode("ascii", "replace")
        if not whole:
            return
        if key not in _UNWANTED and key not in fields:
            fields[key] = value[:_LONGEST_BYTES].decode("utf-8", "replace")
    # The last entry of a stream may lack its empty line.
    if fields:
        yield fields


def _sized(file: BinaryIO) -> tuple[bytes, bool]:
    """A value with its length in front: 64 bits, little-endian; and whether it was there to its end."""
    length = file.read(8)
    if len(length) < 8:
        return b"", False
    size = int.from_bytes(length, "little")
    kept = file.read(min(size, _LONGEST_BYTES))
    left = size - len(kept)
    while left > 0:
        skipped = len(file.read(min(left, _LONGEST_BYTES)))
        if not skipped:
            return kept, False
        left -= skipped
    return kept, len(kept) == min(size, _LONGEST_BYTES) and file.read(1) == b"\n"


def _json_fields(file: BinaryIO) -> Iterator[dict[str, str]]:
    for line in file:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield {name: _text(value) for name, value in record.items() if name not in _UNWANTED}


def _text(value: Any) -> str:
    """A field of the JSON form: text, an array of bytes where it was not UTF-8, an array of these where the field
    occurs more than once (the first counts), null where it was too long to be shown."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if isinstance(value[0], int):
            return bytes(byte for byte in value if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
        return _text(value[0])
    return "" if value is None or value == [] else str(value)
