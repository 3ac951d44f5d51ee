"""What remains of a server after its death: one journal record, written while its cgroup still exists.

Run by ``ExecStopPost=``. PID 1 removes the cgroup, and with it the kernel's counts of OOM kills and the memory
peak, as soon as this ends. Must be quick and must never fail the unit, so it imports almost nothing, has an alarm,
and turns every unreadable file into a word in ``INQUEST_GAPS``. The state of the ground is in ``service.ground``.

The record is believed because root wrote it (``_UID=0``, a field that only the kernel and journald can set).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from service.cgroup import Cgroup, own_cgroup
from service.ground import Ground, look
from service.journal import JOURNAL_SOCKET, send
from service.notify import status

__all__ = ["MESSAGE_ID", "main", "record"]

MESSAGE_ID = "9be21e5d0ed4410f859f6bc35d9b4b7a"
DEADLINE_SECONDS = 5
_NOTICE = "5"

# What systemd tells an ExecStopPost= process about the life that ended (systemd.exec(5)).
_FROM_SYSTEMD = ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS", "INVOCATION_ID")
# One number each. Releases of Linux differ in which they have.
_V2_NUMBERS = ("memory.peak", "memory.swap.peak", "memory.max", "memory.high", "memory.swap.max", "memory.current")
_V2_TABLES = ("memory.events", "memory.events.local", "memory.swap.events")
_V1_NUMBERS = ("memory.max_usage_in_bytes", "memory.failcnt", "memory.limit_in_bytes", "memory.usage_in_bytes")
_V1_TABLES = ("memory.oom_control",)


def record(
    server: str,
    environ: dict[str, str],
    cgroup: Cgroup | None,
    ground: Ground | None = None,
) -> dict[str, str]:
    """The record's fields, in the origin's names: ``memory.events``' ``oom_kill`` is
    ``INQUEST_MEMORY_EVENTS_OOM_KILL``, ``$SERVICE_RESULT`` is ``INQUEST_SERVICE_RESULT``. Sizes in bytes, as the
    kernel prints them (``max`` is no limit).
    """
    unit = f"sglang-{server}.service"
    fields = {"MESSAGE_ID": MESSAGE_ID, "PRIORITY": _NOTICE, "SYSLOG_IDENTIFIER": "inquest-remains"}
    # With OBJECT_SYSTEMD_UNIT= from root, 'journalctl -u' shows the record among the unit's own.
    fields |= {"OBJECT_SYSTEMD_UNIT": unit, "INQUEST_UNIT": unit, "INQUEST_SERVER": server}
    fields |= {f"INQUEST_{name}": environ[name] for name in _FROM_SYSTEMD if name in environ}
    gaps: list[str] = []
    if cgroup is None:
        gaps.append("the unit's cgroup could not be made out")
    else:
        fields |= {"INQUEST_CGROUP": cgroup.path, "INQUEST_CGROUP_VERSION": cgroup.version}
        if cgroup.memory is None:
            gaps.append("no memory controller in the unit's cgroup")
        else:
            fields |= _memory(cgroup.memory, cgroup.version, gaps)
    if ground is not None:
        fields |= ground.fields
        gaps += ground.gaps
    if gaps:
        fields["INQUEST_GAPS"] = "; ".join(gaps)
    return {"MESSAGE": _sentence(unit, fields)} | fields


def _memory(folder: Path, version: str, gaps: list[str]) -> dict[str, str]:
    numbers, tables = (_V2_NUMBERS, _V2_TABLES) if version == "v2" else (_V1_NUMBERS, _V1_TABLES)
    fields: dict[str, str] = {}
    for name in numbers:
        if (text := _text(folder / name, gaps)) is not None:
            fields[_field(name)] = text
    for name in tables:
        for line in (_text(folder / name, gaps) or "").splitlines():
            key, _, value = line.partition(" ")
            fields[_field(f"{name}.{key}")] = value
    return fields


def _text(path: Path, gaps: list[str]) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:  # a younger file than this kernel, or no swap: the field is absent
        return None
    except OSError as error:
        gaps.append(f"{path.name}: {error.strerror}")
        return None


def _field(name: str) -> str:
    return "INQUEST_" + name.upper().replace(".", "_")


def _sentence(unit: str, fields: dict[str, str]) -> str:
    """For people; whoever needs the figures takes the fields."""
    how = f"{fields.get('INQUEST_EXIT_CODE', '')} {fields.get('INQUEST_EXIT_STATUS', '')}".strip()
    parts = [f"result {fields.get('INQUEST_SERVICE_RESULT', 'unknown')}"]
    parts.append(f"main process {how}" if how else "no main process")
    if kills := fields.get("INQUEST_MEMORY_EVENTS_OOM_KILL") or fields.get("INQUEST_MEMORY_OOM_CONTROL_OOM_KILL"):
        parts.append(f"oom_kill {kills}")
    if peak := fields.get("INQUEST_MEMORY_PEAK") or fields.get("INQUEST_MEMORY_MAX_USAGE_IN_BYTES"):
        parts.append(f"memory peak {int(peak) / 2**20:.0f} MiB" if peak.isdecimal() else f"memory peak {peak}")
    return f"{unit} ended: {', '.join(parts)}"


def main(server: str, journal: str = JOURNAL_SOCKET) -> int:
    """Write the record; 0 whatever happens, since a death must not look like a failure of this."""
    signal.alarm(DEADLINE_SECONDS)
    try:
        cgroup = own_cgroup()
        ground = look(server, os.environ.get("INVOCATION_ID", ""), cgroup)
        fields = record(server, dict(os.environ), cgroup, ground=ground)
        send(fields, journal)
        if "INQUEST_EXIT_CODE" in fields:  # else the status still says why the main process was not started
            status(fields["MESSAGE"].partition(" ")[2])
    except Exception as error:  # the unit's own result must stand
        print(f"<4>inquest: remains not recorded: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        signal.alarm(0)
    return 0
