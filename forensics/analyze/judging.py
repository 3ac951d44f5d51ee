"""A run out of saved files → its verdict: the daemon's rules, and what saved files cannot give held against them."""

from dataclasses import dataclass, replace
from typing import Any

from forensics import frames
from forensics.analyze.body import PLAIN, Body
from forensics.analyze.claims import claims_of, forged_end, last_usec, with_claims
from forensics.analyze.coverage import covered
from forensics.analyze.endings import End, How, end_of
from forensics.analyze.incidents import Incident
from forensics.analyze.ownership import joined_by_name, killed_after, without_copies
from forensics.analyze.reading import SavedFile
from forensics.causality import Ending
from forensics.classify import classify
from forensics.codec import dump_run, dump_verdict
from forensics.events import (
    Batch,
    Milestone,
    ProcessExit,
    ServerArgs,
    ServerError,
    StartFailed,
    Traceback,
    UnitStarted,
    UnitStarting,
    UnitState,
)
from forensics.model import Family, Phase, Role, Run, RunRecord, Strength, Verdict
from forensics.public import crash_shape
from forensics.redact import redact_json
from forensics.rules import RULES, Rule
from forensics.timeline import Timeline

_EARLIEST = 315_532_800_000_000
"""1980: a time before it is one since boot."""

_UNLOGGED = " The server had not logged a single line."
_TEXT = "Read from saved text, in which any line could be anybody's words: at most likely."
_ZONE = "Times without a zone were read as UTC."


@dataclass(frozen=True, slots=True)
class Judged:
    """`shape` is the public form; `serves` whether this looks like a model server at all."""

    how: How
    shape: dict[str, Any]
    reason: str
    serves: bool


def judge(body: Body, record: RunRecord) -> Judged | None:
    """What became of one run; None where there is nothing to say of it."""
    file = body.log_of.get(record.invocation_id)
    sources, gaps = covered(body, record)
    run, timeline = body.tracker.judge_input(record.invocation_id, sources, gaps)
    timeline = without_copies(timeline, {each.name for each in body.files if not each.has_fields})
    end = End(How.DIED)
    rules: tuple[Rule, ...] = RULES
    if record.ended_usec is None or forged_end(record, timeline):
        run = replace(run, ended_usec=last_usec(record, timeline))
        claims = claims_of(record, file, timeline)
        if claims:
            run, timeline = with_claims(record, timeline, claims)
        if run.result is None or not claims:
            end = end_of(Ending(run, timeline), followed=_followed(body, record, file))
            timeline = Timeline.of([*timeline.events, *end.facts], timeline.gaps, timeline.sources)
            rules = end.rules
            killed = killed_after(body, run, timeline) if end.how is How.ALIVE and file is not None else None
            if killed is not None:
                end, run = End(How.DIED), replace(run, ended_usec=killed)
    run, timeline = joined_by_name(body, run, timeline, told=file is not None)
    body.know(run.unit, run.pids)
    verdict = classify(run, timeline, rules)
    text = not record.boot_id or _rests_on_text(body, verdict)
    verdict = _held_back(verdict, text=text, naive=any(each.naive for each in body.files))
    verdict = _advised(verdict, run)
    how = end.how if end.how is not How.DIED else (How.DIED if verdict.is_crash else How.STOPPED)
    if _skipped(timeline):
        how = How.ALIVE
    shape = shape_of(body, run, verdict, file)
    if end.how is How.STOPPED:
        shape |= {"cause": "clean-stop", "family": "stop", "strength": Strength.LIKELY.value, "summary": end.reason}
    if text and not record.lines and verdict.family is not Family.START:
        # Only systemd's lines were saved: whether the server had logged any is not known.
        shape["summary"] = shape["summary"].removesuffix(_UNLOGGED)
        shape["phase"] = None if verdict.phase is Phase.BEFORE_LOGGING else shape["phase"]
    if not _start_is_seen(timeline):
        shape["phase"], shape["became_ready"] = _phase_of_excerpt(verdict, timeline)
    return Judged(how, shape, end.reason or verdict.summary, serves(run, timeline))


def _start_is_seen(timeline: Timeline) -> bool:
    """Whether anything tells how far the run had come: its start, a step of it, or an answer that it worked on. A
    prefill alone can be the warm-up's."""
    telling = (UnitStarting, UnitStarted, StartFailed, Milestone, ServerArgs, UnitState)
    decoded = any(batch.phase == "decode" for batch in timeline.all(Batch))
    # A shell's word on the end says nothing of the beginning; systemd's belongs to a run that it started.
    exited = any(exit_.record.source == "systemd" for exit_ in timeline.all(ProcessExit))
    return decoded or exited or any(isinstance(event, telling) for event in timeline.events)


def _phase_of_excerpt(verdict: Verdict, timeline: Timeline) -> tuple[str | None, bool | None]:
    """The phase by the frames of a traceback that stands alone, or by a batch that others waited with; and whether it
    had been ready. None where unknown."""
    tracebacks = [piece.event for piece in verdict.evidence if isinstance(piece.event, Traceback)]
    queues = ("running-req", "queue-req")
    busy = any(dict(batch.values).get(name, "0") != "0" for batch in timeline.all(Batch) for name in queues)
    if busy or any(frames.in_serving_loop(event) for event in tracebacks):
        return Phase.SERVING.value, True if busy else None
    if any(frames.in_start(event) for event in tracebacks):
        return Phase.STARTUP.value, False
    return None, None


