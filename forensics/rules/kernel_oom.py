"""kernel-oom: the kernel's OOM killer took a process of this run, and the run ended of it.

Signal:      a kernel record (`oom-kill:`, `Killed process`) naming a cgroup or a pid of ours, or PID 1's own count.
Not this:    a kill in another service's cgroup, or in another run of this unit; a kill that the server outlived, or
             that came when it was already dying; the same words in the server's own output.
Followed by: EOFError, `crashed with exit code -9`, SIGQUIT to main, SGLang's SIGKILL of itself, OOMPolicy's stop.
Needs:       the kernel's log (journalctl -k of this boot). Without it PID 1's count or memory.events can still show
             that something of ours was killed, not what; and only the counter oom_kill of /proc/vmstat rules it out.
To do:       at a limit, raise memory_max in the spec, or the limit of the cgroup above it that others share, or have
             the server use less host memory. Where the whole host was short, give it more memory or limit the other
             services; where the GPU's memory is the host's, lower mem_fraction_static; where one NUMA node was full,
             let the server use the others too (NUMAPolicy=, numactl). A compiler that was killed: MAX_JOBS=2 in [env].
             Kernel log unreadable: make it readable for the daemon.
"""

import re

from forensics.causality import SIGNALS, Ending
from forensics.events import CgroupMemory, OomKill, Remains, UnitOomKill
from forensics.failure import headline, said, sentence
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.oom import Kill
from forensics.senders import signals_to

_BUILD = re.compile(r"[Nn]inja|nvcc|cicc|ptxas|cc1plus|[Cc]ompil|subcommand failed|returned non-zero|died with|Killed")
_BUILD_USEC = 60_000_000
_ENDS_OF_A_KILL = ((None, None), ("killed", 9), ("exited", 137))
"""Of main, as systemd records it; 137 is what a shell in front says of it."""
_SAME_MOMENT_USEC = 2_000_000
_BOUND = ("CONSTRAINT_MEMORY_POLICY", "CONSTRAINT_CPUSET")
_ELSEWHERE = "The kernel's record names a cgroup of this unit's name below another path."
_NOWHERE = "The kernel's record names no cgroup: that its victim was of this unit follows from its name and the moment."


def match(ending: Ending) -> Finding | NotThis | None:
    kills = ending.oom_kills
    fatal = next((kill for kill in kills if _ended_it(ending, kill)), None)
    if fatal is not None:
        return _killed(ending, fatal)
    if kills and (failure := ending.failure) is not None:
        return NotThis(
            why=f"an OOM kill in this unit ({kills[-1].task}) did not end it: {failure.record.message[:120]}"
        )
    if counted := _counted(ending):
        return counted
    return NotThis(why=ending.no_oom) if ending.no_oom else None


def _ended_it(ending: Ending, kill: Kill) -> bool:
    if kill.outlived(ending.run, ending.timeline):
        return False
    dying = ending.failure is not None and ending.failure.usec < kill.usec
    if kill.victim == "main":
        # A failure that main had been told of before had decided the end; a mere line had not.
        told = ending.sigquit is not None and ending.sigquit.usec < kill.usec
        exited = (ending.run.exit_code, ending.run.exit_status)
        return exited in _ENDS_OF_A_KILL and not (dying and told)
    if kill.victim == "child":
        return not dying
    return _needed(ending, kill)


def _needed(ending: Ending, kill: Kill) -> bool:
    """Whether the run ended of a helper's death: systemd stopped it for that, a build failed, or it was the step around
    the start without which there is no server."""
    step = ending.start_step_failed
    if step is not None and (step.exit_code, step.exit_status) in _ENDS_OF_A_KILL:
        return abs(step.usec - kill.usec) <= _SAME_MOMENT_USEC
    failure = ending.failure
    if failure is None:
        return ending.run.result == "oom-kill"
    return 0 <= failure.usec - kill.usec <= _BUILD_USEC and _BUILD.search(said(failure)) is not None


