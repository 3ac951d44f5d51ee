"""The processes of a unit's cgroup: who they are, and how much memory each has."""

import resource
from collections.abc import Iterator
from pathlib import Path

from forensics.errors import SourceError
from forensics.events import Process, ProcessTree
from forensics.redact import redact
from forensics.sources.cgroup import MOUNT, processes_folder
from forensics.sources.clock import sampled_now

SOURCE = "process"

_PAGE_BYTES = resource.getpagesize()
_KEPT_CHARACTERS = 1000
_MOST_PROCESSES = 256


def sample(
    control_group: str, main_pid: int | None, *, proc: Path = Path("/proc"), mount: Path = MOUNT
) -> ProcessTree | None:
    """The cgroup's processes, those in cgroups below it too; None when there is none any more. SourceError when the
    cgroup is there and cannot be listed."""
    folder = processes_folder(control_group, mount)
    try:
        pids = sorted(_pids(folder))[:_MOST_PROCESSES]
    except OSError as error:
        if not folder.exists():
            return None
        raise SourceError(SOURCE, "cgroup-unreadable", f"cannot list {folder}: {error.strerror}") from error
    processes = tuple(process for pid in pids if (process := _process(proc / str(pid), pid)))
    if not processes:
        return None
    names = ", ".join(f"{process.pid} {process.comm}" for process in processes)
    return ProcessTree(record=sampled_now(SOURCE, str(folder), names), main_pid=main_pid, processes=processes)


def _pids(folder: Path) -> Iterator[int]:
    yield from (int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0")
    for below in folder.iterdir():
        if below.is_dir():
            yield from _pids(below)


def _process(folder: Path, pid: int) -> Process | None:
    """proc_pid_stat(5); None when the process has just gone."""
    try:
        stat = (folder / "stat").read_text(errors="replace")
        cmdline = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return None
    before, _, after = stat.rpartition(")")
    fields = after.split()
    if len(fields) < 22:
        return None
    return Process(
        pid=pid,
        ppid=int(fields[1]),
        comm=before.partition("(")[2],
        cmdline=redact(cmdline)[:_KEPT_CHARACTERS],
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        start_ticks=int(fields[19]),
    )