def judge_incident(body: Body, incident: Incident) -> Judged:
    verdict = classify(incident.run, incident.timeline, incident.rules or RULES)
    verdict = _held_back(verdict, text=_rests_on_text(body, verdict), naive=any(each.naive for each in body.files))
    # The kernel does not know what the process was to a server, nor how far that had come.
    summary = verdict.summary.removesuffix(_UNLOGGED).replace(" the main process ", " process ")
    verdict = replace(verdict, summary=summary, subclass=verdict.subclass.removesuffix("-main"))
    shape = shape_of(body, incident.run, verdict, None)
    shape["phase"] = shape["became_ready"] = None
    return Judged(How.DIED, shape, verdict.summary, serves=True)


def _followed(body: Body, record: RunRecord, file: SavedFile | None) -> bool:
    """Whether the same plain log goes on with another life of the server."""
    if file is None or file.plain is None or not record.unit.endswith(PLAIN):
        return False
    life = record.invocation_id.rsplit(":", 1)[-1]
    return life.isdecimal() and int(life) < file.plain.life


def _skipped(timeline: Timeline) -> bool:
    failed = timeline.first(StartFailed)
    return failed is not None and failed.job_result == "skipped"


# --- the verdict held to what saved files can carry ---------------------------------------------------------


def _rests_on_text(body: Body, verdict: Verdict) -> bool:
    """Whether a record that the verdict rests on was read from text without trusted fields."""
    plain = {file.name for file in body.files if not file.has_fields}
    decisive = [piece for piece in verdict.evidence if piece.role is Role.INITIATING] or list(verdict.evidence)
    return any(piece.event.record.ref.rpartition(":")[0] in plain for piece in decisive) or not any(
        file.has_fields for file in body.files
    )


def _held_back(verdict: Verdict, *, text: bool, naive: bool) -> Verdict:
    # Nothing comes later: what was not read will not be.
    verdict = replace(verdict, awaits=())
    if not text:
        return verdict
    strength = Strength.LIKELY if verdict.strength is Strength.CONFIRMED else verdict.strength
    notes = [note for note in verdict.notes if not note.startswith("The log does not tell which process wrote")]
    notes.append(_TEXT)
    if naive:
        notes.append(_ZONE)
    return replace(verdict, strength=strength, notes=tuple(notes))


def _advised(verdict: Verdict, run: Run) -> Verdict:
    """The daemon's advice speaks of a machine at hand; with files in hand the next step is another file."""
    if verdict.cause not in ("unexplained-kill", "unknown"):
        return verdict
    moment = run.died_at.strftime("%Y-%m-%d %H:%M")
    dated = int(run.died_at.timestamp() * 1e6) > _EARLIEST
    around = f" around {moment} UTC" if dated else ""
    missing = {gap.source for gap in verdict.gaps}
    steps = []
    if "kernel" in missing and not any(other.cause == "kernel-oom" for other in verdict.ruled_out):
        steps.append(f"Read the kernel log{around} on that host: `journalctl -k` or `dmesg -T`, for `Killed process`.")
    if "systemd" in missing:
        steps.append(f"Read systemd's records{around}: `journalctl -u UNIT`, for a stop, a timeout or an OOM kill.")
    if steps:
        steps[-1] += " Give `inquest analyze` all files together."
    return replace(verdict, advice=tuple(steps[:2]) or verdict.advice)


def serves(run: Run, timeline: Timeline) -> bool:
    """Whether this is a model server, by its name or by what it printed."""
    if any(word in run.unit.lower() for word in ("sglang", "vllm", "llm", "llama", "tgi", "triton", "inference")):
        return True
    if run.unit.endswith(PLAIN):
        return True
    telling = (Batch, ServerArgs, Milestone)
    return any(isinstance(event, telling) for event in timeline.events) or any(
        isinstance(event, Traceback | ServerError) and "sglang" in event.record.message for event in timeline.events
    )


def shape_of(body: Body, run: Run, verdict: Verdict, file: SavedFile | None) -> dict[str, Any]:
    """The public shape. What only text stands for is null: an invocation id, a unit's name, a time since boot."""
    shape: dict[str, Any] = redact_json(dict(crash_shape(dump_run(run), dump_verdict(verdict))))
    shape["log"] = file.name if file is not None else None
    named = body.units[0] if len(body.units) == 1 and "*" not in body.units[0] else None
    if not run.unit.endswith((".service", ".scope", PLAIN)):
        shape["unit"] = None  # only a process's name
    if run.unit.endswith(PLAIN):
        shape["unit"] = named
        shape["server"] = named or (file.name if file else run.unit)
    if not _is_invocation(run.invocation_id):
        shape["invocation_id"] = None
        shape["id"] = run.invocation_id
    if run.died_at.timestamp() * 1e6 < _EARLIEST:
        shape["died_at"] = shape["started_at"] = None
        for piece in (*shape["evidence"], *shape["rejected"]):
            piece["at"] = None
        for gap in shape["gaps"]:
            gap["from_at"] = gap["to_at"] = None
    return shape


def _is_invocation(text: str) -> bool:
    return len(text) == 32 and all(char in "0123456789abcdef" for char in text)
