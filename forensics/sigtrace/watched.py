"""Which processes belong to watched units, told by systemd's own cgroup tree (v2, v1 or hybrid)."""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from forensics.sigtrace.process import cgroup_of

CGROUPS = Path("/sys/fs/cgroup")
INVOCATIONS = Path("/run/systemd/units")
"""`invocation:UNIT` is a link to the invocation id: so journald learns it too."""


def unit_of(cgroup: str) -> str:
    """The system's unit that a cgroup path lies in: the first part that is not a slice, or else the innermost slice.

    What a container or a user's own manager runs has a unit before it in the path, and is not ours. Empty for an empty
    path, which stands for an unknown one.
    """
    if not cgroup:
        return ""
    parts = [part for part in cgroup.split("/") if part]
    return next((part for part in parts if not part.endswith(".slice")), parts[-1] if parts else "-.slice")


class Watched:
    """The processes of the units that match the globs, as of the last `refresh`; younger ones are looked up."""

    def __init__(
        self, globs: Sequence[str], *, cgroups: Path = CGROUPS, proc: str = "/proc", run: Path = INVOCATIONS
    ) -> None:
        self._globs = tuple(globs)
        self._proc = proc
        self._run = run
        systemd = [cgroups / "systemd", cgroups / "unified"]
        self._root = next((path for path in systemd if path.is_dir()), cgroups)
        self._now: dict[int, str] = {}
        self._before: dict[int, str] = {}
        self.pids: frozenset[int] = frozenset()
        """The processes."""
        self.units: frozenset[str] = frozenset()
        """The watched units that have processes."""

    def refresh(self) -> None:
        """Read the cgroups anew. Who died since the last time is remembered once more.

        Threads too: a server that kills itself from one of its threads is gone with the thread, and with what /proc
        said of it.
        """
        self._before, self._now = self._now, {}
        pids: set[int] = set()
        for folder in self._folders(self._root):
            processes = set(_listed(folder, "cgroup.procs"))
            pids |= processes
            for tid in (*processes, *_listed(folder, "cgroup.threads"), *_listed(folder, "tasks")):
                self._now[tid] = folder.name
        self.pids, self.units = frozenset(pids), frozenset(self._now.values())

    def unit(self, tid: int) -> str:
        """The watched unit that a process or thread belongs to; empty when it is none of them, or gone and unknown."""
        if known := self._now.get(tid) or self._before.get(tid):
            return known
        unit = unit_of(cgroup_of(tid, self._proc))
        if not self._matches(unit):
            return ""
        self._now[tid] = unit
        return unit

    def invocation_id(self, unit: str) -> str:
        """The unit's present invocation; empty when there is none."""
        try:
            return os.readlink(self._run / f"invocation:{unit}")
        except OSError:
            return ""

    def _matches(self, unit: str) -> bool:
        return any(fnmatchcase(unit, glob) for glob in self._globs)

    def _folders(self, folder: Path) -> Iterator[Path]:
        """The units' cgroups, which lie in slices only."""
        try:
            entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".slice", ".service"))]
        except OSError:
            return  # removed meanwhile
        for entry in entries:
            if entry.name.endswith(".slice"):
                yield from self._folders(Path(entry.path))
            elif self._matches(entry.name):
                yield Path(entry.path)


def _listed(folder: Path, name: str) -> Iterator[int]:
    """The ids in a file of a cgroup and of those below it. Threads are in `cgroup.threads` of v2, in `tasks` of v1."""
    for path, _, files in os.walk(folder):
        if name not in files:
            continue
        try:
            yield from map(int, Path(path, name).read_text().split())
        except OSError:
            continue  # removed meanwhile
