"""Does this show a death at all? For runs whose end no manager recorded: a log's own words must tell.

Pure: what is known of the run → how it ended, or that it did not.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from forensics.causality import STREAM_SKEW_USEC, Ending
from forensics.events import (
    Batch,
    ChildDied,
    Event,
    Milestone,
    ProcessExit,
    ServerError,
    ServerSignal,
    StopRequested,
    Traceback,
)
from forensics.model import Evidence, Family, Finding, Role, Strength
from forensics.rules import RULES, Rule

_DECIDES = (
    "the kernel log and systemd's journal decide: `journalctl -k --since …` (or `dmesg -T`) for an OOM kill, "
    "`journalctl -u UNIT` for a stop or a signal"
)
_ANSWER_USEC = 15_000_000
"""A server that answers nobody for so long to the end of its log did not come back in it."""


class How(StrEnum):
    DIED = "died"
    STOPPED = "stopped"
    ALIVE = "alive"


@dataclass(frozen=True, slots=True)
class End:
    """`facts` are what the log's words amount to, to be added to the timeline; `rules` who is to judge."""

    how: How
    reason: str = ""
    facts: tuple[Event, ...] = ()
    rules: tuple[Rule, ...] = RULES


def end_of(ending: Ending, *, followed: bool) -> End:
    """How a run ended whose end no manager recorded. `followed` says that the same log goes on with another life."""
    if ending.main_exit is not None:
        return _with_exit(ending, ending.main_exit)
    first = ending.failures[0] if ending.failures else None
    asked = _asked(ending)
    if asked is not None and (first is None or asked.usec <= first.usec + STREAM_SKEW_USEC):
        return _after_request(ending, asked, followed=followed)
    if signalled := _signalled(ending):
        return End(How.DIED, rules=(*RULES[:-2], signalled, *RULES[-2:]))
    if first is not None or ending.self_kill is not None or ending.sigquit is not None:
        return End(How.DIED)
    if complaint := next((e for e in ending.timeline.all(ServerError) if e.name == "library-complaint"), None):
        # Nothing else is said: then this is why.
        return End(How.DIED, facts=(replace(complaint, name="foreign-error"),))
    if silent := _unanswered(ending):
        return End(How.DIED, rules=(_rule("hang", Family.HANG, _hang(silent)),))
    if followed:
        return End(How.DIED, rules=(*RULES[:-2], _rule("unexplained-kill", Family.UNKNOWN, _vanished(ending))))
    return End(How.ALIVE, reason=_alive(ending))


def _rule(cause: str, family: Family, finding: Finding) -> Rule:
    return Rule(cause, family, lambda _: finding)


def _with_exit(ending: Ending, exit_: ProcessExit) -> End:
    """The shell, the container runtime or a saved status told how the program ended."""
    asked = _asked(ending)
    ended_well = exit_.exit_code == "exited" and exit_.exit_status in (0, 143, 130)
    asked_for = asked is not None and (not ending.failures or asked.usec <= ending.failures[0].usec)
    if ended_well and not ending.failures:
        return End(How.STOPPED, "it exited with status 0" if exit_.exit_status == 0 else "it ended by a stop's signal")
    if asked_for and asked is not None and (ended_well or exit_.exit_status in (2, 15)):
        return End(How.STOPPED, "it was asked to stop, and ended")
    return End(How.DIED)


def _asked(ending: Ending) -> Event | None:
    """The first word of the server that it was told to end."""
    for event in ending.timeline.events:
        if isinstance(event, StopRequested):
            return event
        if isinstance(event, ServerSignal) and event.name in ("sigterm-received", "sigint-received", "sighup-received"):
            return event
        if isinstance(event, Milestone) and event.name == "http-shutdown":
            return event
        if isinstance(event, Traceback) and event.exception.rsplit(".", 1)[-1] in ("KeyboardInterrupt", "SystemExit"):
            return event
    return None


def _after_request(ending: Ending, asked: Event, *, followed: bool) -> End:
    name = asked.name if isinstance(asked, ServerSignal) else ""
    if name == "sighup-received":
        return End(How.DIED, rules=(_told(asked, "SIGHUP"),))
    if name == "sigterm-received":
        engine_only = any(isinstance(e, ChildDied) or _dead_engine(e) for e in ending.timeline.events)
        served = any(
            isinstance(e, Batch) or (isinstance(e, Milestone) and e.name in ("ready", "uvicorn-running"))
            for e in ending.timeline.events
            if e.usec <= asked.usec
        )
        if (engine_only and not ending.sigquit) or not (served or _is_sglang(asked)):
            return End(How.DIED, rules=(_told(asked, "SIGTERM"),))
        if not _came_to_end(ending, asked):
            if followed or _still_draining(ending, asked):
                return End(How.DIED, rules=(_rule("unexplained-kill", Family.UNKNOWN, _cut_off(ending, asked)),))
            return End(How.STOPPED, "it was asked to stop (SIGTERM); the log ends before the stop had ended")
    return End(How.STOPPED, "it was asked to stop, and ended in good order")


def _signalled(ending: Ending) -> Rule | None:
    """A signal that the kernel's OOM killer never sends, and that nothing before it explains."""
    if ending.failure is not None:
        return None
    died = ending.child_died
    if died is not None and died.exit_code is not None:
        name = {-15: "SIGTERM", -2: "SIGINT", -1: "SIGHUP"}.get(died.exit_code)
        return _sent(died, name, "child") if name else None
    if ending.echo is None and ending.sigquit is not None and ending.sigquit.name == "sigquit-received":
        return _sent(ending.sigquit, "SIGQUIT", "main")
    return None


