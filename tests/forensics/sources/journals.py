"""Real journal files, made from entries by systemd-journal-remote."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

MAKER = Path("/lib/systemd/systemd-journal-remote")
BOOT = "b0" * 16
MACHINE = "ac" * 16
REALTIME_USEC = 1_772_366_400_000_000

Fields = Mapping[str, str | bytes]


def write_journal(path: Path, entries: Sequence[tuple[int, Fields]], boot_id: str = BOOT) -> None:
    """A journal file with these entries; each has its monotonic stamp in microseconds."""
    if not MAKER.exists():
        pytest.skip(f"{MAKER} is missing (package systemd-journal-remote)")
    path.parent.mkdir(parents=True, exist_ok=True)
    exported = b"".join(_exported(usec, fields, boot_id) for usec, fields in entries)
    subprocess.run([MAKER, "-o", path, "-"], input=exported, check=True, capture_output=True, timeout=60)


def _exported(usec: int, fields: Fields, boot_id: str) -> bytes:
    head = f"__REALTIME_TIMESTAMP={REALTIME_USEC + usec}\n__MONOTONIC_TIMESTAMP={usec}\n_BOOT_ID={boot_id}\n"
    data = head.encode()
    for name, value in {"_MACHINE_ID": MACHINE, "_HOSTNAME": "test", **fields}.items():
        octets = value.encode() if isinstance(value, str) else value
        data += name.encode() + b"\n" + len(octets).to_bytes(8, "little") + octets + b"\n"
    return data + b"\n"
