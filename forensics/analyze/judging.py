"""A run out of saved files → its verdict: the daemon's rules, and what saved files cannot give held against them."""

import re
from dataclasses import dataclass, replace
from typing import Any

from forensics.analyze.body import PLAIN, Body
from forensics.analyze.endings import End, How, end_of
from forensics.analyze.forms import Form
from forensics.analyze.incidents import Incident
from forensics.analyze.reading import SavedFile
from forensics.causality import Ending
from forensics.classify import classify
from forensics.codec import dump_run, dump_verdict
from forensics.events import (
    Batch,
    BootEnded,
    ChildDied,
    Event,
    Gap,
    Milestone,
    OomKill,
    OomVictim,
    ProcessExit,
    Segfault,
    ServerArgs,
    ServerError,
    ServerSignal,
    StartFailed,
    StateTimedOut,
    Traceback,
    UnitResult,
    UnitStarted,
    UnitStarting,
    UnitState,
    Xid,
)
from forensics.lives import make_run
from forensics.model import Phase, Role, Run, RunRecord, Strength, Verdict
from forensics.public import crash_shape
from forensics.redact import redact_json
from forensics.rules import RULES, Rule
from forensics.timeline import Timeline

_SERVES = re.compile(r"event_loop|run_event_loop|forward_step|run_batch|process_batch_result|run_busy_loop")
_STARTS = re.compile(r"load_model|load_weights|from_pretrained|init_|launch_|<module>$|initialize|__init__$")
_LATE_USEC = 2_000_000
_NEAR_USEC = 120_000_000
_MOMENT_USEC = 10_000_000
_SERVERS = ("python", "pt_main_thread", "sglang", "vllm", "ray::", "VLLM::")
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
    end = End(How.DIED)
    rules: tuple[Rule, ...] = RULES
    if record.ended_usec is None or _forged_end(record, timeline):
        run = replace(run, ended_usec=_last_usec(record, timeline))
        claims = _claims(record, file, timeline)
        if claims:
            run, timeline = _with_claims(record, timeline, claims)
        if run.result is None or not claims:
            end = end_of(Ending(run, timeline), followed=_followed(body, record, file))
            timeline = Timeline.of([*timeline.events, *end.facts], timeline.gaps, timeline.sources)
            rules = end.rules
    run, timeline = _joined_by_name(body, run, timeline, told=file is not None)
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
    if not _start_is_seen(timeline):
        shape["phase"], shape["became_ready"] = _phase_of_excerpt(verdict)
    return Judged(how, shape, end.reason or verdict.summary, serves(run, timeline))


def _start_is_seen(timeline: Timeline) -> bool:
    """Whether anything tells how far the run had come: its start, a step of it, or work that it did."""
    telling = (UnitStarting, UnitStarted, StartFailed, ProcessExit, Milestone, ServerArgs, Batch, UnitState)
    return any(isinstance(event, telling) for event in timeline.events)


def _phase_of_excerpt(verdict: Verdict) -> tuple[str | None, bool | None]:
    """The phase by the frames of a traceback that stands alone, and whether it had been ready; None where unknown."""
    frames = [frame for piece in verdict.evidence if isinstance(piece.event, Traceback) for frame in piece.event.frames]
    functions = [frame.rpartition(" in ")[2] for frame in frames]
    if any(_SERVES.match(function) for function in functions):
        return Phase.SERVING.value, None
    if any(_STARTS.match(function) for function in functions):
        return Phase.STARTUP.value, False
    return None, None


def judge_incident(body: Body, incident: Incident) -> Judged:
    verdict = classify(incident.run, incident.timeline, incident.rules or RULES)
    verdict = _held_back(verdict, text=_rests_on_text(body, verdict), naive=any(each.naive for each in body.files))
    verdict = replace(verdict, summary=verdict.summary.removesuffix(_UNLOGGED))
    shape = shape_of(body, incident.run, verdict, None)
    # The kernel does not know how far a server had come.
    shape["phase"] = shape["became_ready"] = None
    return Judged(How.DIED, shape, verdict.summary, serves=True)


# --- what was read ------------------------------------------------------------------------------------------


