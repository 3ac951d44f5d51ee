"""The kernel's OOM kills in a run, and which of them it died of. Pure functions of (run, timeline).

One kill is several records: which cgroup (`oom-kill:`), which process and how large (`Killed process`), at which limit.
Kernels before 5.0 name pid and cgroup in different lines; in a storm only `Killed process` is printed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.events import Batch, ChildDied, OomKill, OomLimit, OomVictim, Remains, UnitOomKill
from forensics.fatality import LINGER_USEC, SURVIVAL_USEC
from forensics.model import Run
from forensics.timeline import Timeline

LATE_KERNEL_USEC = 1_500_000
"""The kernel's clock lags behind and its records arrive late: a record may seem to follow the death it caused."""

_ONE_KILL_USEC = 2_000_000
_AT_ONCE_USEC = 10_000_000
"""A run of which no process is known ends so soon after the kill of its main one; main tells so soon of a child's."""
_PYTHONS = ("python", "pt_main_thread", "sglang")
_CHILDREN = ("scheduler", "detokenizer", "controller", "tokenizer", "child")


@dataclass(frozen=True, slots=True)
class Kill:
    """One process of ours that the kernel killed for want of memory.

    `first` is the record that names our cgroup or process; `size` the one with the victim's size, `limit` the one with
    the limit's figures; `oom_memcg` the cgroup whose limit was hit. `ours` is False when only a cgroup of our unit's
    name below some other path was named, as a container's kernel log would, or none at all: then it is likely ours.
    """

    first: OomKill | OomVictim
    size: OomVictim | None
    limit: OomLimit | None
    pid: int | None
    task: str
    memcg: bool
    oom_memcg: str | None
    victim: str
    ours: bool

    @property
    def usec(self) -> int:
        return self.first.usec

    def outlived(self, run: Run, timeline: Timeline) -> bool:
        """Whether the run went on without the victim: a helper's kill ends nothing by itself, and without main nothing
        works on for long, so that a kill of it that was followed by work was of another's."""
        if self.victim == "main":
            return timeline.first(Batch, after=self.usec + SURVIVAL_USEC + LATE_KERNEL_USEC) is not None
        if self.victim != "helper":
            return survived(timeline, self.usec)
        if run.result == "oom-kill" and not survived(timeline, self.usec):
            return False  # systemd itself ended the unit for it.
        worked = timeline.first(Batch, after=self.usec + SURVIVAL_USEC)
        return worked is not None or run.ended_usec - self.usec > LINGER_USEC


def kills(run: Run, timeline: Timeline) -> Iterator[Kill]:
    """The kills of this run's processes, from its start to its end, in order."""
    last = run.ended_usec + LATE_KERNEL_USEC
    taken: set[int | None] = set()
    for event in timeline.events:
        if event.usec > last:
            break
        if isinstance(event, OomKill | OomVictim) and _concerns(run, timeline, event):
            kill = _assembled(run, timeline, event)
            if kill.pid in taken or (kill.usec < run.started_usec and not run.owns_pid(kill.pid)):
                continue
            taken.add(kill.pid)
            yield kill


def _may_be_ours(run: Run, timeline: Timeline, event: OomVictim) -> bool:
    """Whether a victim whose cgroup no record names, as before 5.0 or in a storm, was a process of this run although
    its number is not known: main tells of such a child, or was itself killed in that moment."""
    if any(each.task_memcg and each.oom_victim_pid == event.victim_pid for each in timeline.all(OomKill)):
        return False
    for died in timeline.all(ChildDied):
        if died.exit_code == -9 and -LATE_KERNEL_USEC <= died.usec - event.usec <= _AT_ONCE_USEC:
            unnamed = died.child_pid is None and event.task.startswith("sglang::")
            if unnamed or died.child_pid == event.victim_pid:
                return True
    killed = run.main_pid is None and run.exit_code == "killed" and run.exit_status == 9
    return killed and abs(run.ended_usec - event.usec) <= _ONE_KILL_USEC and event.task.startswith(_PYTHONS)


