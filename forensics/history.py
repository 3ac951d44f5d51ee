"""The same death again: how often, since when, and what was changed in between without curing it. Pure.

The configuration is what SGLang itself printed as effective (`server_args=…`), else the command line of main.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from forensics.events import ProcessTree, ServerArgs
from forensics.timeline import Timeline

_VOLATILE = frozenset({"random_seed", "nccl_port", "dist_init_addr", "log_level", "log_level_http"})
"""Arguments that differ between runs of one configuration, or that cannot matter to a death."""

_SHOWN_CHANGES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One argument that differs; None where it was not set."""

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"`{self.name}` {self.before if self.before is not None else '(unset)'} → {self.after or '(unset)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier run as the store remembers it."""

    crash_id: str
    died_at: datetime
    configuration: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`occurrence` is 1 for the first death of this fingerprint. `since_previous` are the changes since the last death
    of the same fingerprint, `since_good` those since the last run that served. `sentence` says it."""

    occurrence: int
    first_at: datetime | None
    previous_id: str | None
    good_id: str | None
    since_previous: tuple[Change, ...]
    since_good: tuple[Change, ...]
    sentence: str


def configuration(timeline: Timeline) -> dict[str, str]:
    """The effective configuration of a run, name → value as printed; empty when it was not recorded."""
    printed = timeline.last(ServerArgs)
    if printed is not None:
        return {name: value for name, value in printed.args if name not in _VOLATILE}
    for tree in timeline.all(ProcessTree):
        for process in tree.processes:
            if process.pid == tree.main_pid:
                return _from_command_line(process.cmdline)
    return {}


def speculation(timeline: Timeline) -> tuple[tuple[str, str], ...]:
    """How the server decoded speculatively: the arguments of `configuration` that are set, algorithm first; empty for
    one that did not, or whose configuration was not recorded."""
    given = configuration(timeline)
    chosen = {
        name.removeprefix("speculative_"): value.strip("'\"")
        for name, value in given.items()
        if name.startswith("speculative_") and value not in ("None", "False", "")
    }
    if "algorithm" not in chosen:
        return ()
    return (("algorithm", chosen.pop("algorithm")), *chosen.items())


def _from_command_line(cmdline: str) -> dict[str, str]:
    """`--tp-size 2 --disable-cuda-graph` → {"tp_size": "2", "disable_cuda_graph": "True"}."""
    try:
        words = shlex.split(cmdline)
    except ValueError:
        words = cmdline.split()
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].replace("-", "_").partition("=")
            found[name] = value or "True"
        elif name:
            found[name] = word if found[name] == "True" else f"{found[name]} {word}"
    return {name: value for name, value in found.items() if name not in _VOLATILE}


def plain(value: str | None) -> str | None:
    """A value without the quotes that Python's repr put around text."""
    if value is not None and len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """The arguments that differ, by name. Nothing when one side was not recorded: that would be every argument.

    A run that died before it printed its arguments is known by its command line alone: then only what both name is
    compared.
    """
    if not before or not after:
        return ()
    names = before.keys() | after.keys()
    if 3 * min(len(before), len(after)) < max(len(before), len(after)):
        names = before.keys() & after.keys()
    pairs = ((name, plain(before.get(name)), plain(after.get(name))) for name in sorted(names))
    return tuple(Change(name=name, before=old, after=new) for name, old, new in pairs if old != new)


def history(
    now: Mapping[str, str], same: int, first_at: datetime | None, previous: Past | None, good: Past | None
) -> History:
    """The history of a death. `same` counts the earlier deaths of this fingerprint, `previous` is the last of them,
    `good` the last earlier run of the unit that was ready and served."""
    since_previous = changes(previous.configuration, now) if previous else ()
    since_good = changes(good.configuration, now) if good else ()
    return History(
        occurrence=same + 1,
        first_at=first_at,
        previous_id=previous.crash_id if previous else None,
        good_id=good.crash_id if good else None,
        since_previous=since_previous,
        since_good=since_good,
        sentence=_sentence(same, first_at, since_previous, since_good, served=good is not None),
    )


def _sentence(
    same: int,
    first_at: datetime | None,
    since_previous: tuple[Change, ...],
    since_good: tuple[Change, ...],
    *,
    served: bool,
) -> str:
    if same == 0:
        said = "The first death of this kind here."
    elif since_previous:
        cured = "the change did not cure it" if len(since_previous) == 1 else "the changes did not cure it"
        said = f"The same death as before your change of {_list(since_previous)}: {cured}."
    else:
        since = f" since {first_at:%Y-%m-%d %H:%M} UTC" if first_at else ""
        said = f"The {_ordinal(same + 1)} death of this kind{since}, with the configuration unchanged since the last."
    if since_good and since_good != since_previous:
        said += f" Since the last run that served, {_list(since_good)} changed."
    elif served and not since_good and same == 0:
        said += " The last run served with the same configuration."
    return said


def _list(changed: tuple[Change, ...]) -> str:
    shown = ", ".join(map(str, changed[:_SHOWN_CHANGES]))
    rest = len(changed) - _SHOWN_CHANGES
    return f"{shown} and {rest} more" if rest > 0 else shown


def _ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
