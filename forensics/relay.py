"""A process that only passes on what the server's processes write: `tee`, `systemd-cat`, a container's client. Pure.

All lines then have its pid, which is none of the server's: it says nothing about who spoke.
"""

from dataclasses import replace

from forensics.events import Batch, Event, FatalPythonError, Milestone, ServerArgs, ServerError, ServerSignal, Traceback
from forensics.timeline import Timeline

_MAINS = ("server-process", "uvicorn-running", "ready")
_MAINS_SIGNALS = ("sigquit-received", "child-failed", "sigterm-received", "kill-process-tree")
_SCHEDULERS = ("load-weight-begin", "load-weight-end", "kv-cache", "memory-pool-end", "capacity", "graph-capture-begin")


def relay_of(timeline: Timeline) -> int | None:
    """The pid that wrote what only main can say and what only a scheduler can, where no other pid wrote the latter.

    Main alone may quote a scheduler, in a prompt that it logs; but then the scheduler writes lines of its own.
    """
    mains = {event.record.pid for event in timeline.events if _by_main(event)}
    schedulers = {event.record.pid for event in timeline.events if _by_scheduler(event)}
    return next(iter(schedulers)) if len(schedulers) == 1 and schedulers <= mains else None


def without_writer(timeline: Timeline, relay: int) -> Timeline:
    """The timeline, in which what the relay wrote is nobody's word in particular."""
    events = (_unsigned(event) if _wrote(relay, event) else event for event in timeline.events)
    return Timeline.of(events, timeline.gaps, timeline.sources)


def _unsigned(event: Event) -> Event:
    event = replace(event, record=replace(event.record, pid=None))
    if isinstance(event, ServerError | FatalPythonError) or (isinstance(event, Traceback) and not event.header):
        return replace(event, process="")  # the role of the pid; a header says it by itself
    return event


def _wrote(pid: int, event: Event) -> bool:
    return event.record.source == "server" and event.record.pid == pid


def _by_main(event: Event) -> bool:
    if isinstance(event, ServerSignal):
        return event.name in _MAINS_SIGNALS
    return isinstance(event, ServerArgs) or (isinstance(event, Milestone) and event.name in _MAINS)


def _by_scheduler(event: Event) -> bool:
    if isinstance(event, Traceback):
        return event.header.startswith("Scheduler hit")
    return isinstance(event, Batch) or (isinstance(event, Milestone) and event.name in _SCHEDULERS)
