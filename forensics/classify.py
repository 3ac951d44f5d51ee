"""Run + timeline + rules → verdict. Pure: the same timeline always gives the same verdict."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from forensics import oom
from forensics.advice import advise
from forensics.answering import silence, unanswered
from forensics.causality import Ending
from forensics.draft_limit import draft_limit
from forensics.events import LogStats, Rejected, SpawnFailed, StartLimitHit, Unkillable
from forensics.failure import headline, sentence
from forensics.fingerprint import digest, signature
from forensics.ground import ground
from forensics.history import speculation
from forensics.memory import starved_driver, story
from forensics.missing import weighed
from forensics.model import Doing, Family, Finding, NotThis, Phase, Role, RuledOut, Run, Strength, Supervision, Verdict
from forensics.phase import became_ready, began_usec, doing, phase
from forensics.rules import RULES, Rule, stop_timeout
from forensics.supervision import supervision
from forensics.timeline import Timeline

log = logging.getLogger(__name__)

T = TypeVar("T")

NOT_CRASHES = frozenset({"clean-stop"})
"""And a server that a shutdown of the host could not wait for: nobody needs to be woken for that."""
_ENDS_OF_A_STOP = ("clean-stop", "stop-timeout", "external-signal")
"""For these nothing of the server's is to blame; for whatever else ends it in a stop something may be."""
_NEVER_STARTED = ("exec-failure", "preflight-refused", "clean-stop")
"""Of these it goes without saying that the server had not logged a line."""


def classify(run: Run, timeline: Timeline, rules: Sequence[Rule] = RULES) -> Verdict:
    """The verdict on a run that came to rest.

    All rules are asked, and what they found is weighed against what could not be read (`missing`). The first confirmed
    finding in the rules' order decides (see `_chosen`), else the first likely one, else the cause is `unknown`. A rule
    that raises costs a note, never the verdict.
    """
    ending = Ending(run, timeline)
    found: list[tuple[Rule, Finding]] = []
    ruled_out: list[RuledOut] = []
    notes: list[str] = []
    for rule in rules:
        try:
            answer = rule.match(ending)
        except Exception as error:  # a broken rule costs a note, never the verdict
            log.exception("rule %s failed on run %s", rule.cause, run.invocation_id)
            notes.append(f"The rule for {rule.cause} failed ({type(error).__name__}) and was not heard.")
            continue
        if isinstance(answer, Finding):
            found.append((rule, weighed(ending, rule.cause, answer)))
        elif isinstance(answer, NotThis):
            ruled_out.append(RuledOut(cause=rule.cause, why=answer.why))
    return _verdict(ending, _chosen(found), found, ruled_out, notes)


def _chosen(found: list[tuple[Rule, Finding]]) -> tuple[Rule, Finding] | None:
    """The first confirmed finding, unless one before it, only likely, explains that very failure: broken hardware
    explains the CUDA error, a refused option the exception. Else the first likely one."""
    confirmed = next((pair for pair in found if pair[1].strength is Strength.CONFIRMED), None)
    if confirmed is None:
        return found[0] if found else None
    begun = [entry.event for entry in confirmed[1].evidence if entry.role is Role.INITIATING]
    for pair in found[: found.index(confirmed)]:
        if any(entry.event in begun for entry in pair[1].evidence):
            return pair
    return confirmed


def _verdict(
    ending: Ending,
    chosen: tuple[Rule, Finding] | None,
    found: list[tuple[Rule, Finding]],
    ruled_out: list[RuledOut],
    notes: list[str],
) -> Verdict:
    cause, family = (chosen[0].cause, chosen[0].family) if chosen else ("unknown", Family.UNKNOWN)
    finding = chosen[1] if chosen else None
    evidence = finding.evidence if finding else ending.aftermath(ending.main_exit) if ending.main_exit else ()
    began = began_usec(ending, evidence)
    at, ready = phase(ending, began), became_ready(ending)
    busy = doing(ending, began)
    subclass, key = (finding.subclass, finding.key) if finding else ("", ())
    text = signature(cause, subclass, key)
    return Verdict(
        cause=cause,
        family=family,
        strength=finding.strength if finding else None,
        subclass=subclass,
        summary=_summary(ending, cause, finding, at, busy if ready else None),
        phase=at,
        became_ready=ready,
        is_crash=cause not in NOT_CRASHES and subclass != stop_timeout.SHUTDOWN_KILL,
        doing=busy,
        evidence=evidence,
        ruled_out=tuple(ruled_out),
        also=_also(found, finding),
        gaps=tuple(dict.fromkeys(ending.timeline.gaps)),
        notes=(*(finding.notes if finding else ()), *notes, *_notes(ending, cause)),
        advice=_or_else((), lambda: advise(cause, finding, at, ending)),
        fingerprint=digest(text),
        signature=text,
        awaits=finding.awaits if finding else ("kernel", "coredump"),
        memory=_or_else(None, lambda: story(ending, cause, subclass)),
        ground=_or_else((), lambda: ground(ending)),
        speculation=_or_else((), lambda: speculation(ending.timeline)),
        rejected=tuple(ending.timeline.all(Rejected)),
        supervision=_or_else(Supervision(), lambda: supervision(ending.run, ending.timeline)),
    )


