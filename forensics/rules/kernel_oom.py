"""kernel-oom: the kernel's OOM killer took a process of this run, and the run ended of it.

Signal:      a kernel record (`oom-kill:`, `Killed process`) naming a cgroup or a pid of ours, or PID 1's own count.
Not this:    a kill in another service's cgroup in the same second; the same words in the server's own output.
Followed by: EOFError, `crashed with exit code -9`, SIGQUIT to main, SGLang's SIGKILL of itself, OOMPolicy's stop.
"""

from forensics.causality import Ending
from forensics.events import OomKill, OomLimit, OomVictim, UnitOomKill
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.senders import signals_to


def match(ending: Ending) -> Finding | NotThis | None:
    kills = list(ending.oom_kills())
    notice = ending.timeline.first(UnitOomKill)
    if not kills:
        if notice is not None:
            return _counted(ending, notice)
        return NotThis(why=ending.no_oom) if ending.no_oom else None
    kill = kills[0]
    pid = kill.oom_victim_pid if isinstance(kill, OomKill) else kill.victim_pid
    victim = _victim(ending, pid, kill.task)
    if victim == "helper" and ending.failure is not None:
        # A compiler or py-spy was killed, and the server failed later of its own: context, not the cause.
        return None
    scope = "memcg" if (kill.oom_memcg if isinstance(kill, OomKill) else kill.memcg) else "global"
    evidence = [
        Evidence(role=Role.INITIATING, event=kill, why=f"the kernel killed pid {pid} ({kill.task}), our {victim}")
    ]
    sizes = [
        Evidence(role=Role.INITIATING, event=event, why="the victim and its size")
        for event in ending.timeline.all(OomVictim)
        if event.victim_pid == pid and event is not kill
    ]
    limits = [
        Evidence(role=Role.CONTEXT, event=event, why="the limit that was reached")
        for event in ending.timeline.all(OomLimit)
        if scope == "memcg" and abs(event.usec - kill.usec) < 5_000_000
    ]
    counted = [Evidence(role=Role.CASCADE, event=notice, why="systemd counted the kill in this unit")] if notice else []
    traced = [
        Evidence(role=Role.INITIATING, event=sent, why="traced: the kernel itself sent the SIGKILL")
        for sent in signals_to(ending.run, ending.timeline, signal=9, pid=pid)
        if sent.from_kernel
    ]
    where = (
        f"at the limit of {kill.oom_memcg}"
        if isinstance(kill, OomKill) and kill.oom_memcg
        else "at a memory cgroup's limit"
        if scope == "memcg"
        else "as the whole host ran out of memory"
    )
    return Finding(
        strength=Strength.CONFIRMED,
        summary=f"The kernel's OOM killer killed the {victim} process {pid} ({kill.task}) {where}.",
        subclass=f"{scope}-{victim}",
        evidence=(*evidence, *sizes[:1], *traced[:1], *limits[:1], *counted, *ending.aftermath(kill)),
        key=(scope, victim),
    )


def _counted(ending: Ending, notice: UnitOomKill) -> Finding:
    """memory.events rose, but no kernel line can be read: that something of ours was killed is certain, what is not."""
    certain = ending.run.result == "oom-kill" and ending.failure is None
    return Finding(
        strength=Strength.CONFIRMED if certain else Strength.LIKELY,
        summary="The kernel's OOM killer killed a process of this unit; the kernel's own record, which names it, "
        "could not be read.",
        subclass="counted",
        evidence=(
            Evidence(role=Role.INITIATING, event=notice, why="systemd read memory.events: oom_kill rose"),
            *ending.aftermath(notice),
        ),
        key=("counted",),
        awaits=("kernel",),
    )


def _victim(ending: Ending, pid: int | None, comm: str) -> str:
    if pid is not None and pid == ending.run.main_pid:
        return "main"
    role = ending.run.pids.get(pid, "") if pid is not None else ""
    if comm.startswith("sglang::") or role in ("scheduler", "detokenizer", "controller", "tokenizer", "child"):
        return "child"
    if ending.run.main_pid is None and ending.run.exit_code == "killed" and ending.run.exit_status == 9:
        return "main"
    return "helper"
