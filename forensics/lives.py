"""A tracked run as the rules see it: its `Run`, and the facts that stand for what was only counted. Pure."""

import json
import signal
from datetime import UTC, datetime

from forensics.events import (
    Batch,
    DecodeStats,
    LogStats,
    Milestone,
    ProcessExit,
    ProcessTree,
    Record,
    Remains,
    UnitResult,
    UnitStarted,
    UnitState,
)
from forensics.model import Run, RunRecord
from forensics.runs import decoding
from forensics.timeline import Timeline

_CODES = {1: "exited", 2: "killed", 3: "dumped"}
"""`ExecMainCode` over D-Bus: CLD_EXITED, CLD_KILLED, CLD_DUMPED."""

_ROLES = (
    ("sglang::schedul", "scheduler"),
    ("sglang::detoken", "detokenizer"),
    ("sglang::data_pa", "controller"),
    ("sglang::tokeniz", "tokenizer"),
)


def role_of(comm: str, cmdline: str) -> str:
    """A process's role from its name and command line, as the kernel shows them; empty when they do not tell."""
    for title, role in _ROLES:
        if comm.startswith(title) or cmdline.startswith(title):
            return role
    if "spawn_main" in cmdline or "multiprocessing" in cmdline:
        return "child"
    if " -m service " in cmdline or comm.startswith("inquest-"):
        return "control"  # the steps and helpers that our units run beside the server
    if "launch_server" in cmdline or "sglang serve" in cmdline or cmdline.endswith("/sglang"):
        return "main"
    return ""


def ready_usec(record: RunRecord) -> int | None:
    """When a run became ready, in microseconds since the epoch; None while it is not. SGLang had said so, or decoded,
    and PID 1 had started the unit, which it does with `Type=notify` only when the server answers."""
    started = next((event for event in record.events if isinstance(event, UnitStarted)), None)
    if started is None:
        return None
    said = (
        event.record.realtime_usec
        for event in record.events
        if (isinstance(event, Milestone) and event.name == "ready")
        or (isinstance(event, Batch) and event.phase == "decode")
    )
    first = next(said, record.last_realtime_usec if record.decoding.lines else None)
    return None if first is None else max(first, started.record.realtime_usec)


def log_stats(record: RunRecord) -> LogStats:
    """How much the server wrote, as a fact of the run."""
    return LogStats(
        record=_at_last_line(record, f"{record.lines} lines were logged"),
        lines=record.lines,
        first_usec=record.first_line_usec or 0,
        last_usec=record.last_line_usec or 0,
    )


def decode_stats(record: RunRecord) -> DecodeStats:
    """The tally of the run's decode lines, as a fact of the run."""
    return DecodeStats(
        record=_at_last_line(record, f"{record.decoding.lines} decode lines were logged"),
        tally=json.dumps(decoding.dump(record.decoding)),
    )


def _at_last_line(record: RunRecord, message: str) -> Record:
    return Record(
        source="server",
        ref="",
        boot_id=record.boot_id,
        monotonic_usec=record.last_line_usec or 0,
        realtime_usec=record.last_realtime_usec,
        message=message,
    )


def make_run(record: RunRecord, timeline: Timeline, relay: int | None = None) -> Run:
    """What the rules need to know of a run as a whole. `relay` wrote the lines without being a process of SGLang's."""
    exit_ = next((e for e in timeline.all(ProcessExit) if e.process == "main"), None)
    state = timeline.last(UnitState)
    remains = timeline.last(Remains)
    result = next((event.unit_result for event in timeline.all(UnitResult)), None)
    code, status = (exit_.exit_code, exit_.exit_status) if exit_ else _exit_of(state, remains)
    pids = {pid: role for pid, role in record.pids.items() if pid != relay}
    tree_main = None
    for tree in timeline.all(ProcessTree):
        tree_main = tree.main_pid or tree_main
        for process in tree.processes:
            role = role_of(process.comm, process.cmdline)
            pids[process.pid] = role or pids.get(process.pid, "")
    main_pid = (state.exec_main_pid if state else None) or tree_main or _main_pid(record, timeline, relay)
    if main_pid is not None:
        pids[main_pid] = "main"
    died_usec = exit_.record.realtime_usec if exit_ else record.ended_realtime_usec or record.last_realtime_usec
    return Run(
        unit=record.unit,
        invocation_id=record.invocation_id,
        boot_id=record.boot_id,
        control_group=record.control_group or (state.control_group if state else ""),
        main_pid=main_pid,
        pids=pids,
        started_usec=record.first_usec,
        ended_usec=record.ended_usec if record.ended_usec is not None else record.last_line_usec or record.first_usec,
        died_at=datetime.fromtimestamp(died_usec / 1e6, UTC),
        result=result,
        exit_code=code,
        exit_status=status,
        n_restarts=state.n_restarts if state else None,
    )


def _exit_of(state: UnitState | None, remains: Remains | None) -> tuple[str | None, int | None]:
    """systemd logs no exit of a main process that ended well or by SIGTERM: ExecStopPost was told, D-Bus knows.

    `$EXIT_STATUS` is a number for `exited` and a signal's name without SIG for the others.
    """
    if remains is not None and remains.exit_code:
        status = remains.exit_status
        if status.isdecimal():
            return remains.exit_code, int(status)
        named = getattr(signal, f"SIG{status}", None)
        return remains.exit_code, int(named) if named is not None else None
    if state is not None and state.exec_main_code in _CODES and state.active_state in ("failed", "inactive"):
        return _CODES[state.exec_main_code], state.exec_main_status
    return None, None


def _main_pid(record: RunRecord, timeline: Timeline, relay: int | None) -> int | None:
    for milestone in timeline.all(Milestone):
        # In a container uvicorn's own number is of another namespace.
        if milestone.name == "server-process" and (pid := int(dict(milestone.values)["pid"])) in record.pids:
            return pid
    if relay is not None:
        return None
    if record.pids:
        return next((pid for pid, role in record.pids.items() if role == "main"), None)
    return next((int(dict(m.values)["pid"]) for m in timeline.all(Milestone) if m.name == "server-process"), None)
