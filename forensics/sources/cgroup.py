"""The memory of a unit's cgroup while it lives: the counters vanish with it. Versions 2 and 1 and both at once."""

from pathlib import Path

from forensics.errors import SourceError
from forensics.events import CgroupMemory
from forensics.sources.clock import sampled_now

SOURCE = "cgroup"
MOUNT = Path("/sys/fs/cgroup")

# cgroup v1 says "no limit" with the largest multiple of the page size.
_V1_UNLIMITED = 1 << 62


def processes_folder(control_group: str, mount: Path = MOUNT) -> Path:
    """Where the cgroup's processes are listed: `control_group` is systemd's ControlGroup, a path below the mount."""
    below = control_group.lstrip("/")
    if (mount / "cgroup.controllers").exists():
        return mount / below
    for tree in ("unified", "systemd"):
        if (folder := mount / tree / below).exists():
            return folder
    return mount / "systemd" / below


def sample(control_group: str, mount: Path = MOUNT) -> CgroupMemory | None:
    """The figures now; None when the cgroup is gone. SourceError when it has no memory controller, as in containers
    or without MemoryAccounting."""
    unified = (mount / "cgroup.controllers").exists()
    folder = mount / control_group.lstrip("/") if unified else mount / "memory" / control_group.lstrip("/")
    current = _number(folder / ("memory.current" if unified else "memory.usage_in_bytes"))
    if current is None or not control_group.strip("/"):
        if not processes_folder(control_group, mount).exists():
            return None
        raise SourceError(SOURCE, "no-memory-controller", f"no memory controller in the unit's cgroup {control_group}")
    record = sampled_now(SOURCE, str(folder), f"{current} bytes")
    if not unified:
        return CgroupMemory(
            record=record,
            current_bytes=current,
            peak_bytes=_number(folder / "memory.max_usage_in_bytes"),
            max_bytes=_limit(folder / "memory.limit_in_bytes"),
            swap_current_bytes=None,
            oom=_number(folder / "memory.failcnt"),
            oom_kill=_counts(folder / "memory.oom_control").get("oom_kill"),
        )
    events = _counts(folder / "memory.events")
    return CgroupMemory(
        record=record,
        current_bytes=current,
        peak_bytes=_number(folder / "memory.peak"),
        max_bytes=_limit(folder / "memory.max"),
        swap_current_bytes=_number(folder / "memory.swap.current"),
        oom=events.get("oom"),
        oom_kill=events.get("oom_kill"),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _limit(path: Path) -> int | None:
    """None for no limit, which v2 writes as `max`."""
    number = _number(path)
    return None if number is None or number >= _V1_UNLIMITED else number


def _counts(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