def _killed(ending: Ending, kill: Kill) -> Finding:
    initiating = [
        Evidence(role=Role.INITIATING, event=kill.first, why=f"the kernel killed pid {kill.pid}, our {kill.victim}")
    ]
    if kill.size is not None and kill.size is not kill.first:
        initiating.append(Evidence(role=Role.INITIATING, event=kill.size, why="the victim and its size"))
    traced = (s for s in signals_to(ending.run, ending.timeline, signal=9, pid=kill.pid) if s.from_kernel)
    if sent := next(traced, None):
        initiating.append(
            Evidence(role=Role.INITIATING, event=sent, why="traced: the kernel itself sent the SIGKILL")
        )  # fmt: skip
    context = []
    if kill.limit is not None:
        context.append(Evidence(role=Role.CONTEXT, event=kill.limit, why="the limit that was reached"))
    if ending.oom_notice is not None:
        context.append(
            Evidence(role=Role.CASCADE, event=ending.oom_notice, why="systemd counted the kill in this unit")
        )
    scope = "memcg" if kill.memcg else "global"
    where = "as the whole host ran out of memory"
    if isinstance(kill.first, OomKill) and kill.first.constraint in _BOUND:
        where = "as the NUMA nodes that it may use ran out of memory"
    if kill.memcg:
        where = f"at the limit of {kill.oom_memcg}" if kill.oom_memcg else "at a memory cgroup's limit"
    notes = () if kill.ours else (_ELSEWHERE if isinstance(kill.first, OomKill) else _NOWHERE,)
    if ending.failure is not None and ending.failure.usec < kill.usec:
        notes = (*notes, sentence(f"Before the kill it had said: {headline(ending.failure, 160)}"))
    return Finding(
        strength=Strength.LIKELY if notes else Strength.CONFIRMED,
        summary=f"The kernel's OOM killer killed the {_named(ending, kill)} process {kill.pid} ({kill.task}) {where}.",
        subclass=f"{scope}-{kill.victim}",
        evidence=(*initiating, *context, *ending.aftermath(kill.first)),
        key=(scope, kill.victim),
        notes=notes,
    )


def _named(ending: Ending, kill: Kill) -> str:
    role = ending.run.pids.get(kill.pid or 0, "")
    return role if kill.victim == "child" and role in ("scheduler", "detokenizer", "controller") else kill.victim


def _counted(ending: Ending) -> Finding | None:
    """A counter rose, but no kernel line can be read: that something of ours was killed is certain, what is not."""
    event: UnitOomKill | Remains | None = ending.oom_untold
    why = "systemd read memory.events: oom_kill rose"
    if event is None and ending.oom_notice is not None:
        return None  # What it counts is known, and was not it.
    if event is None:
        event, why = _risen(ending), "memory.events, read after the death: oom_kill rose"
    if event is None or ending.failure is not None or ending.stop is not None:
        return None
    certain = isinstance(event, UnitOomKill) and ending.run.result == "oom-kill"
    if not certain and not _by_sigkill(ending) and not _fell_with(ending, event):
        return None
    return Finding(
        strength=Strength.CONFIRMED if certain else Strength.LIKELY,
        summary="The kernel's OOM killer killed a process of this unit; the kernel's own record, which names it, "
        "was not found.",
        subclass="counted",
        evidence=(Evidence(role=Role.INITIATING, event=event, why=why), *ending.aftermath(event)),
        key=("counted",),
        awaits=("kernel",),
    )


def _risen(ending: Ending) -> Remains | None:
    """ExecStopPost's reading of the counter, where it is higher than the last one of the living server."""
    remains = ending.timeline.last(Remains)
    if remains is None or remains.memory is None or not remains.memory.oom_kill:
        return None
    before = [sample.oom_kill for sample in ending.timeline.all(CgroupMemory) if sample.oom_kill is not None]
    return remains if remains.memory.oom_kill > max([len(ending.oom_kills), *before]) else None


def _fell_with(ending: Ending, event: UnitOomKill | Remains) -> bool:
    """Whether main lost a child in the moment of the count, where neither a status nor a kernel log says of what."""
    echo, died = ending.echo, ending.child_died
    if echo is None or not isinstance(event, UnitOomKill) or ending.covers("kernel"):
        return False
    if died is not None and died.exit_code is not None:
        return False
    return abs(echo.usec - event.usec) <= _SAME_MOMENT_USEC


def _by_sigkill(ending: Ending) -> bool:
    """Whether main, or a child by main's word, died of SIGKILL: else a counted kill had nothing to do with the end."""
    died, run = ending.child_died, ending.run
    if died is not None and died.exit_code is not None:
        return SIGNALS.get(-died.exit_code) == "SIGKILL"
    return run.exit_code == "killed" and run.exit_status == 9 and ending.self_kill is None and ending.sigterm is None