def covered(body: Body, record: RunRecord) -> tuple[set[str], list[Gap]]:
    """The sources that the files hold for this run's end, and the gaps for those that they do not."""
    died = record.ended_realtime_usec or record.last_realtime_usec
    sources: set[str] = set()
    gaps = [
        gap
        for unit, usec, gap in body.gaps
        if unit in ("", record.unit) and record.first_usec <= usec <= (record.ended_usec or usec) + 300_000_000
    ]
    for file in body.files:
        if file.damage:
            gaps.append(Gap(source="server", reason=f"{file.name} is damaged: {file.damage}"))
        first_usec, last_usec = file.span_usec(body.offset_usec)
        spans = first_usec is not None and first_usec <= died <= last_usec + _LATE_USEC
        whole = file.foreign or file.form is Form.JOURNAL
        kernel_only = file.form in (Form.KERNEL, Form.DMESG_JSON) or (file.kernel and not file.manager and not whole)
        if kernel_only:
            sources |= {"kernel"} if spans else set()
        elif whole and spans:
            sources |= {"kernel", "systemd", "server", "coredump", "oomkillers"}
        elif file.manager:
            sources |= {"systemd", "server", "coredump"} | ({"kernel"} if file.kernel else set())
    if record.invocation_id in body.log_of:
        sources.add("server")
    if "kernel" not in sources:
        gaps.append(Gap(source="kernel", reason=_no_kernel(body)))
    if "systemd" not in sources:
        gaps.append(Gap(source="systemd", reason="no record of systemd is among the files (`journalctl -u UNIT`)"))
    return sources, list(dict.fromkeys(gaps))


def _no_kernel(body: Body) -> str:
    if any(file.form in (Form.KERNEL, Form.DMESG_JSON) for file in body.files):
        if body.undated or (body.offset_usec is None and any(file.first_mono_usec is not None for file in body.files)):
            return "the kernel log has only the time since boot, and nothing here says when that was"
        return "the kernel log among the files does not reach to the death"
    return "no kernel log is among the files (`journalctl -k`, `dmesg -T`)"


def _followed(body: Body, record: RunRecord, file: SavedFile | None) -> bool:
    """Whether the same plain log goes on with another life of the server."""
    if file is None or file.plain is None or not record.unit.endswith(PLAIN):
        return False
    life = record.invocation_id.rsplit(":", 1)[-1]
    return life.isdecimal() and int(life) < file.plain.life


def _claims(record: RunRecord, file: SavedFile | None, timeline: Timeline) -> list[tuple[str, Event]]:
    """systemd's words in a log without senders (`journalctl -o cat`), where they hang together.

    One line could be anything that the server quotes; an exit and a result of one unit, with no work of the server
    behind them, read as what such an output is.
    """
    if file is None or file.plain is None or not record.unit.endswith(PLAIN):
        return []
    life = record.invocation_id.rsplit(":", 1)[-1]
    claims = file.plain.claims.get(int(life), []) if life.isdecimal() else []
    ends_of: dict[str, list[Event]] = {}
    for unit, event in claims:
        if isinstance(event, ProcessExit | UnitResult | StateTimedOut):
            ends_of.setdefault(unit, []).append(event)
    ended = [unit for unit, ends in ends_of.items() if len({event.kind for event in ends}) > 1]
    if len(ended) != 1:
        return []
    ends, claims = ends_of[ended[0]], [(unit, event) for unit, event in claims if unit == ended[0]]
    if any(batch.usec > max(event.usec for event in ends) for batch in timeline.all(Batch)):
        return []
    return claims


def _with_claims(record: RunRecord, timeline: Timeline, claims: list[tuple[str, Event]]) -> tuple[Run, Timeline]:
    record.unit = claims[0][0]
    events = [event for _, event in claims]
    whole = Timeline.of([*timeline.events, *events], timeline.gaps, timeline.sources | {"systemd"})
    return replace(make_run(record, whole), ended_usec=_last_usec(record, whole)), whole


def _last_usec(record: RunRecord, timeline: Timeline) -> int:
    return max([record.first_usec, record.last_line_usec or 0, *(event.usec for event in timeline.events)])


def _forged_end(record: RunRecord, timeline: Timeline) -> bool:
    """In text an end that the server outlived was never systemd's word."""
    if not record.boot_id.startswith("text-") or record.ended_usec is None or timeline.first(BootEnded):
        return False
    return any(batch.usec > record.ended_usec + _LATE_USEC for batch in timeline.all(Batch))


