"""The one serialiser: the model's types to JSON-ready dicts and back. Store, API, alerts and tests all use it."""

from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from forensics.events import EVENT_TYPES, Event, Gap
from forensics.history import History
from forensics.model import Crash, Evidence, Role, Run, RunRecord, Verdict
from forensics.runs import decoding
from forensics.timeline import Timeline

_ADAPTERS: dict[str, TypeAdapter[Any]] = {}


def _adapter(cls: type) -> TypeAdapter[Any]:
    """Built at first use: a daemon that never meets a kind of fact never pays for its validator."""
    name = cls.__name__
    if name not in _ADAPTERS:
        _ADAPTERS[name] = TypeAdapter(cls)
    return _ADAPTERS[name]


def dump_event(event: Event) -> dict[str, Any]:
    """An event as `{"kind": …, "record": {…}, …}`."""
    return {"kind": event.kind, **_adapter(type(event)).dump_python(event, mode="json")}


def load_event(data: dict[str, Any]) -> Event:
    """The event that `dump_event` wrote; KeyError for a kind that this version does not know."""
    data = dict(data)
    cls = EVENT_TYPES[data.pop("kind")]
    event: Event = _adapter(cls).validate_python(data)
    return event


def dump_timeline(timeline: Timeline) -> dict[str, Any]:
    return {
        "events": [dump_event(event) for event in timeline.events],
        "gaps": [dump_gap(gap) for gap in timeline.gaps],
        "sources": sorted(timeline.sources),
    }


def load_timeline(data: dict[str, Any]) -> Timeline:
    return Timeline.of(map(load_event, data["events"]), map(load_gap, data["gaps"]), data["sources"])


def dump_gap(gap: Gap) -> dict[str, Any]:
    result: dict[str, Any] = _adapter(Gap).dump_python(gap, mode="json")
    return result


def load_gap(data: dict[str, Any]) -> Gap:
    gap: Gap = _adapter(Gap).validate_python(data)
    return gap


def dump_run(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = _adapter(Run).dump_python(run, mode="json")
    return result


def load_run(data: dict[str, Any]) -> Run:
    run: Run = _adapter(Run).validate_python(data)
    return run


def dump_run_record(record: RunRecord) -> dict[str, Any]:
    """An open run for the checkpoint. The events are written one by one, since each has its own class."""
    apart = ("events", "gaps", "rejected", "decoding")
    scalars = {name: getattr(record, name) for name in RunRecord.__dataclass_fields__ if name not in apart}
    return {
        **scalars,
        "decoding": decoding.dump(record.decoding),
        "events": [dump_event(event) for event in record.events],
        "gaps": [dump_gap(gap) for gap in record.gaps],
        "rejected": [dump_event(found) for found in record.rejected],
    }


def load_run_record(data: dict[str, Any]) -> RunRecord:
    data = dict(data)
    data["pids"] = {int(pid): role for pid, role in data["pids"].items()}
    data["events"] = [load_event(event) for event in data["events"]]
    data["gaps"] = [load_gap(gap) for gap in data["gaps"]]
    data["rejected"] = [load_event(found) for found in data.get("rejected", ())]
    data["decoding"] = decoding.load(data.get("decoding", {}))
    return RunRecord(**data)


def dump_history(past: History) -> dict[str, Any]:
    result: dict[str, Any] = _adapter(History).dump_python(past, mode="json")
    return result


def dump_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict; a piece of evidence is `{"role": …, "why": …, "event": {…}}`, the event as `dump_event` has it."""
    plain: dict[str, Any] = _adapter(Verdict).dump_python(replace(verdict, evidence=()), mode="json")
    plain["evidence"] = [
        {"role": piece.role.value, "why": piece.why, "event": dump_event(piece.event)} for piece in verdict.evidence
    ]
    return plain


def load_verdict(data: dict[str, Any]) -> Verdict:
    plain: Verdict = _adapter(Verdict).validate_python({**data, "evidence": ()})
    evidence = (
        Evidence(role=Role(piece["role"]), why=piece["why"], event=load_event(piece["event"]))
        for piece in data["evidence"]
    )
    return replace(plain, evidence=tuple(evidence))


def dump_crash(crash: Crash) -> dict[str, Any]:
    """`{"run": …, "timeline": …, "verdict": …, "revision": …}`."""
    return {
        "run": dump_run(crash.run),
        "timeline": dump_timeline(crash.timeline),
        "verdict": dump_verdict(crash.verdict),
        "revision": crash.revision,
    }


def load_crash(data: dict[str, Any]) -> Crash:
    return Crash(
        run=load_run(data["run"]),
        timeline=load_timeline(data["timeline"]),
        verdict=load_verdict(data["verdict"]),
        revision=data["revision"],
    )
