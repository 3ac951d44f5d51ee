"""How often is the verdict right? `python -m tests.bench.accuracy FOLDER…` prints a table, cause by cause.

A folder holds recordings, at any depth, in one of three forms:

- `journal.export` with `truth.json`: a list of `{unit, invocation_id, class, subclass, acceptable_classes}`;
- `journal.jsonl` with `expected.json`: the project's own cases (`tests/cases`);
- `log.txt` with `label.json`: a saved log and its `{class, subclass}`, read as `inquest analyze` reads it.

Beside the verdicts stand three baselines over the same entries: systemd's `Result=` alone, the first line that
`grep -iE "error|crash|fail|OOM|killed|CUDA|traceback"` finds in the unit's log, and the last such line.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from forensics.analyze import analyze
from forensics.entry import Entry
from forensics.events import Gap
from forensics.model import Strength
from forensics.sources import systemd
from forensics.sources.export import read_export, read_json
from tests.cases.replay import Judged, replay

NO_CRASH = "no crash"
ABSTENTIONS = frozenset({"unknown", "unexplained-kill", "silent-exit"})

SLUGS: dict[str, tuple[str, ...]] = {
    "kernel_oom": ("kernel-oom",),
    "oomd_kill": ("userspace-oom-kill",),
    "stop_timeout_sigkill": ("stop-timeout",),
    "external_signal": ("external-signal",),
    "cuda_oom": ("cuda-oom",),
    "cuda_error": ("cuda-error",),
    "gpu_hardware": ("gpu-fault",),
    "nccl": ("nccl-error",),
    "python_traceback": ("python-exception", "configuration-error", "environment-error"),
    "python_traceback_config": ("configuration-error",),
    "python_traceback_runtime": ("python-exception",),
    "import_or_environment": ("environment-error",),
    "native_crash": ("native-crash",),
    "hang_watchdog": ("hang",),
    "watchdog_timeout": ("hang",),
    "exec_failure": ("exec-failure", "preflight-refused"),
    "start_timeout": ("start-timeout",),
    "machine_down": ("host-reset",),
    "clean_exit": ("clean-stop", NO_CRASH),
    "requested_stop": ("clean-stop", NO_CRASH),
    "other_exit": ("silent-exit",),
    "not_a_crash": (NO_CRASH, "clean-stop"),
}
"""Labels → the causes that answer them, the usual one first."""

_SUBCLASSES = {"usage_error": ("configuration-error",)}
"""Beginnings of subclasses for which there is a cause of its own."""

GREP = re.compile(r"error|crash|fail|OOM|killed|CUDA|traceback", re.IGNORECASE)

_READING = (
    (re.compile(r"OOM|out of memory: Killed", re.IGNORECASE), "kernel-oom"),
    (re.compile(r"CUDA out of memory|OutOfMemoryError"), "cuda-oom"),
    (re.compile(r"CUDA", re.IGNORECASE), "cuda-error"),
    (re.compile(r"core|SEGV|ABRT|segfault", re.IGNORECASE), "native-crash"),
    (re.compile(r"killed", re.IGNORECASE), "external-signal"),
    (re.compile(r"traceback|error|crash|fail", re.IGNORECASE), "python-exception"),
)
"""How a person in a hurry reads a line that grep has found."""

_RESULTS = {
    "success": "clean-stop",
    "oom-kill": "kernel-oom",
    "timeout": "stop-timeout",
    "signal": "external-signal",
    "core-dump": "native-crash",
    "watchdog": "hang",
    "exit-code": "python-exception",
    "resources": "exec-failure",
    "protocol": "exec-failure",
}


@dataclass(frozen=True, slots=True)
class Truth:
    unit: str
    invocation_id: str
    right: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    path: Path
    entries: Sequence[Entry]
    truths: tuple[Truth, ...]
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said of a run; no crash when nothing was."""

    cause: str = NO_CRASH
    strength: str | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """One labelled run: what is right, what the verdict said, and which baselines were right."""

    name: str
    right: tuple[str, ...]
    answer: Answer
    outcome: str
    baselines: tuple[bool, bool, bool]


def recordings(folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("truth.json")):
        if (path.parent / "journal.export").exists():
            yield _labelled(path.parent)
    for path in sorted(folder.rglob("expected.json")):
        if (path.parent / "journal.jsonl").exists():
            yield _case(path.parent)


def _labelled(folder: Path) -> Recording:
    truths = tuple(
        Truth(truth["unit"], truth["invocation_id"], _right(truth))
        for truth in json.loads((folder / "truth.json").read_text())
    )
    return Recording(folder, tuple(read_export(folder / "journal.export")), truths)


def _right(truth: dict[str, object]) -> tuple[str, ...]:
    classes = truth.get("acceptable_classes") or [truth["class"]]
    assert isinstance(classes, list)
    of_subclass = (slugs for begin, slugs in _SUBCLASSES.items() if str(truth["subclass"]).startswith(begin))
    of_classes = (SLUGS[name] for name in dict.fromkeys((truth["class"], *classes)))
    return tuple(dict.fromkeys(slug for slugs in (*of_subclass, *of_classes) for slug in slugs))


def _case(folder: Path) -> Recording:
    expected = json.loads((folder / "expected.json").read_text())
    gaps = tuple(Gap(source=gap["source"], reason=gap["reason"]) for gap in expected.get("gaps", ()))
    truths = tuple(Truth(run["unit"], run["invocation_id"], (run["cause"] or NO_CRASH,)) for run in expected["runs"])
    return Recording(folder, tuple(read_json(folder / "journal.jsonl")), truths, gaps)