def _skipped(timeline: Timeline) -> bool:
    failed = timeline.first(StartFailed)
    return failed is not None and failed.job_result == "skipped"


# --- whose the kernel's records are, where no journal says which processes were the server's -------------------


def _joined_by_name(body: Body, run: Run, timeline: Timeline, *, told: bool) -> tuple[Run, Timeline]:
    """Kernel records belong to a run if they name its cgroup, a pid that it named itself, or one of SGLang's processes.

    `told` says that the run is known by its own log alone. Records without a wall clock are put to its end.
    """
    if told:
        run = replace(run, pids=_told_pids(timeline) | run.pids)
    pids = dict(run.pids)
    undated: list[Event] = []
    for event in body.undated:
        if _is_of(run, event):
            record = replace(event.record, boot_id=run.boot_id, monotonic_usec=run.ended_usec)
            undated.append(replace(event, record=record))
    first_sign = Ending(run, timeline).first_sign_usec
    near = [event for event in timeline.events if 0 <= first_sign - event.usec <= _NEAR_USEC] if told else []
    for event in (*undated, *(event for event in near if _is_of(run, event) or _fits(event, first_sign))):
        if (pid := _pid_of(event)) is not None:
            pids.setdefault(pid, "")
    if not undated:
        return replace(run, pids=pids), timeline
    note = Gap(
        source="clock",
        reason="the kernel's stamps count from boot, and nothing tells when that was: joined by what they name",
    )
    joined = Timeline.of([*timeline.events, *undated], [*timeline.gaps, note], timeline.sources)
    return replace(run, pids=pids), joined


def _told_pids(timeline: Timeline) -> dict[int, str]:
    """The processes that the server's own log names."""
    found: dict[int, str] = {}
    for event in timeline.events:
        if isinstance(event, ChildDied) and event.child_pid is not None:
            found[event.child_pid] = "scheduler" if event.child.startswith("scheduler") else "child"
        elif isinstance(event, Milestone) and event.name == "server-process":
            found[int(dict(event.values)["pid"])] = "main"
        elif isinstance(event, ServerSignal) and event.name == "kill-process-tree":
            found.setdefault(int(dict(event.values)["parent_pid"]), "main")
    return found


def _pid_of(event: Event) -> int | None:
    if isinstance(event, OomKill):
        return event.oom_victim_pid
    if isinstance(event, OomVictim):
        return event.victim_pid
    if isinstance(event, Segfault):
        return event.fault_pid
    return event.xid_pid if isinstance(event, Xid) else None


def _is_of(run: Run, event: Event) -> bool:
    if run.owns_pid(_pid_of(event)):
        return True
    if isinstance(event, OomKill):
        return run.owns_cgroup(event.task_memcg) or (
            event.task.startswith("sglang::") and not _of_other_service(event.task_memcg, run)
        )
    comm = event.task if isinstance(event, OomVictim) else event.comm if isinstance(event, Segfault) else ""
    return comm.startswith("sglang::")


def _fits(event: Event, first_sign_usec: int) -> bool:
    """A kill in the moment of the death, of a program such as a model server is, in no other service's cgroup."""
    if not isinstance(event, OomKill) or first_sign_usec - event.usec > _MOMENT_USEC:
        return False
    return event.task.startswith(_SERVERS) and not any(
        part.endswith(".service") for part in (event.task_memcg or "").split("/")
    )


def _of_other_service(cgroup: str | None, run: Run) -> bool:
    services = [part for part in (cgroup or "").split("/") if part.endswith(".service")]
    return bool(services) and not run.unit.endswith(PLAIN) and run.unit not in services


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
    if "kernel" in missing:
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
    if run.unit.endswith(PLAIN):
        shape["unit"] = named
        shape["server"] = named or (file.name if file else run.unit)
    if not _is_invocation(run.invocation_id):
        shape["invocation_id"] = None
        shape["id"] = run.invocation_id
    if run.died_at.timestamp() * 1e6 < _EARLIEST:
        shape["died_at"] = shape["started_at"] = None
        for piece in shape["evidence"]:
            piece["at"] = None
    return shape


def _is_invocation(text: str) -> bool:
    return len(text) == 32 and all(char in "0123456789abcdef" for char in text)
