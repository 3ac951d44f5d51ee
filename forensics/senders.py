"""Who sent the signals of a run's end, where the tracer saw it. Pure functions of (run, timeline).

Only what was seen is believed. That nothing was seen is believed of a run that was traced from start to end, and even
then not of a death whose signal is missing from the trace.
"""

from collections.abc import Iterator
from enum import StrEnum

from forensics.events import SignalSent, SignalTracing
from forensics.model import Run
from forensics.timeline import Timeline

_VITAL = ("main", "scheduler", "detokenizer", "controller", "tokenizer")


class Origin(StrEnum):
    KERNEL = "kernel"
    SYSTEMD = "systemd"
    OWN = "own"
    OUTSIDE = "outside"
    UNKNOWN = "unknown"
    """The sender was gone before its cgroup could be read."""


def origin(run: Run, sent: SignalSent) -> Origin:
    if sent.from_kernel:
        return Origin.KERNEL
    if sent.sender_pid == 1:
        return Origin.SYSTEMD
    if sent.sender_unit:
        return Origin.OWN if sent.sender_unit == run.unit else Origin.OUTSIDE
    # Who kills its own process from a thread is gone with it. Another of the same name would live on for a while.
    together = sent.sender_comm == sent.target_comm != ""
    return Origin.OWN if run.owns_pid(sent.sender_pid) or together else Origin.UNKNOWN


def signals_to(run: Run, timeline: Timeline, signal: int | None = None, pid: int | None = None) -> Iterator[SignalSent]:
    """The traced signals to this run's processes, in order; of one number, to one process, if given."""
    for sent in timeline.all(SignalSent):
        ours = sent.target_unit == run.unit or run.owns_pid(sent.target_pid)
        if ours and signal in (None, sent.signal) and pid in (None, sent.target_pid):
            yield sent


def signals_from_outside(run: Run, timeline: Timeline) -> Iterator[SignalSent]:
    """Those that neither the kernel, systemd nor the server itself sent, up to the run's end."""
    for sent in signals_to(run, timeline):
        if sent.usec <= run.ended_usec and origin(run, sent) in (Origin.OUTSIDE, Origin.UNKNOWN):
            yield sent


def is_vital(run: Run, sent: SignalSent) -> bool:
    """Whether the target is a process without which SGLang cannot live; a compiler or a resource tracker is not."""
    return sent.target_comm.startswith("sglang::") or run.pids.get(sent.target_pid, "") in _VITAL


def fatal_to_main(run: Run, timeline: Timeline) -> SignalSent | None:
    """The traced signal that the main process died of: the last one of that number."""
    if run.main_pid is None or run.exit_code not in ("killed", "dumped"):
        return None
    return max(signals_to(run, timeline, run.exit_status, run.main_pid), key=lambda sent: sent.usec, default=None)


def traced_throughout(run: Run, timeline: Timeline) -> bool:
    """Whether the tracer ran from the run's start to its end and lost nothing."""
    tracing = [event for event in timeline.all(SignalTracing) if event.usec <= run.ended_usec]
    return bool(tracing) and all(
        event.since_usec is not None and event.since_usec <= run.started_usec for event in tracing
    )


def by_whom(run: Run, sent: SignalSent) -> str:
    """The sender in words."""
    match origin(run, sent):
        case Origin.KERNEL:
            return "the kernel"
        case Origin.SYSTEMD:
            return "systemd (pid 1)"
        case Origin.OWN if sent.sender_pid == sent.target_pid:
            return "the process itself"
        case Origin.OWN if sent.sender_pid not in run.pids:
            return f"the server itself (pid {sent.sender_pid}, {sent.sender_comm})"
        case Origin.OWN:
            role = "main" if sent.sender_pid == run.main_pid else run.pids.get(sent.sender_pid, "") or sent.sender_comm
            return f"the server's own process {sent.sender_pid} ({role})"
        case _:
            detail = f", {sent.sender_detail}" if sent.sender_detail else ""
            return f"pid {sent.sender_pid} ({sent.sender_comm or 'unknown'}{detail})"
