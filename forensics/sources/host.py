"""The machine's memory, and how many OOM kills its kernel has done since the boot.

/proc/vmstat's `oom_kill` counts the kills of every OOM killer of the kernel, in any cgroup and for any container, and
is readable even where the kernel's log is not: unchanged over a death, it proves that none was at work.
"""

from pathlib import Path

from forensics.errors import SourceError
from forensics.events import HostMemory
from forensics.sources.clock import sampled_now

SOURCE = "host"


def sample(proc: Path = Path("/proc")) -> HostMemory:
    """The figures now. SourceError when /proc/meminfo cannot be read; the counter is None before Linux 4.13."""
    try:
        meminfo = _table(proc / "meminfo")
    except OSError as error:
        raise SourceError(SOURCE, "meminfo-unreadable", f"cannot read {proc / 'meminfo'}: {error.strerror}") from error
    try:
        oom_kill = _table(proc / "vmstat").get("oom_kill")
    except OSError:
        oom_kill = None
    total, available = meminfo.get("MemTotal", 0) * 1024, meminfo.get("MemAvailable", 0) * 1024
    return HostMemory(
        record=sampled_now(SOURCE, str(proc / "meminfo"), f"{available} of {total} bytes available"),
        total_bytes=total,
        available_bytes=available,
        swap_free_bytes=meminfo.get("SwapFree", 0) * 1024,
        vmstat_oom_kill=oom_kill,
    )


def _table(path: Path) -> dict[str, int]:
    """`name: 12 kB` or `name 12`, a line each."""
    rows = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
