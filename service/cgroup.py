"""The control group of this process: where its files lie, and which processes are in it.

Needs the standard library only, and little of it: it is read while a unit is being taken down.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cgroup", "own_cgroup", "unit_cgroup"]

# systemd puts ExecStartPost= and its like into this child of the unit's cgroup when the unit delegates it.
_CONTROL = "/.control"


@dataclass(frozen=True, slots=True)
class Cgroup:
    """`path` as the kernel names it (``/sglang.slice/sglang-demo.service``).

    `version` is ``v2``, ``hybrid`` (v2 for processes, v1 for the controllers) or ``v1``. `processes` is the folder
    that lists the processes, `memory` the one with the memory controller's files, None where there is none.
    """

    path: str
    version: str
    processes: Path
    memory: Path | None

    def pids(self) -> tuple[int, ...]:
        """Processes in the cgroup itself; empty when it is gone."""
        try:
            return tuple(map(int, (self.processes / "cgroup.procs").read_text().split()))
        except OSError:
            return ()


def unit_cgroup(server: str) -> Cgroup | None:
    """The cgroup of this process where it is that of the server's unit, else None: of no other are processes ended."""
    cgroup = own_cgroup()
    return cgroup if cgroup and cgroup.path.endswith(f"/sglang-{server}.service") else None


def own_cgroup(proc: Path = Path("/proc/self"), mount: Path = Path("/sys/fs/cgroup")) -> Cgroup | None:
    """The unit's cgroup as this process sees it, None where none can be made out."""
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:
        return None
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path.removesuffix(_CONTROL) or "/"
    if (mount / "cgroup.controllers").exists():
        return _unified(paths.get(""), mount)
    return _legacy(paths, mount)


def _unified(path: str | None, mount: Path) -> Cgroup | None:
    if path is None:
        return None
    folder = mount / path.lstrip("/")
    has_memory = (folder / "memory.events").exists()
    return Cgroup(path, "v2", processes=folder, memory=folder if has_memory else None)


def _legacy(paths: dict[str, str], mount: Path) -> Cgroup | None:
    """systemd's own tree is named ``name=systemd``; on a hybrid system the v2 tree beside it counts."""
    hybrid = (mount / "unified" / "cgroup.procs").exists() and "" in paths
    path = paths.get("") if hybrid else paths.get("name=systemd")
    if path is None:
        return None
    processes = mount / ("unified" if hybrid else "systemd") / path.lstrip("/")
    memory = mount / "memory" / paths.get("memory", "/").lstrip("/")
    # In the root of the v1 tree the figures are the whole machine's: the unit has no group of its own there.
    own = paths.get("memory", "/") != "/" and (memory / "memory.limit_in_bytes").exists()
    return Cgroup(path, "hybrid" if hybrid else "v1", processes=processes, memory=memory if own else None)
