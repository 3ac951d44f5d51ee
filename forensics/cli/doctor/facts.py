"""What the doctor looks at, read once. The checks are functions of these facts alone."""

import ctypes
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.cli import client
from forensics.coverage import read_core_pattern
from forensics.errors import InquestError, SettingsError
from forensics.settings import Settings, load
from forensics.sources.journal_access import kernel_readable, readable

GENERATOR = Path("/usr/local/lib/systemd/system-generators/inquest-generator")
PERSISTENT = Path("/var/log/journal")
DAEMON, SIGTRACE, JOURNALD = "inquestd.service", "inquest-sigtrace.service", "systemd-journald.service"
_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "FragmentPath", "SourcePath", "NeedDaemonReload", "KillMode", "OOMPolicy"),
    *("MemoryAccounting", "MemoryCurrent", "LogRateLimitIntervalUSec", "TimeoutStopUSec", "Restart", "RestartUSec"),
    *("SendSIGKILL", "StandardOutput", "ExecStart", "ExecStopPost", "NRestarts"),
)
_SECONDS = 20.0
_NVML_SECONDS = 5.0
_SYNCHRONIZED_USEC = 16_000_000
"""systemd calls a clock synchronized whose greatest error is below this (clock-util.c)."""

Unit = Mapping[str, str]
"""A unit's properties as `systemctl show` prints them."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system that holds `path`."""

    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`settings_problem`, `health_problem`, `journal`, `kernel`: why not, or empty. `health` is GET /healthz,
    `channels` are those of GET /alerts.

    `specs` are the mistakes in each spec. `units` are the units that are watched, `sglang` all others whose command
    line speaks of SGLang. `gpus` says what NVML says; `gpu_problem` why it does not.
    """

    systemd: int
    container: bool
    version: str
    settings: Settings | None
    settings_problem: str
    health: Mapping[str, Any] | None
    health_problem: str
    channels: Sequence[Mapping[str, Any]]
    daemon: Unit
    sigtrace: Unit
    journald: Unit
    journal: str
    kernel: str
    persistent: bool
    core_pattern: str
    coredump_storage: str
    gpus: str
    gpu_problem: str
    clock_synchronized: bool | None
    disks: Sequence[Disk]
    generator: bool
    specs: Mapping[str, Sequence[str]]
    units: Sequence[Unit]
    sglang: Sequence[Unit]


def read() -> Facts:
    """Look at this machine, as whoever calls it."""
    from importlib.metadata import version

    settings, settings_problem = _settings()
    health, health_problem = _health()
    globs = (settings or Settings()).units
    own = {unit["Id"]: unit for unit in _show(DAEMON, SIGTRACE, JOURNALD)}
    # A unit that a pattern finds as well is shown twice.
    shown = {unit["Id"]: unit for unit in _show(*_names(globs))}
    watched = [unit for unit in shown.values() if unit["LoadState"] == "loaded"]
    known = {unit["Id"] for unit in watched} | own.keys()
    others = [
        unit for unit in _show("*.service") if unit["Id"] not in known and re.search(r"\bsglang\b", unit["ExecStart"])
    ]
    gpus, gpu_problem = _gpus()
    state_dir = (settings or Settings()).state_dir
    return Facts(
        systemd=_systemd(),
        container=Path("/run/systemd/container").exists(),
        version=version("inquestd"),
        settings=settings,
        settings_problem=settings_problem,
        health=health,
        health_problem=health_problem,
        channels=_channels() if health else (),
        daemon=own.get(DAEMON, {}),
        sigtrace=own.get(SIGTRACE, {}),
        journald=own.get(JOURNALD, {}),
        journal=readable() or "",
        kernel=kernel_readable() or "",
        persistent=any(PERSISTENT.glob("*/system.journal")) or any(PERSISTENT.glob("*/system@*.journal")),
        core_pattern=read_core_pattern(),
        coredump_storage=_configured("systemd/coredump.conf", "Storage") or "external",
        gpus=gpus,
        gpu_problem=gpu_problem,
        clock_synchronized=_clock_synchronized(),
        disks=tuple(filter(None, map(_disk, (state_dir, PERSISTENT)))),
        generator=os.access(GENERATOR, os.X_OK),
        specs=_specs(),
        units=watched,
        sglang=others,
    )


def _settings() -> tuple[Settings | None, str]:
    try:
        return load(), ""
    except SettingsError as error:
        return None, error.message


def _health() -> tuple[Mapping[str, Any] | None, str]:
    try:
        health: Mapping[str, Any] = client.get("/healthz")
    except InquestError as error:
        return None, error.message
    return health, ""


def _channels() -> Sequence[Mapping[str, Any]]:
    try:
        found: Sequence[Mapping[str, Any]] = client.get("/alerts")["channels"]
    except InquestError:
        return ()
    return found


def _output(*argv: str) -> str:
    """What a command prints; empty when it cannot be run or fails."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _names(globs: Sequence[str]) -> list[str]:
    """The units that match, those at rest too, which a pattern does not find; the patterns, so that there is one."""
    names = list(globs)
    for what in ("list-unit-files", "list-units"):
        listed = _output("systemctl", what, "--all", "--plain", "--no-legend", *globs)
        names += [line.split()[0] for line in listed.splitlines() if line.strip()]
    return list(dict.fromkeys(names))


def _show(*units: str) -> list[dict[str, str]]:
    """The properties of units; of patterns, those of the loaded ones that match."""
    out = _output("systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", *units)
    blank = dict.fromkeys(_PROPERTIES, "")
    shown = [blank | dict(line.partition("=")[::2] for line in block.splitlines()) for block in out.split("\n\n")]
    return [unit for unit in shown if unit["Id"]]


def _systemd() -> int:
    """systemd's version where it is PID 1, else 0."""
    if not Path("/run/systemd/system").is_dir():
        return 0
    found = re.match(r"systemd (\d+)", _output("systemctl", "--version"))
    return int(found[1]) if found else 0


def _configured(file: str, key: str) -> str:
    """The value that is in force after all drop-ins; empty when it is not set."""
    values = re.findall(rf"^{key}=(.*)$", _output("systemd-analyze", "cat-config", file), re.MULTILINE)
    return values[-1].strip() if values else ""


def _gpus() -> tuple[str, str]:
    """What NVML says, or why it does not; both empty where there is no NVIDIA driver."""
    from service.gpus import NoGpus, ask

    try:
        found = ask(_NVML_SECONDS)
    except NoGpus as error:
        return "", str(error) if error.installed else ""
    return f"{len(found.gpus)} × {', '.join(sorted({gpu.name for gpu in found.gpus}))}, driver {found.driver}", ""


def _clock_synchronized() -> bool | None:
    """As systemd finds it, from the kernel (adjtimex(2)): the fourth long of struct timex is its greatest error."""
    timex = (ctypes.c_long * 64)()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        return None
    return bool(timex[3] < _SYNCHRONIZED_USEC)


def _disk(path: Path) -> Disk | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Disk(str(path), found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def _specs() -> dict[str, Sequence[str]]:
    from service.load import SERVERS_DIR
    from units.generator import generated

    return {str(path): [str(one) for one in generated(path).problems] for path in sorted(SERVERS_DIR.glob("*.toml"))}
