"""Whose a kernel record is, where no journal says which processes were the server's."""

from dataclasses import replace

from forensics.analyze.body import PLAIN, Body
from forensics.causality import Ending
from forensics.events import (
    ChildDied,
    Event,
    Gap,
    Milestone,
    OomKill,
    OomVictim,
    Segfault,
    ServerSignal,
    Xid,
)
from forensics.model import Run
from forensics.timeline import Timeline

_NEAR_USEC = 120_000_000
_MOMENT_USEC = 10_000_000
_SAME_USEC = 5_000_000
_IDLE_USEC = 3_600_000_000
_SERVERS = ("python", "pt_main_thread", "sglang", "vllm", "ray::", "VLLM::")


def joined_by_name(body: Body, run: Run, timeline: Timeline, *, told: bool) -> tuple[Run, Timeline]:
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
    fitting = [event for event in timeline.events if told and _fits(event, first_sign)]
    near = [event for event in timeline.events if 0 <= first_sign - event.usec <= _NEAR_USEC] if told else []
    for event in (*undated, *(event for event in near if _is_of(run, event))):
        if (pid := _pid_of(event)) is not None:
            pids.setdefault(pid, "")
    for event in fitting:
        if (pid := _pid_of(event)) is not None:
            pids[pid] = pids.get(pid) or "child"
    if not undated:
        return replace(run, pids=pids), timeline
    note = Gap(
        source="clock",
        reason="the kernel's stamps count from boot, and nothing tells when that was: joined by what they name",
    )
    joined = Timeline.of([*timeline.events, *undated], [*timeline.gaps, note], timeline.sources)
    return replace(run, pids=pids), joined


def without_copies(timeline: Timeline, plain: set[str]) -> Timeline:
    """The timeline without those kernel records out of text (`plain` are the files' names) that a journal with its
    fields has as well: the same words in the same seconds."""
    trusted: dict[str, list[int]] = {}
    for event in timeline.events:
        if event.record.source == "kernel" and event.record.ref.rpartition(":")[0] not in plain:
            trusted.setdefault(event.record.message, []).append(event.usec)
    kept = [
        event
        for event in timeline.events
        if event.record.ref.rpartition(":")[0] not in plain
        or all(abs(event.usec - usec) > _SAME_USEC for usec in trusted.get(event.record.message, ()))
    ]
    return timeline if len(kept) == len(timeline.events) else Timeline.of(kept, timeline.gaps, timeline.sources)


def killed_after(body: Body, run: Run, timeline: Timeline) -> int | None:
    """When the kernel killed a process of a run whose own log ends as if nothing had happened; None if it did not.

    An idle server logs nothing, so the kill may come long after the last line.
    """
    run = replace(run, pids=_told_pids(timeline) | run.pids)
    deaths = (OomKill, OomVictim, Segfault)
    if any(isinstance(event, deaths) and _is_of(run, event) for event in body.undated):
        return run.ended_usec
    for event in (*timeline.events, *body.kernel_events):
        later = event.usec - run.ended_usec
        if not isinstance(event, deaths) or later <= -_MOMENT_USEC or event.record.boot_id != run.boot_id:
            continue
        if later <= (_IDLE_USEC if _is_of(run, event) else _MOMENT_USEC if _fits(event, event.usec) else -1):
            return max(event.usec, run.ended_usec)
    return None


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
