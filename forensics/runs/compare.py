"""Two runs, or all runs of a server by one argument. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from forensics.history import changes, plain
from forensics.report import size_words
from forensics.runs.decoding import CONCURRENCY
from forensics.runs.shapes import RunDetailShape, RunEntryShape, TuningRowShape, TuningShape

_FOLLOWS = ("speculative_num_draft_tokens", "speculative_num_steps", "speculative_eagle_topk")
"""SGLang derives these from one another: they vary together."""


def tuning(server: str, runs: Sequence[RunDetailShape], by: str | None = None) -> TuningShape:
    """The tuning table of these runs. Without `by`, over the argument that was tried with the most values."""
    known = [run for run in runs if run["configuration"]]
    varied = _varied(known)
    chosen = by or _most_tried(varied)
    groups: dict[str | None, list[RunDetailShape]] = {}
    for run in known:
        if chosen in run["configuration"] or by is not None:
            groups.setdefault(plain(run["configuration"].get(chosen)), []).append(run)
    rows = [_row(value, groups[value]) for value in sorted(groups, key=_order)]
    follows = _FOLLOWS if chosen in _FOLLOWS else ()
    also = [name for name in varied if name != chosen and name not in follows]
    return {"server": server, "by": chosen, "rows": rows, "also_varied": also}


def _varied(runs: Sequence[RunDetailShape]) -> dict[str, int]:
    """The arguments that differ between runs that printed them all, and how many values each had."""
    full = max((len(run["configuration"]) for run in runs), default=0)
    printed = [run["configuration"] for run in runs if 3 * len(run["configuration"]) >= full]
    names = sorted({name for configuration in printed for name in configuration})
    counts = {name: len({configuration.get(name) for configuration in printed}) for name in names}
    return {name: count for name, count in counts.items() if count > 1}


def _most_tried(varied: Mapping[str, int]) -> str:
    """Of speculation's arguments the most varied one, else of all; the steps before what follows from them."""
    names = [name for name in varied if name.startswith("speculative_")] or list(varied)
    if not names:
        return "speculative_num_steps"
    return max(names, key=lambda name: (varied[name], name == "speculative_num_steps", name))


def _row(value: str | None, runs: Sequence[RunDetailShape]) -> TuningRowShape:
    best: dict[str, float] = {}
    median: dict[str, tuple[int, float]] = {}
    accepted, weight = 0.0, 0
    for run in runs:
        decoded = run["decoding"]
        if decoded is None:
            continue
        for group in decoded["throughput"]:
            name = group["running_requests"]
            best[name] = max(best.get(name, 0.0), group["best"])
            median[name] = max(median.get(name, (0, 0.0)), (group["lines"], group["median"]))
        if decoded["accept_length"] is not None:
            accepted += decoded["accept_length"] * decoded["tokens"]
            weight += decoded["tokens"]
    fitted = [run["max_running_requests"] for run in runs if run["max_running_requests"] is not None]
    ends = Counter("running" if run["end"] is None else run["end"]["cause"] for run in runs)
    order = [name for name, _ in CONCURRENCY]
    return {
        "value": value,
        "runs": [run["id"] for run in runs],
        "best": {name: best[name] for name in order if name in best},
        "median": {name: median[name][1] for name in order if name in median},
        "accept_length": round(accepted / weight, 3) if weight else None,
        "max_running_requests": min(fitted) if fitted else None,
        "ready": sum(run["ready_after_seconds"] is not None for run in runs),
        "crashes": sum(run["end"] is not None and run["end"]["is_crash"] for run in runs),
        "ends": dict(ends.most_common()),
    }


def _order(value: str | None) -> tuple[int, float, str]:
    """Numbers by size, then words, then what was not set."""
    if value is None or value == "None":
        return 2, 0.0, ""
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


class Pair(NamedTuple):
    """One line of a comparison; None where a run has no such figure."""

    section: str
    name: str
    first: str | None
    second: str | None


def compared(first: RunDetailShape, second: RunDetailShape) -> list[Pair]:
    """Two runs side by side: their end, the arguments that differ, memory, speed."""
    pairs = [
        Pair("run", "started", _stamp(first["started_at"]), _stamp(second["started_at"])),
        Pair("run", "ready after", _seconds(first), _seconds(second)),
        Pair("run", "ended", ended(first), ended(second)),
    ]
    pairs += [
        Pair("configuration", change.name, change.before, change.after)
        for change in changes(first["configuration"], second["configuration"])
    ]
    for name in ("max_total_num_tokens", "max_running_requests"):
        pairs.append(Pair("memory", name, *(_text(_get(run, name)) for run in (first, second))))
    for part in ("memory", "peaks"):
        sides = (_get(run, part) for run in (first, second))
        sizes = [{_without_tokens(one["what"]): one["size_bytes"] for one in side} for side in sides]
        names = dict.fromkeys([*sizes[0], *sizes[1]])
        pairs += [Pair("memory", name, *(_size(side.get(name)) for side in sizes)) for name in names]
    return [pair for pair in (*pairs, *_speeds(first, second)) if (pair.first, pair.second) != (None, None)]


def ended(run: RunEntryShape) -> str:
    """How a run ended, in a few words."""
    end = run["end"]
    if end is None:
        return "running"
    return ", ".join(filter(None, (end["cause"], end["strength"])))


def _speeds(first: RunDetailShape, second: RunDetailShape) -> list[Pair]:
    sides: list[dict[str, str]] = []
    for run in (first, second):
        side: dict[str, str] = {}
        decoded = run["decoding"]
        if decoded is not None:
            for group in decoded["throughput"]:
                words = f"{group['median']:.0f} (best {group['best']:.0f})"
                side[f"tokens/s at {group['running_requests']} running"] = words
            if decoded["accept_length"] is not None:
                side["accept length"] = f"{decoded['accept_length']:.2f}"
            if decoded["accept_rate"] is not None:
                side["accept rate"] = f"{decoded['accept_rate']:.2f}"
            side["peak running requests"] = str(decoded["peak_running_requests"])
        for bench in run["benches"][-1:]:
            for name, value in bench["figures"].items():
                side[f"bench: {name}"] = f"{value:g}"
        if run["remark"]:
            side["remark"] = run["remark"]
        sides.append(side)
    order = [f"tokens/s at {name} running" for name, _ in CONCURRENCY]
    names = dict.fromkeys([*(name for name in order if name in sides[0] or name in sides[1]), *sides[0], *sides[1]])
    return [Pair("speed", name, sides[0].get(name), sides[1].get(name)) for name in names]


def _get(run: Any, name: str) -> Any:
    return run[name]


def _without_tokens(what: str) -> str:
    return what.split(" (", 1)[0]


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else size_words(size_bytes)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _stamp(text: str) -> str:
    return text[:19].replace("T", " ")


def _seconds(run: RunEntryShape) -> str | None:
    return None if run["ready_after_seconds"] is None else f"{run['ready_after_seconds']:.0f} s"
