"""`inquest analyze`: the same verdict from saved files.

Files, compressed or not, are known by their content (`forms`), read into journal entries and a plain log's facts
(`reading`), joined into one body of evidence (`body`), and judged by the daemon's rules (`judging`). What text cannot
carry is held back: at most `likely`, and a vanished process stays unexplained until the kernel log decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from forensics.analyze import snapshots
from forensics.analyze.body import Body
from forensics.analyze.endings import How
from forensics.analyze.forms import Form
from forensics.analyze.incidents import incidents
from forensics.analyze.judging import Judged, judge, judge_incident
from forensics.analyze.opening import inputs
from forensics.analyze.reading import SavedFile, recognise_all
from forensics.errors import InputError
from forensics.model import RunRecord

_SAME_DEATH_SECONDS = 60


@dataclass(slots=True)
class Analysis:
    """`crashes` in the order of their deaths; `reason` says why there are none; `files` what each input was."""

    crashes: list[dict[str, Any]] = field(default_factory=list)
    ended_well: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    files: list[dict[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "crashes": self.crashes,
            "reason": self.reason,
            "ended_well": self.ended_well,
            "notes": self.notes,
            "files": self.files,
        }


def total_bytes(paths: Sequence[str]) -> int:
    """How much there is to read, as stored, for the progress."""
    given = inputs([path for path in paths if path != "-"])
    for each in given:
        each.close()
    return sum(each.size for each in given)


def analyze(paths: Sequence[str], unit: str | None = None, advance: Callable[[int], None] = lambda _: None) -> Analysis:
    """All files together. Raises InputError when one is not there, cannot be read, or none is of a known form."""
    if unit is not None and "." not in unit:
        unit += ".service"
    given = inputs(list(paths))
    try:
        return _analyzed(recognise_all(given, unit), unit, advance)
    finally:
        for each in given:
            each.close()


def _analyzed(files: list[SavedFile], unit: str | None, advance: Callable[[int], None]) -> Analysis:
    readable = [file for file in files if file.readable]
    if not readable:
        raise InputError("nothing-known", _unknown(files), _HINT)
    judged: list[Judged] = []

    def settle(body: Body, record: RunRecord) -> None:
        if (found := judge(body, record)) is not None:
            judged.append(found)

    body = Body(readable, (unit,) if unit else ("*.service",), settle)
    body.read(advance)
    snapshots.join(body)
    for record in body.tracker.records():
        settle(body, record)
    analysis = _gathered(body, judged, unit)
    analysis.files = [{"name": file.name, "form": file.form.value} for file in files]
    analysis.notes += _notes(files)
    return analysis


def _gathered(body: Body, judged: list[Judged], unit: str | None) -> Analysis:
    died = _once([each for each in judged if each.how is How.DIED])
    if any(each.serves for each in died) and unit is None:
        left_out = sorted({each.shape["unit"] for each in died if not each.serves and each.shape["unit"]})
        died = [each for each in died if each.serves]
    else:
        left_out = []
    if not any(each.serves for each in judged):
        # No log of a server is there that the kernel's records could be about.
        events = [event for event in body.kernel_events or body.undated if not body.is_known(event)]
        died += [judge_incident(body, incident) for incident in incidents(events, unit)] if not died else []
    analysis = Analysis(
        crashes=sorted((each.shape for each in died), key=lambda shape: shape["died_at"] or ""),
        ended_well=[_short(each) for each in judged if each.how is How.STOPPED and (each.serves or unit)],
    )
    if left_out:
        analysis.notes.append(f"Crashes of other units were left out: {', '.join(left_out[:8])}; name one with --unit.")
    if not analysis.crashes:
        analysis.reason = _why_none(judged, unit)
    return analysis


def _once(died: list[Judged]) -> list[Judged]:
    """Without what a server's log in a file tells of a death that a journal tells of too."""
    known = [each for each in died if each.shape["unit"] and each.shape["died_at"] and each.serves]

    def is_copy(each: Judged) -> bool:
        if each.shape["log"] is None or each in known or not each.shape["died_at"]:
            return False
        return any(
            _apart_seconds(each, other) <= _SAME_DEATH_SECONDS
            and each.shape["cause"] in (other.shape["cause"], "unexplained-kill", "unknown")
            for other in known
        )

    return [each for each in died if not is_copy(each)]


def _apart_seconds(one: Judged, other: Judged) -> float:
    stamps = [datetime.fromisoformat(each.shape["died_at"]) for each in (one, other)]
    return abs((stamps[0] - stamps[1]).total_seconds())


def _why_none(judged: list[Judged], unit: str | None) -> str:
    told = [each for each in judged if each.how is not How.DIED and each.reason and (each.serves or unit)]
    if told:
        return "; ".join(dict.fromkeys(f"{_called(each)}: {each.reason}" for each in told[-8:]))
    if unit is not None:
        return f"nothing in the files is about {unit}"
    return "nothing in the files shows the death of a server"


def _called(each: Judged) -> str:
    return str(each.shape["unit"] or each.shape["log"] or each.shape["server"])


def _short(each: Judged) -> dict[str, Any]:
    keys = ("cause", "strength", "unit", "invocation_id", "died_at", "summary", "log")
    return {key: each.shape[key] for key in keys} | {"reason": each.reason}


def _notes(files: list[SavedFile]) -> list[str]:
    notes = [f"{file.name} is of no known form and was passed over." for file in files if file.form is Form.UNKNOWN]
    notes += [f"{file.name} is damaged and was read up to there: {file.damage}." for file in files if file.damage]
    return notes


_HINT = (
    "Known are: journal files, journalctl's text and JSON, dmesg, systemctl show and status, the logs of servers, of "
    "docker and of Kubernetes; each also as .gz, .xz, .zst or .bz2."
)


def _unknown(files: list[SavedFile]) -> str:
    names = ", ".join(file.name for file in files[:4])
    if all(file.form is Form.EMPTY for file in files):
        return f"there is nothing in {names}"
    return f"{names} is nothing that can be read here"


__all__ = ["Analysis", "analyze", "total_bytes"]
