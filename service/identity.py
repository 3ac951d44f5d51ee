"""Which processes are a server's own: each by its pid and start time, noted where only root can write.

A pid alone may have been given to another process since. Standard library only: a start and a stop wait for it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOTES", "Identity", "Note", "comm", "command_line", "identity", "note", "noted", "state", "unit_of"]

NOTES = Path("/run/inquest/servers")


@dataclass(frozen=True, slots=True)
class Identity:
    """`start_ticks` is field 22 of ``/proc/PID/stat``: the kernel's clock ticks from boot to the process's start."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Note:
    """The processes that a run of a server was last seen to have."""

    invocation_id: str
    processes: frozenset[Identity]


def identity(pid: int, proc: Path = Path("/proc")) -> Identity | None:
    """The process that has `pid` now; None where there is none, or only what waits to be reaped."""
    fields = _stat(pid, proc)
    return None if fields is None or fields[0] in "ZX" else Identity(pid, int(fields[19]))


def state(process: Identity, proc: Path = Path("/proc")) -> str | None:
    """The kernel's letter for what it does (``R``, ``S``, ``D``, ``T``, ``Z`` …); None when it is gone."""
    fields = _stat(process.pid, proc)
    return None if fields is None or int(fields[19]) != process.start_ticks else fields[0]


def _stat(pid: int, proc: Path) -> list[str] | None:
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def comm(pid: int, proc: Path = Path("/proc")) -> str:
    """Its short name, 15 characters at most; ``?`` where it cannot be read."""
    try:
        return (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return "?"


def command_line(pid: int, proc: Path = Path("/proc")) -> str:
    """Its command line as one line, up to its first option, since an option can be a key (``--api-key``) and this ends
    in the journal; empty for a kernel thread, a zombie, or what is gone."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return " ".join(" ".join(itertools.takewhile(lambda word: not word.startswith("--"), words)).split())


def unit_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The unit that systemd has the process in, by its cgroup; empty where it is in none."""
    with suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in {"", "name=systemd"}:
                parts = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
                if parts:
                    return parts[0]
    return ""


def note(server: str, invocation_id: str, pids: Iterable[int], folder: Path = NOTES) -> None:
    """Write down the processes of this run, in place of what stood there. Raises ``OSError``."""
    processes = [found for pid in pids if (found := identity(pid)) is not None]
    text = "".join(f"{line}\n" for line in (invocation_id, *(f"{p.pid} {p.start_ticks}" for p in processes)))
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, folder.parent):
        made.chmod(0o755)
    unfinished = folder / f".{server}.{os.getpid()}"
    unfinished.write_text(text)
    unfinished.chmod(0o644)
    unfinished.replace(folder / server)


def noted(server: str, folder: Path = NOTES) -> Note | None:
    """What was last written down for the server since the machine's boot; None where nothing can be believed."""
    path = folder / server
    try:
        if path.stat().st_uid not in (0, os.geteuid()):
            return None
        invocation_id, *lines = path.read_text().splitlines()
        pairs = (line.split() for line in lines)
        return Note(invocation_id, frozenset(Identity(int(pid), int(ticks)) for pid, ticks in pairs))
    except (OSError, ValueError):
        return None
