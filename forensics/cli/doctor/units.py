"""Specs, and the units that run SGLang: whether they are set so that a death can be read."""

import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from forensics.cli.doctor.facts import Facts, Unit
from forensics.cli.doctor.row import Row, failed, ok, warning
from service.fields import seconds

_LONGEST_WINDOW_SECONDS = 0.001
_SHORTEST_PAUSE_SECONDS = 1.0
_SHORTEST_STOP_SECONDS = 30.0
_SHELLS = ("sh", "bash", "dash", "env", "docker", "podman", "tmux", "screen")


class Setting(NamedTuple):
    """A property that verdicts rely on: whether a unit's is fit, how to set it, and why it matters."""

    name: str
    fits: Callable[[Unit], bool]
    wanted: str
    why: str


def _span(text: str) -> float:
    return seconds(text) if text else 0.0


def _main_is_sglang(unit: Unit) -> bool:
    path = unit["ExecStart"].partition("path=")[2].partition(" ;")[0]
    return path.rpartition("/")[2] not in _SHELLS


SETTINGS = (
    Setting(
        "ExecStart",
        _main_is_sglang,
        "ExecStart=/path/to/python -m sglang.launch_server …",
        "a wrapper is the main process, so its exit status is what systemd records, not SGLang's",
    ),
    Setting(
        "StandardOutput",
        lambda unit: unit["StandardOutput"] in ("journal", "journal+console", "inherit", ""),
        "StandardOutput=journal",
        "its lines do not reach the journal, and with them every traceback",
    ),
    Setting(
        "KillMode",
        lambda unit: unit["KillMode"] == "mixed",
        "KillMode=mixed",
        "SIGTERM to all processes at once kills the schedulers, and an ordinary stop looks like a crash",
    ),
    Setting(
        "SendSIGKILL",
        lambda unit: unit["SendSIGKILL"] == "yes",
        "SendSIGKILL=yes",
        "a stop that hangs is never ended",
    ),
    Setting(
        "LogRateLimitIntervalUSec",
        lambda unit: 0 < _span(unit["LogRateLimitIntervalUSec"]) <= _LONGEST_WINDOW_SECONDS,
        "LogRateLimitIntervalSec=1us",
        "the journal's rate limit drops exactly the traceback (0 counts as unset)",
    ),
    Setting(
        "MemoryAccounting",
        lambda unit: unit["MemoryAccounting"] == "yes",
        "MemoryAccounting=yes",
        "without memory.events an OOM kill cannot be told from another SIGKILL",
    ),
    Setting(
        "OOMPolicy",
        lambda unit: unit["OOMPolicy"] != "continue",
        "OOMPolicy=kill",
        "after one process was lost to the OOM killer the rest hangs for minutes",
    ),
    Setting(
        "TimeoutStopUSec",
        lambda unit: _SHORTEST_STOP_SECONDS <= _span(unit["TimeoutStopUSec"]) < float("inf"),
        "TimeoutStopSec=5min",
        "SGLang ends its running requests first, without a limit of its own: too short cuts them, infinity may hang",
    ),
    Setting(
        "RestartUSec",
        lambda unit: unit["Restart"] == "no" or _span(unit["RestartUSec"]) >= _SHORTEST_PAUSE_SECONDS,
        "RestartSec=5s",
        "the next life begins before the last words of the dead one are in the journal",
    ),
    Setting(
        "ExecStopPost",
        lambda unit: "remains" in unit["ExecStopPost"],
        "a spec in /etc/inquest/servers, from which the unit is generated",
        "what remains after its end (memory.events, processes left over) is not recorded",
    ),
)


def generator(facts: Facts) -> Row:
    if facts.generator:
        return ok("generator", "units are made from specs at every daemon-reload")
    remedy = "Install it again (`sudo ./deploy/up`), or write units by hand: `inquest units write`."
    return failed("generator", "inquest-generator is not there: specs do not become units", remedy)


def specs(facts: Facts) -> Iterator[Row]:
    for path, problems in facts.specs.items():
        for problem in problems:
            yield failed("spec", problem, f"Correct {path}, then `systemctl daemon-reload`.")
        if not problems:
            yield ok("spec", path)


def units(facts: Facts) -> Iterator[Row]:
    """One row for each unit that is watched, and one more for each setting that verdicts would miss."""
    for unit in facts.units:
        if unit["NeedDaemonReload"] == "yes":
            found = f"{unit['Id']}: what it was made from has changed since"
            yield warning("unit", found, "`systemctl daemon-reload`, and restart it when it may.")
        unfit = [setting for setting in SETTINGS if not setting.fits(unit)]
        for setting in unfit:
            found = f"{unit['Id']}: {setting.name}={_short(unit[setting.name])}: {setting.why}"
            yield warning("unit", found, _how(unit, setting))
        if not unfit:
            yield ok("unit", f"{unit['Id']} is set as verdicts need it")
    for unit in facts.sglang:
        found = f"{unit['Id']} runs SGLang and is not watched"
        globs = (*(facts.settings.units if facts.settings else ()), unit["Id"])
        listed = ", ".join(f'"{glob}"' for glob in globs)
        yield warning("unit", found, f"Set units = [{listed}] in /etc/inquest/inquestd.toml, then restart inquestd.")


def _short(value: str) -> str:
    if value.startswith("{"):
        return value.partition("argv[]=")[2].partition(" ;")[0][:60]
    return value or "(unset)"


def _how(unit: Unit, setting: Setting) -> str:
    if "=" not in setting.wanted:
        return f"Give it {setting.wanted}."
    return f"`systemctl edit {shlex.quote(unit['Id'])}`: in [Service] {setting.wanted}"