def _or_else(nothing: T, make: Callable[[], T]) -> T:
    """What only adorns a verdict may fail without costing it."""
    try:
        return make()
    except Exception:  # the verdict stands without it
        log.exception("an addition to a verdict failed")
        return nothing


def _also(found: list[tuple[Rule, Finding]], chosen: Finding | None) -> tuple[str, ...]:
    """The other causes that were found, each resting on an event of its own: the same event read more coarsely is no
    other cause, and neither is what says only that something is not known."""
    causes = []
    begun = [entry.event for entry in chosen.evidence if entry.role is Role.INITIATING] if chosen else []
    for rule, other in found:
        began = [entry.event for entry in other.evidence if entry.role is Role.INITIATING]
        if other is chosen or rule.family is Family.UNKNOWN or not began or any(event in begun for event in began):
            continue
        causes.append(rule.cause)
        begun += began
    return tuple(causes)


def _summary(ending: Ending, cause: str, finding: Finding | None, at: Phase, served: Doing | None) -> str:
    """`served`: what the server was doing, if it had ever become ready."""
    said = finding.summary if finding else f"It ended ({ending.exit_words}); what led to it is not in the evidence."
    if finding is None and ending.run.exit_code is None and ending.run.result is None:
        said = "It ended, and nothing says how: neither systemd's record of the end nor a failure is in the evidence."
    stopped = finding is not None and at is Phase.SHUTDOWN and cause in _ENDS_OF_A_STOP
    if stopped and served is not None and not ending.unhealthy:
        return f"It had served well{_figures(served)}: the configuration is not to blame. {said}"
    silent = at is Phase.BEFORE_LOGGING and ending.timeline.first(LogStats) is None and not ending.lost("server")
    if silent and cause not in _NEVER_STARTED:
        return f"{said} The server had not logged a single line."
    return said


def _figures(served: Doing) -> str:
    """` (280.40 tokens/s, accept rate 0.92)`, as far as SGLang printed it."""
    names = {
        "gen throughput (token/s)": "{} tokens/s",
        "accept len": "accept length {}",
        "accept rate": "accept rate {}",
    }
    figures = dict(served.figures)
    shown = [words.format(figures[name]) for name, words in names.items() if name in figures]
    return f" ({', '.join(shown)})" if shown else ""


def _notes(ending: Ending, cause: str) -> list[str]:
    notes = []
    if ending.timeline.first(StartLimitHit):
        notes.append("The start limit was hit: systemd does not start this unit again by itself.")
    if ending.timeline.first(Unkillable):
        notes.append("Processes were still there after SIGKILL: they hang in the kernel, typically in the GPU driver.")
    if cause != "hang" and (hang := unanswered(ending.timeline.events)) is not None:
        seconds = max(0.0, ending.run.died_at.timestamp() - hang.since_usec / 1e6)
        notes.append(f"It had run without answering for the last {seconds:.0f} s: {silence(hang)}.")
    if (failed := ending.failed_while_stopping) is not None and cause in ("clean-stop", "stop-timeout"):
        notes.append(sentence(f"While it was stopping, it also failed: {headline(failed, 160)}"))
    if (crashed := ending.crashed_while_stopping) is not None and cause in ("clean-stop", "stop-timeout"):
        notes.append(f"While it was stopping, {crashed.comm} crashed: {crashed.record.message[:120]}")
    if cause != "kernel-oom":
        notes += [_outlived_kill(ending, kill) for kill in ending.oom_kills]
        if not ending.oom_kills and (counted := oom.counted(ending.timeline)) is not None:
            notes.append(
                f"{_killed_before(ending, counted.usec)}, by the unit's own count; the kernel's record was not found."
            )
    if cause != "host-reset" and (starved := starved_driver(ending)) is not None:
        notes.append(starved)
    if (short := draft_limit(ending)) is not None:
        notes.append(short)
    hint = ending.timeline.first(SpawnFailed)
    if hint is not None and cause == "unknown":
        notes.append(f"systemd's forked child said: {hint.error}")
    return notes


def _outlived_kill(ending: Ending, kill: oom.Kill) -> str:
    return f"{_killed_before(ending, kill.usec)}, {kill.task} ({kill.pid})."


def _killed_before(ending: Ending, usec: int) -> str:
    seconds = max(0, ending.end_usec - usec) / 1e6
    when = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    return f"{when} before the end the kernel's OOM killer had killed a process of this unit"