def _sent(sign: Event, name: str, victim: str) -> Rule:
    return _rule(
        "external-signal",
        Family.SIGNAL,
        Finding(
            strength=Strength.LIKELY,
            summary=f"{name} to the {victim} process ended it. SGLang said of no failure before, and the kernel's OOM "
            "killer sends SIGKILL: somebody else sent it, and who is not in this log.",
            subclass=f"{name.lower()}-{victim}",
            evidence=(Evidence(role=Role.INITIATING, event=sign, why="the trace that the signal left"),),
            key=(name, victim),
            notes=(
                "systemd's stop of the whole group, earlyoom and an operator look alike here: `journalctl -u UNIT` and "
                "the journal around that time tell them apart.",
            ),
        ),
    )


def _is_sglang(asked: Event) -> bool:
    """SGLang's own handler said it: it drains and ends, whatever it was doing, as at any stop."""
    return "SIGTERM received. " in asked.record.message


def _dead_engine(event: Event) -> bool:
    return isinstance(event, Traceback) and event.exception.endswith(("EngineDeadError", "EngineCoreError"))


def _came_to_end(ending: Ending, asked: Event) -> bool:
    for event in ending.timeline.events:
        if event.usec < asked.usec:
            continue
        if isinstance(event, Milestone) and event.name in ("http-shutdown", "http-finished"):
            return True
        if isinstance(event, ServerSignal):
            if event.name in ("kill-process-tree", "force-exit"):
                return True
            if event.name == "draining" and dict(event.values).get("remaining") == "0":
                return True
    return False


def _still_draining(ending: Ending, asked: Event) -> bool:
    """Requests were running to the end of the log, or a child was killed beside main's drain."""
    return any(
        isinstance(event, ChildDied)
        or (isinstance(event, ServerSignal) and event.name in ("draining", "sigquit-received"))
        or isinstance(event, Batch)
        for event in ending.timeline.events
        if event.usec >= asked.usec
    )


def _told(asked: Event, name: str) -> Rule:
    return _rule(
        "external-signal",
        Family.SIGNAL,
        Finding(
            strength=Strength.LIKELY,
            summary=f"{name} ended it, as it says itself; who sent the signal is not in its log.",
            subclass=f"{name.lower()}-main",
            evidence=(Evidence(role=Role.INITIATING, event=asked, why="the program says which signal it got"),),
            key=(name, "main"),
            notes=(
                "A stop by systemd, by a container runtime or a failed probe, and the end of a login session all look "
                "so: `journalctl -u UNIT`, `kubectl get events` or `journalctl -u systemd-logind` tell them apart.",
            ),
        ),
    )


def _cut_off(ending: Ending, asked: Event) -> Finding:
    drains = [e for e in ending.timeline.all(ServerSignal) if e.name == "draining"]
    left = dict(drains[-1].values).get("remaining") if drains else None
    running = f" with {left} request(s) running" if left not in (None, "0") else ""
    return Finding(
        strength=Strength.LIKELY,
        summary=f"It was asked to stop (SIGTERM) and had not ended{running} when its log breaks off: a stop's timeout "
        f"and its SIGKILL would look so, but {_DECIDES}.",
        subclass="while-stopping",
        evidence=(
            Evidence(role=Role.INITIATING, event=asked, why="the stop was asked for"),
            *(Evidence(role=Role.CONTEXT, event=e, why="still draining") for e in drains[-1:]),
        ),
        key=("while-stopping",),
    )


def _vanished(ending: Ending) -> Finding:
    last = next(iter(reversed(ending.timeline.events)), None)
    return Finding(
        strength=Strength.LIKELY,
        summary=f"It vanished without a word, and the next start stands in the same log: {_DECIDES}.",
        subclass="vanished",
        evidence=(Evidence(role=Role.CONTEXT, event=last, why="the last that it said"),) if last else (),
        key=("vanished",),
    )


def _unanswered(ending: Ending) -> ServerError | None:
    """The first of the health checks without an answer that stand at the log's end."""
    checks = [e for e in ending.timeline.all(ServerError) if e.name == "health-check-failed"]
    if not checks:
        return None
    lives = (
        e for e in ending.timeline.events if isinstance(e, Batch) or (isinstance(e, Milestone) and e.name == "ready")
    )
    last_work = max((e.usec for e in lives), default=0)
    after = [check for check in checks if check.usec > last_work]
    return after[0] if after else None


def _hang(silent: ServerError) -> Finding:
    return Finding(
        strength=Strength.LIKELY,
        summary="It no longer answered its health check, to the end of the log. The line blames the detokenizer, but "
        "whichever process stands still looks so, and a child that died without a word too.",
        subclass="health-check",
        evidence=(Evidence(role=Role.INITIATING, event=silent, why="no answer for as long as the check waits"),),
        key=("health-check",),
        notes=(
            "Which process stood still is not in this log: `py-spy dump` of the schedulers, nvidia-smi's "
            "utilisation and the kernel log tell.",
        ),
    )


def _alive(ending: Ending) -> str:
    ready = any(
        isinstance(e, Batch) or (isinstance(e, Milestone) and e.name == "ready") for e in ending.timeline.events
    )
    doing = "while the server was serving" if ready else "without a word of an end"
    return (
        f"the log ends {doing}, and nothing in it shows a death. If the process is gone, something ended it without a "
        f"trace in its own log: {_DECIDES}"
    )