def score(recording: Recording) -> Iterator[Scored]:
    judged = replay(recording.entries, {truth.unit for truth in recording.truths}, recording.gaps)
    for truth in recording.truths:
        own = next((one.verdict for one in judged if _is_of(one, truth)), None)
        answer = Answer(own.cause, own.strength, own.summary) if own else Answer()
        lines = [entry.message for entry in recording.entries if in_journalctl_u(entry, truth)]
        yield _scored(recording.path.name, truth.right, answer, lines, _result(recording.entries, truth))


def score_log(folder: Path) -> Scored | None:
    """None for a label that names no class."""
    label = json.loads((folder / "label.json").read_text())
    if label.get("class") not in SLUGS:
        return None
    crashes = analyze([str(folder / "log.txt")]).crashes
    last = crashes[-1] if crashes else None
    answer = Answer(last["cause"], last["strength"], last["summary"]) if last else Answer()
    lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    return _scored(folder.name, SLUGS[label["class"]], answer, lines, "not in a log")


def _scored(name: str, right: tuple[str, ...], answer: Answer, lines: Sequence[str], result: str) -> Scored:
    found = [line for line in lines if GREP.search(line)]
    said = (result, _read(found[0]) if found else NO_CRASH, _read(found[-1]) if found else NO_CRASH)
    return Scored(name, right, answer, _outcome(answer, right), tuple(one in right for one in said))  # type: ignore[arg-type]


def _is_of(judged: Judged, truth: Truth) -> bool:
    if truth.invocation_id:
        return judged.run.invocation_id == truth.invocation_id
    return judged.run.unit == truth.unit  # never started: it has no invocation


def _outcome(answer: Answer, right: tuple[str, ...]) -> str:
    if answer.cause in right:
        return "right"
    if answer.cause in ABSTENTIONS or answer.cause == NO_CRASH:
        return "abstained"
    return "wrong confirmed" if answer.strength == Strength.CONFIRMED else "wrong likely"


# --- baselines ------------------------------------------------------------------------------------------------


def in_journalctl_u(entry: Entry, truth: Truth) -> bool:
    """What `journalctl -u UNIT` shows of this run."""
    ids = (entry.get("_SYSTEMD_INVOCATION_ID"), entry.get("INVOCATION_ID"))
    shown = entry.get("_SYSTEMD_UNIT") == truth.unit or (entry.get("UNIT") == truth.unit and entry.from_systemd)
    return shown and (truth.invocation_id in ids or not truth.invocation_id)


def _result(entries: Iterable[Entry], truth: Truth) -> str:
    for entry in entries:
        if entry.from_systemd and entry.get("UNIT") == truth.unit and entry.get("INVOCATION_ID") == truth.invocation_id:
            if entry.get("MESSAGE_ID") == systemd.UNIT_FAILURE_RESULT:
                return _RESULTS.get(entry.get("UNIT_RESULT"), "unknown")
            if entry.get("MESSAGE_ID") == systemd.UNIT_SUCCESS:
                return "clean-stop"
    return NO_CRASH


def _read(line: str) -> str:
    return next(cause for pattern, cause in _READING if pattern.search(line))


# --- the table ------------------------------------------------------------------------------------------------

OUTCOMES = ("right", "abstained", "wrong likely", "wrong confirmed")
BASELINES = ("Result=", "first hit", "last hit")


def table(scored: Sequence[Scored]) -> Table:
    """Verdicts to the left, baselines to the right: of each, how many of the runs it gets right."""
    out = Table(title=f"{len(scored)} labelled runs", footer_style="bold", show_footer=True)
    total = Counter(one.outcome for one in scored)
    out.add_column("cause", footer="all", no_wrap=True)
    for outcome in OUTCOMES:
        out.add_column(outcome.replace(" ", "\n"), justify="right", footer=str(total[outcome]))
    for index, name in enumerate(BASELINES):
        out.add_column(f"{name}\nright", justify="right", footer=str(sum(one.baselines[index] for one in scored)))
    for cause in sorted({one.right[0] for one in scored}):
        rows = [one for one in scored if one.right[0] == cause]
        outcomes = Counter(one.outcome for one in rows)
        counts = [outcomes[outcome] for outcome in OUTCOMES]
        counts += [sum(one.baselines[index] for one in rows) for index in range(len(BASELINES))]
        out.add_row(cause, *(str(count) if count else "·" for count in counts))
    return out


def gather(folder: Path) -> Iterator[Scored]:
    for recording in recordings(folder):
        yield from score(recording)
    for path in sorted(folder.rglob("label.json")):
        if (path.parent / "log.txt").exists() and (one := score_log(path.parent)) is not None:
            yield one


def main(folders: Sequence[str]) -> int:
    """Print the table, and each run that was not right. Exit status 1 when a confirmed verdict was wrong."""
    console = Console()
    console.width = max(console.width, 110)
    scored = [one for folder in folders for one in gather(Path(folder))]
    if not scored:
        console.print("no recordings there: see the head of this file for the forms that are known")
        return 2
    for one in scored:
        if one.outcome != "right":
            said = f"{one.answer.cause} ({one.answer.strength or 'open'}) {one.answer.summary}".strip()
            console.print(f"{one.outcome}: {one.name}: {one.right[0]}, not {said}", markup=False, highlight=False)
    console.print(table(scored))
    return 1 if any(one.outcome == "wrong confirmed" for one in scored) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
