"""Whether the journal, and the kernel's records in it, can be read, and if not, why: silence is evidence only then."""

import os
from pathlib import Path

from forensics.sources.journal_streams import open_reader


def readable(path: Path | None = None) -> str | None:
    """None when the journal can be read; else why not, in words."""
    folders = [path] if path else [Path("/var/log/journal"), Path("/run/log/journal")]
    files = [file for folder in folders for file in _journal_files(folder)]
    if not files:
        return f"no journal files in {' or '.join(map(str, folders))} (or no right to list them)"
    if not any(os.access(file, os.R_OK) for file in files):
        return f"no right to read {files[0]}: the user needs the group systemd-journal"
    return None


def _journal_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    try:
        return [*folder.glob("*.journal"), *folder.glob("*/*.journal")]
    except OSError:
        return []


def kernel_readable(path: Path | None = None) -> str | None:
    """None when the journal has kernel records of this boot; else why not, in words."""
    if reason := readable(path):
        return reason
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    if _has_kernel_record(path, f"_BOOT_ID={boot_id}"):
        return None
    if path is None and Path("/run/systemd/container").exists():
        return "no kernel record of this boot in the journal: this is a container, the kernel's log belongs to its host"
    if _has_kernel_record(path):
        # Of a long boot, the kernel's few records may have been removed since.
        return None
    return "no kernel record of this boot in the journal (journald with ReadKMsg=no, or they were removed)"


def _has_kernel_record(path: Path | None, *matches: str) -> bool:
    reader = open_reader(path)
    try:
        for match in ("_TRANSPORT=kernel", *matches):
            reader.add_match(match)
        reader.seek_head()
        return bool(reader._next())
    finally:
        reader.close()
