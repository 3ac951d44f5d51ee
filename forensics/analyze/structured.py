"""Saved journals whose fields are there: binary files, `-o export`, `-o json`, `-o verbose`, and `dmesg --json`."""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from forensics.analyze.lines import Line
from forensics.analyze.text import UNDATED
from forensics.entry import Entry
from forensics.errors import InputError
from forensics.sources import export
from forensics.sources.journal_streams import entry_at, open_reader

_VERBOSE_HEAD = re.compile(
    r"\S+ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* \S+ \[(?P<cursor>s=[0-9a-f]+;i=[0-9a-f]+;b=(?P<boot>[0-9a-f]+)"
    r";m=(?P<mono>[0-9a-f]{1,16});t=(?P<real>[0-9a-f]{1,16});x=[0-9a-f]+)\]"
)
_VERBOSE_FIELD = re.compile(r" {4}(?P<name>[A-Z_][A-Z0-9_]*)=(?P<value>.*)", re.DOTALL)
_BLOCK = 1 << 16
_LONGEST_OBJECT = 1 << 22


def journal_entries(path: Path | None, stream: BinaryIO) -> Iterator[Entry]:
    """Entries of a binary journal file; what is compressed or piped is laid down in a file first."""
    with tempfile.TemporaryDirectory(prefix="inquest-analyze-") as folder:
        plain = path
        if plain is None or plain.suffix != ".journal":
            plain = Path(folder) / "saved.journal"
            with plain.open("wb") as saved:
                while block := stream.read(1 << 20):
                    saved.write(block)
        try:
            reader = open_reader(plain)
        except (OSError, ValueError) as error:
            raise InputError(
                "journal-unreadable", f"{path or 'standard input'} is a journal that cannot be opened: {error}"
            ) from error
        try:
            while reader._next():
                entry = entry_at(reader)
                if entry is not None:
                    yield entry
        except OSError as error:
            # A file that was cut short, or that the machine's fall damaged: what stands before is read.
            raise Damaged(str(error)) from error
        finally:
            reader.close()


class Damaged(Exception):
    """The rest of a file cannot be read."""


def json_entries(lines: Iterable[Line]) -> Iterator[Entry]:
    """Entries of `-o json`, `json-sse`, `json-seq` and `json-pretty`."""
    for record in objects(lines):
        entry = export.entry_of({name: export._text(value) for name, value in record.items()})
        if entry is not None:
            yield entry


def objects(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream, one a line or spread over lines, alone or in an array. Junk is passed over."""
    decoder = json.JSONDecoder()
    buffer = ""
    for line in lines:
        text = line.text.lstrip("\ufeff\x1e").removeprefix("data: ")
        if not buffer:
            text = text.strip().lstrip("[,").strip().rstrip(",")
            if not text.startswith("{"):
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                if isinstance(record, dict):
                    yield record
                continue
        buffer += text + "\n"
        if not text.rstrip().endswith(("}", "},", "},{", "]")) and len(buffer) < _LONGEST_OBJECT:
            continue
        while True:
            stripped = buffer.lstrip(" \t\r\n,[]")
            if not stripped.startswith("{"):
                buffer = ""
                break
            try:
                record, end = decoder.raw_decode(stripped)
            except (ValueError, RecursionError):
                buffer = stripped if len(stripped) < _LONGEST_OBJECT else ""
                break
            if isinstance(record, dict):
                yield record
            buffer = stripped[end:]


def verbose_entries(lines: Iterable[Line]) -> Iterator[Entry]:
    """Entries of `-o verbose`: a head with the cursor, then a field a line."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines:
        text = line.text
        if head := _VERBOSE_HEAD.match(text):
            if entry := export.entry_of(fields):
                yield entry
            fields = {
                "__CURSOR": head["cursor"],
                "__REALTIME_TIMESTAMP": str(int(head["real"], 16)),
                "__MONOTONIC_TIMESTAMP": str(int(head["mono"], 16)),
                "_BOOT_ID": head["boot"],
            }
            name = ""
        elif found := _VERBOSE_FIELD.match(text):
            name = found["name"] if found["name"] not in fields else ""
            if name:
                fields[name] = found["value"]
        elif name and fields:
            fields[name] += "\n" + text.strip()
    if entry := export.entry_of(fields):
        yield entry


def dmesg_json_entries(lines: Iterable[Line], name: str) -> Iterator[Entry]:
    """Entries of `dmesg --json`: `{"dmesg": [{"pri": …, "time": …, "msg": …}, …]}`."""

    def unpacked() -> Iterator[Line]:
        begun = False
        for line in lines:
            text = line.text
            if not begun and '"dmesg"' in text:
                begun, text = True, text.partition('"dmesg"')[2].lstrip(" \t:")
            if begun:
                yield Line(line.number, text.encode())

    for number, record in enumerate(_loose_objects(unpacked()), start=1):
        message, priority = record.get("msg"), record.get("pri")
        if not isinstance(message, str) or (isinstance(priority, int) and priority >> 3):
            continue  # another facility's is not the kernel's own
        seconds = _seconds(record.get("time"))
        usec = int(seconds * 1_000_000) if seconds is not None and 0 <= seconds < 1e12 else 0
        yield Entry(
            cursor=f"{name}:{number}",
            boot_id=UNDATED,
            monotonic_usec=usec,
            realtime_usec=usec,
            fields={"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": message},
        )


def _seconds(time: Any) -> float | None:
    if isinstance(time, bool):
        return None
    if isinstance(time, int | float):
        return float(time)
    try:
        return float(str(time))
    except ValueError:
        return None


def _loose_objects(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """Objects that stand as `{`, members, `},{`, members, `}` over many lines, and single ones."""
    return objects(_split(lines))


def _split(lines: Iterable[Line]) -> Iterator[Line]:
    for line in lines:
        text = line.text
        if text.strip() in ("},{", "}, {"):
            yield Line(line.number, b"}")
            yield Line(line.number, b"{")
        else:
            yield line