def _concerns(run: Run, timeline: Timeline, event: OomKill | OomVictim) -> bool:
    if isinstance(event, OomVictim):
        # No cgroup is named, and numbers are used again: only a process whose part is known counts by its number.
        known = event.victim_pid == run.main_pid or run.pids.get(event.victim_pid, "") in (*_CHILDREN, "main")
        return known or _may_be_ours(run, timeline, event)
    if event.task_memcg is not None:
        return run.owns_cgroup(event.task_memcg)
    return run.owns_pid(event.oom_victim_pid)


def _assembled(run: Run, timeline: Timeline, first: OomKill | OomVictim) -> Kill:
    near = [event for event in timeline.events if abs(event.usec - first.usec) <= _ONE_KILL_USEC]
    after = near[near.index(first) :]
    pid = first.oom_victim_pid if isinstance(first, OomKill) else first.victim_pid
    sizes = [event for event in after if isinstance(event, OomVictim) and pid in (None, event.victim_pid)]
    size = sizes[0] if sizes else None
    pid = size.victim_pid if pid is None and size is not None else pid
    summaries = [event for event in near if isinstance(event, OomKill) and event.oom_victim_pid in (None, pid)]
    oom_memcg = next((event.oom_memcg for event in (first, *summaries) if isinstance(event, OomKill)
                      and event.oom_memcg), None)  # fmt: skip
    memcg = bool(
        oom_memcg or (size and size.memcg) or (isinstance(first, OomKill) and first.constraint == "CONSTRAINT_MEMCG")
    )
    limits = [event for event in near[: near.index(first) + 1] if isinstance(event, OomLimit)]
    limits = limits or [event for event in after if isinstance(event, OomLimit)][:1]
    task = (size.task if size else "") or first.task
    exact = run.owns_pid(pid) or (isinstance(first, OomKill) and _exactly(run, first.task_memcg))
    return Kill(
        first=first,
        size=size,
        limit=limits[-1] if memcg and limits else None,
        pid=pid,
        task=task,
        memcg=memcg,
        oom_memcg=oom_memcg,
        victim=_victim(run, pid, task, first.usec) if exact else _victim_elsewhere(run, task),
        ours=exact,
    )


def _exactly(run: Run, path: str | None) -> bool:
    """Whether the path is the unit's own cgroup, or below it; True too when the unit's cgroup is not known."""
    if not run.control_group or path is None:
        return True
    return f"{path}/".startswith(f"{run.control_group}/")


def _victim(run: Run, pid: int | None, comm: str, usec: int) -> str:
    """`main`, `child`, or `helper`: a compiler, py-spy, or whatever else the server ran and can do without."""
    if pid is not None and pid == run.main_pid:
        return "main"
    if comm.startswith("sglang::") or run.pids.get(pid or 0, "") in (*_CHILDREN, "main"):
        return "child"
    killed = run.exit_code == "killed" and run.exit_status == 9
    if run.main_pid is None and killed and run.ended_usec - usec <= _AT_ONCE_USEC:
        return "main"
    return "helper"


def _victim_elsewhere(run: Run, comm: str) -> str:
    """The same for a kernel with a pid namespace of its own, whose pids say nothing here."""
    if comm.startswith("sglang::"):
        return "child"
    return "main" if run.exit_code == "killed" and run.exit_status == 9 else "helper"


def counted(timeline: Timeline) -> UnitOomKill | Remains | None:
    """The unit's own count of an OOM kill: systemd's notice, or memory.events as it was read after the end."""
    remains = timeline.last(Remains)
    risen = remains is not None and remains.memory is not None and bool(remains.memory.oom_kill)
    return timeline.first(UnitOomKill) or (remains if risen else None)


def survived(timeline: Timeline, usec: int) -> bool:
    """Whether the server still worked long after this stamp."""
    return timeline.first(Batch, after=usec + LINGER_USEC) is not None
