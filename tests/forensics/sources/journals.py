"""Real journal files, made from entries by systemd-journal-remote."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

MAKER = Path("/lib/systemd/systemd-journal-remote")
BOOT = "b0" * 16
MACHINE = "ac" * 16
REALTIME_USEC = 1_772_366_400_000_000

Fields = Mapping[str, str | bytes]


def write_journal(path: Path, entries: Sequence[tuple[int, Fields]], boot_id: str = BOOT) -> None:
    """A journal file with these entries; each has its monotonic stamp in microseconds."""
    _write(path, (_exported(REALTIME_USEC + usec, usec, fields, boot_id) for usec, fields in entries))


def write_lines(folder: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """The lines of a story (`Journal.lines`, its journal.jsonl) as journald would have kept them: a file a boot."""
    for boot_id, of_boot in groupby(lines, key=lambda line: str(line["_BOOT_ID"])):
        path = folder / f"system@{len(list(folder.glob('*.journal')))}.journal"
        _write(path, (_exported_line(line, boot_id) for line in of_boot))


def _write(path: Path, exported: Iterable[bytes]) -> None:
    if not MAKER.exists():
        pytest.skip(f"{MAKER} is missing (package systemd-journal-remote)")
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([MAKER, "-o", path, "-"], input=b"".join(exported), check=True, capture_output=True, timeout=60)


def _exported_line(line: Mapping[str, Any], boot_id: str) -> bytes:
    fields = {
        name: bytes(value) if isinstance(value, list) else str(value).encode("utf-8", "surrogateescape")
        for name, value in line.items()
        if not name.startswith("__") and name != "_BOOT_ID"
    }
    return _exported(int(line["__REALTIME_TIMESTAMP"]), int(line["__MONOTONIC_TIMESTAMP"]), fields, boot_id)


def _exported(realtime_usec: int, usec: int, fields: Fields, boot_id: str) -> bytes:
    head = f"__REALTIME_TIMESTAMP={realtime_usec}\n__MONOTONIC_TIMESTAMP={usec}\n_BOOT_ID={boot_id}\n"
    data = head.encode()
    for name, value in {"_MACHINE_ID": MACHINE, "_HOSTNAME": "test", **fields}.items():
        octets = value.encode() if isinstance(value, str) else value
        data += name.encode() + b"\n" + len(octets).to_bytes(8, "little") + octets + b"\n"
    return data + b"\n"
