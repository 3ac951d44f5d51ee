"""Which sources can be read on this machine, and why not: silence is evidence only of a source that is heard."""

from pathlib import Path

from forensics.events import Gap

RECORDED = frozenset({"systemd", "kernel", "server", "coredump", "oomkillers"})
"""The names of the recorded sources: all of them are read from the journal."""


def recorded_gaps(journal: str | None, kernel: str | None, core_pattern: str) -> tuple[Gap, ...]:
    """The gaps of the recorded sources.

    `journal` and `kernel` are the reasons why the journal, or the kernel's records in it, cannot be read (None: they
    can); `core_pattern` is the text of /proc/sys/kernel/core_pattern.
    """
    if journal is not None:
        return tuple(Gap(source=source, reason=journal) for source in sorted(RECORDED))
    gaps = []
    if kernel is not None:
        gaps.append(Gap(source="kernel", reason=kernel))
    if "systemd-coredump" not in core_pattern:
        gaps.append(
            Gap(source="coredump", reason=f"core dumps do not go to systemd-coredump (core_pattern: {core_pattern})")
        )
    return tuple(gaps)


def read_core_pattern(path: Path = Path("/proc/sys/kernel/core_pattern")) -> str:
    """The kernel's core_pattern; empty when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
