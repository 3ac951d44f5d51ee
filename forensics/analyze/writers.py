"""Whether the pids of a server's lines tell its processes apart. Pure.

Behind `tee`, `systemd-cat`, a shell's pipe or a container runtime all lines have one writer, which is none of the
server's processes: its pid then says nothing about who spoke.
"""

from dataclasses import replace

from forensics.events import Batch, Event, Milestone, ServerArgs, Traceback
from forensics.timeline import Timeline

_MAINS = ("server-process", "uvicorn-running", "ready")
_SCHEDULERS = ("load-weight-begin", "load-weight-end", "kv-cache", "memory-pool-end", "capacity", "graph-capture-begin")


def without_one_writer(timeline: Timeline) -> Timeline:
    """The timeline, its server's facts without a writer where one wrote what only different processes can."""
    own = [event for event in timeline.events if event.record.source == "server" and event.record.pid is not None]
    pids = {event.record.pid for event in own}
    if len(pids) != 1 or not any(map(_by_main, own)) or not any(map(_by_scheduler, own)):
        return timeline
    anonymous = (
        replace(event, record=replace(event.record, pid=None)) if event.record.source == "server" else event
        for event in timeline.events
    )
    return Timeline.of(anonymous, timeline.gaps, timeline.sources)


def _by_main(event: Event) -> bool:
    return isinstance(event, ServerArgs) or (isinstance(event, Milestone) and event.name in _MAINS)


def _by_scheduler(event: Event) -> bool:
    if isinstance(event, Traceback):
        return event.header.startswith("Scheduler hit")
    return isinstance(event, Batch) or (isinstance(event, Milestone) and event.name in _SCHEDULERS)
