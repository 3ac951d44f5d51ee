"""Processes that a dead run of this server left behind: found, and ended before the next run starts.

systemd kills what is in a unit's cgroup; left over is what it could not kill (a process in the kernel, waiting for
a driver), and what was moved elsewhere. Left over are only processes in this unit's cgroup while its start is being
prepared, and those that were written down as the last run's, by pid and start time. Nothing else is ever touched.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from service.cgroup import unit_cgroup
from service.identity import NOTES, Identity, comm, command_line, identity, noted, state, unit_of

__all__ = ["LeftOver", "describe", "end", "find", "main"]

POLITE_SECONDS = 5.0
HARD_SECONDS = 10.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LeftOver:
    """`invocation_id` is the run that it was seen in, empty where it is known by the cgroup alone."""

    process: Identity
    invocation_id: str = ""


def find(server: str, cgroup_pids: Iterable[int] = (), notes: Path = NOTES) -> tuple[LeftOver, ...]:
    """What is left of earlier runs; `cgroup_pids` are processes of the unit's cgroup that no present run accounts for.

    To be asked only while the unit does not run: its live processes are written down too.
    """
    note = noted(server, notes)
    known = note.processes if note else frozenset()
    found = {process: "" for pid in cgroup_pids if pid != os.getpid() and (process := identity(pid)) is not None}
    for process in known:
        if state(process) not in (None, "Z", "X"):
            found[process] = note.invocation_id if note else ""
    return tuple(LeftOver(process, run) for process, run in sorted(found.items(), key=lambda item: item[0].pid))


def describe(process: Identity, proc: Path = Path("/proc")) -> str:
    """The process as an operator would look for it: pid, name, age, unit, command."""
    name, command = comm(process.pid, proc), command_line(process.pid, proc)
    age = _age(_seconds_since_boot(proc) - process.start_ticks / os.sysconf("SC_CLK_TCK"))
    parts = [name, f"started {age} ago", unit_of(process.pid, proc), command if command != name else ""]
    words = ", ".join(part for part in parts if part)
    return f"pid {process.pid} ({words if len(words) <= 160 else words[:160] + '…'})"


def _seconds_since_boot(proc: Path) -> float:
    return float((proc / "uptime").read_text().split()[0])


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def end(processes: Iterable[Identity], *, polite: float = POLITE_SECONDS, hard: float = HARD_SECONDS) -> list[Identity]:
    """SIGTERM (and SIGCONT, for what is stopped), then SIGKILL; returns those that outlived both."""
    living = [process for process in processes if _signal(process, signal.SIGTERM) and _signal(process, signal.SIGCONT)]
    living = _wait(living, polite)
    living = [process for process in living if _signal(process, signal.SIGKILL)]
    return _wait(living, hard)


def _signal(process: Identity, number: signal.Signals) -> bool:
    """Send it to exactly this process; False when that is gone already."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The handle holds on to one process: if it is the right one now, it is when the signal arrives.
        if identity(process.pid) != process:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _wait(processes: list[Identity], seconds: float) -> list[Identity]:
    until = time.monotonic() + seconds
    living = processes
    while living := [process for process in living if identity(process.pid) == process]:
        if time.monotonic() > until:
            break
        time.sleep(_POLL_SECONDS)
    return living


def main(server: str) -> int:
    """``ExecStartPre=``, as root: end what is left over and say so. Never a failure: preflight judges what remains."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a stop that comes meanwhile
    cgroup = unit_cgroup(server)
    found = find(server, cgroup.pids() if cgroup else ())
    for left in found:
        run = f", run {left.invocation_id}" if left.invocation_id else ""
        print(f"<4>inquest: left over of an earlier run{run}: {describe(left.process)}; ending it", file=sys.stderr)
    for process in end(left.process for left in found):
        words = f"is in the kernel (state {state(process)}) and cannot be ended; a restart of the machine ends it"
        print(f"<3>inquest: left over: {describe(process)} {words}", file=sys.stderr)
    return 0
