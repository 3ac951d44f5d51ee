"""The state of the ground after a death: was anything logged, does anything still run, what do the GPUs hold.

It makes fields of the record of what remains:

- ``INQUEST_LAST_LOG_USEC``: when the run's last line was logged, microseconds since 1970; absent where none was
- ``INQUEST_LEFT_PROCESSES``: a line each ``pid start_ticks state comm``, of the unit's cgroup and of the processes
  that were written down as the run's, wherever they are now; empty where none is left
- ``INQUEST_GPUS``: a line each ``index uuid pstate used_bytes total_bytes``, ``?`` for what the driver does not say;
  absent on a machine without NVIDIA's driver
- ``INQUEST_GPU_PROCESSES``: a line each ``index pid used_bytes left|other comm unit``; ``left`` is this run's own

The driver is given little time, and none while an earlier question to it hangs (``service.gpus``).
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from service.cgroup import Cgroup
from service.gpus import Gpus, NoGpus, ask
from service.identity import NOTES, Identity, comm, identity, noted, state, unit_of
from service.logged import ask_last_line, last_usec

__all__ = ["Ground", "look"]

NVML_SECONDS = 0.5
JOURNAL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Ground:
    """Fields for the record, and what could not be looked at."""

    fields: dict[str, str]
    gaps: list[str] = field(default_factory=list)


def look(server: str, invocation_id: str, cgroup: Cgroup | None, notes: Path = NOTES) -> Ground:
    """Look now; takes about a tenth of a second, and a little over one at most."""
    left = _left(server, invocation_id, cgroup, notes)
    question = _question(invocation_id)  # a process of this cgroup too: after the look at those
    gaps: list[str] = []
    fields = {"INQUEST_LEFT_PROCESSES": "\n".join(f"{p.pid} {p.start_ticks} {s} {comm(p.pid)}" for p, s in left)}
    try:
        fields |= _gpu_fields(ask(NVML_SECONDS), frozenset(p for p, _ in left))
    except NoGpus as error:
        if error.installed:
            gaps.append(f"GPUs: {error}")
    if (last := _last_line(question, gaps)) is not None:
        fields["INQUEST_LAST_LOG_USEC"] = str(last)
    return Ground(fields, gaps)


def _left(server: str, invocation_id: str, cgroup: Cgroup | None, notes: Path) -> list[tuple[Identity, str]]:
    """What still runs of this run, by cgroup and by note, with the kernel's letter for its state."""
    ours = cgroup is not None and cgroup.path.endswith(f"/sglang-{server}.service")
    found = {process for pid in (cgroup.pids() if cgroup and ours else ()) if (process := identity(pid)) is not None}
    note = noted(server, notes)
    if note is not None and note.invocation_id == invocation_id:
        found |= note.processes
    living = [(process, letter) for process in found if (letter := state(process)) not in (None, "X")]
    left = [(p, s) for p, s in living if s and p.pid != os.getpid() and not comm(p.pid).startswith("inquest-")]
    # A zombie holds nothing any more; whoever has to reap it is about to.
    return sorted(((p, s) for p, s in left if s != "Z"), key=lambda item: item[0].pid)


def _question(invocation_id: str) -> subprocess.Popen[bytes] | None:
    if not invocation_id:
        return None
    try:
        return ask_last_line(invocation_id)
    except OSError:
        return None


def _last_line(question: subprocess.Popen[bytes] | None, gaps: list[str]) -> int | None:
    if question is None:
        gaps.append("the journal could not be asked")
        return None
    try:
        output, _ = question.communicate(timeout=JOURNAL_SECONDS)
        return last_usec(output)
    except subprocess.TimeoutExpired:
        question.kill()
        question.wait()
        gaps.append(f"the journal did not answer within {JOURNAL_SECONDS:g} s")
    except ValueError:
        gaps.append("the journal's answer was not understood")
    return None


def _gpu_fields(gpus: Gpus, left: frozenset[Identity]) -> dict[str, str]:
    def known(value: object) -> str:
        return "?" if value is None or value == "" else str(value)

    rows, uses = [], []
    for gpu in gpus.gpus:
        values = (gpu.index, gpu.uuid, gpu.pstate, gpu.used_bytes, gpu.total_bytes)
        rows.append(" ".join(map(known, values)))
        for use in gpu.uses:
            whose = "left" if identity(use.pid) in left else "other"
            line = f"{gpu.index} {use.pid} {known(use.used_bytes)} {whose} {comm(use.pid)} {unit_of(use.pid)}"
            uses.append(line.rstrip())
    return {"INQUEST_GPUS": "\n".join(rows), "INQUEST_GPU_PROCESSES": "\n".join(uses)}
