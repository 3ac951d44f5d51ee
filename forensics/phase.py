"""How far the run had come, and what the server was doing when it began to die. Pure."""

from forensics.causality import Ending
from forensics.events import Batch, LogStats, Milestone, UnitStarted, UnitStarting
from forensics.model import Doing, Evidence, Phase, Role

_SHOWN = ("running-req", "queue-req", "token usage", "gen throughput (token/s)", "accept len", "accept rate")


def became_ready(ending: Ending, before: int | None = None) -> bool:
    """Whether the server was ever ready: it said so, or it decoded after its socket was open.

    PID 1's `Started` says nothing here: a unit of Type=simple is started at once. Of a run whose beginning was not
    read, decoding alone tells.
    """
    opened = not any(isinstance(event, UnitStarting | UnitStarted) for event in ending.timeline.events)
    for event in ending.timeline.events:
        if before is not None and event.usec > before:
            break
        if isinstance(event, Milestone):
            if event.name == "ready":
                return True
            opened = opened or event.name == "uvicorn-running"
        elif isinstance(event, Batch) and opened and event.phase == "decode":
            return True
    return False


def phase(ending: Ending, began: int) -> Phase:
    """The phase at a stamp: when the initiating event happened."""
    if ending.stop_usec is not None and began >= ending.stop_usec:
        return Phase.SHUTDOWN
    if became_ready(ending, before=began):
        return Phase.SERVING
    logged = ending.timeline.first(LogStats)
    if logged is None or logged.first_usec > began:
        return Phase.BEFORE_LOGGING
    opened = any(m.name == "uvicorn-running" and m.usec <= began for m in ending.timeline.all(Milestone))
    return Phase.WARMUP if opened else Phase.STARTUP


def began_usec(ending: Ending, evidence: tuple[Evidence, ...]) -> int:
    """When the dying began: the earliest initiating record, else the end itself."""
    stamps = [entry.event.usec for entry in evidence if entry.role is Role.INITIATING]
    return min(stamps) if stamps else ending.run.ended_usec


def doing(ending: Ending, began: int) -> Doing:
    """The last batch lines before the dying began."""
    last = None
    for batch in ending.timeline.all(Batch):
        if batch.usec <= began and (batch.phase == "decode" or last is None):
            last = batch
    if last is None:
        return Doing()
    figures = dict(last.values)
    shown = tuple((name, figures[name]) for name in _SHOWN if name in figures)
    return Doing(figures=shown, seconds_before_death=round((began - last.usec) / 1e6, 1))


def ready_after_seconds(ending: Ending) -> float | None:
    """Seconds from the start to ready, where both were recorded."""
    ready = next((m for m in ending.timeline.all(Milestone) if m.name == "ready"), None)
    if ready is None:
        started = ending.timeline.first(UnitStarted)
        return None if started is None else (started.usec - ending.run.started_usec) / 1e6
    return (ready.usec - ending.run.started_usec) / 1e6
