"""Factories for the words of an inquest. Each takes what a test is about and fills in the rest."""

from datetime import UTC, datetime, timedelta
from typing import Any

from forensics.api import Health, SourceHealth
from forensics.events import Event, Gap, ProcessExit, Record, Rejected, Traceback, UnitResult
from forensics.model import (
    Crash,
    Doing,
    Evidence,
    Family,
    Phase,
    Role,
    RuledOut,
    Run,
    RunRecord,
    Strength,
    Verdict,
)
from forensics.timeline import Timeline

BOOT = "b0" * 16
EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
"""The wall clock when the test machine booted: monotonic 0."""


def invocation(number: int) -> str:
    """The invocation id with this number. The first 12 digits already differ."""
    return f"{number:012x}" + "0" * 20


def record(message: str = "", usec: int = 60_000_000, source: str = "server", **changes: Any) -> Record:
    """A record at a monotonic stamp, the wall clock in step with it, and a reference of its own."""
    given: dict[str, Any] = {
        "source": source,
        "ref": f"s=5e;i={usec:x}",
        "boot_id": BOOT,
        "monotonic_usec": usec,
        "realtime_usec": int(EPOCH.timestamp()) * 1_000_000 + usec,
        "message": message,
        "pid": 4321,
    }
    return Record(**(given | changes))


def run(number: int = 1, unit: str = "sglang-demo.service", usec: int = 60_000_000, **changes: Any) -> Run:
    """A run that began 50 s before `usec` and was killed there with SIGKILL."""
    given: dict[str, Any] = {
        "unit": unit,
        "invocation_id": invocation(number),
        "boot_id": BOOT,
        "control_group": f"/sglang.slice/{unit}",
        "main_pid": 4321,
        "pids": {4321: "main", 4400: "scheduler"},
        "started_usec": usec - 50_000_000,
        "ended_usec": usec,
        "died_at": EPOCH + timedelta(microseconds=usec),
        "result": "signal",
        "exit_code": "killed",
        "exit_status": 9,
        "n_restarts": 0,
    }
    return Run(**(given | changes))


def traceback(usec: int = 59_000_000, message: str = "RuntimeError: tensor sizes differ") -> Traceback:
    return Traceback(
        record=record(message, usec),
        header="Scheduler hit an exception",
        process="scheduler",
        tag=" TP0",
        exception="RuntimeError",
        text="tensor sizes differ",
        frames=("scheduler.py:210 in run_batch", "eagle_worker.py:97 in verify"),
    )


def main_exit(usec: int = 60_000_000) -> ProcessExit:
    return ProcessExit(
        record=record("Main process exited, code=killed, status=9/KILL", usec, source="systemd", pid=1),
        process="Main",
        command="ExecStart",
        exit_code="killed",
        exit_status=9,
    )


def rejected(message: str, count: int = 1) -> Rejected:
    """A line of the server's own output that speaks as the kernel."""
    return Rejected(
        record=record(message, source="rejected"),
        claims="kernel",
        imitates="oom-victim",
        writer="python",
        writer_unit="sglang-demo.service",
        about_unit="",
        about_pid=4321,
        why="only what the kernel itself wrote is believed",
        count=count,
    )


def verdict(*evidence: Evidence, **changes: Any) -> Verdict:
    """A confirmed Python exception while serving, unless told otherwise."""
    given: dict[str, Any] = {
        "cause": "python-exception",
        "family": Family.TRACEBACK,
        "strength": Strength.CONFIRMED,
        "subclass": "RuntimeError",
        "summary": "The scheduler died of RuntimeError: tensor sizes differ",
        "phase": Phase.SERVING,
        "became_ready": True,
        "is_crash": True,
        "doing": Doing(figures=(("running-req", "3"), ("accept len", "2.71")), seconds_before_death=1.5),
        "evidence": evidence,
        "ruled_out": (RuledOut(cause="kernel-oom", why="the kernel's log was read and names no victim of this unit"),),
        "also": (),
        "gaps": (Gap(source="gpu", reason="no NVIDIA driver on this machine"),),
        "notes": (),
        "advice": ("Report it to SGLang with the traceback.",),
        "fingerprint": "v1-0123456789abcdef",
        "signature": "python-exception | RuntimeError | eagle_worker.py in verify",
    }
    return Verdict(**(given | changes))


def crash(number: int = 1, usec: int | None = None, unit: str = "sglang-demo.service", **changes: Any) -> Crash:
    """A crash with its timeline and evidence. `changes` go to the verdict; `result`, `exit_code` … to the run."""
    at = 60_000_000 + number * 1_000_000 if usec is None else usec
    of_run = {name: changes.pop(name) for name in tuple(changes) if name in Run.__dataclass_fields__}
    cause, cascade = traceback(at - 1_000_000), main_exit(at)
    result = UnitResult(
        record=record("Failed with result 'signal'.", at + 500, source="systemd", pid=1), unit_result="signal"
    )
    events: tuple[Event, ...] = (cause, cascade, result)
    evidence = (
        Evidence(role=Role.INITIATING, event=cause, why="the first failure of this run"),
        Evidence(role=Role.CASCADE, event=cascade, why="SGLang's main process kills itself after a child failed"),
    )
    given_evidence = changes.pop("evidence", evidence)
    return Crash(
        run=run(number, unit, at, **of_run),
        timeline=Timeline.of(events, changes.get("gaps", ()), ("server", "systemd", "kernel")),
        verdict=verdict(*given_evidence, **changes),
    )


def clean(number: int = 1, **changes: Any) -> Crash:
    """A run that ended as asked."""
    given: dict[str, Any] = {
        "cause": "clean-stop",
        "family": Family.STOP,
        "subclass": "",
        "summary": "Stopped as asked",
        "is_crash": False,
        "result": "success",
        "exit_code": "exited",
        "exit_status": 0,
    }
    return crash(number, **(given | changes))


def open_run(number: int = 1, unit: str = "sglang-demo.service") -> RunRecord:
    return RunRecord(
        unit=unit,
        invocation_id=invocation(number),
        boot_id=BOOT,
        first_usec=10_000_000,
        first_realtime_usec=int(EPOCH.timestamp()) * 1_000_000 + 10_000_000,
        pids={4321: "main"},
        events=[traceback()],
        gaps=[Gap(source="gpu", reason="no NVIDIA driver on this machine")],
    )


HEALTH = Health(
    version="1.2.3",
    started_at=datetime(2026, 3, 1, 11, 0, tzinfo=UTC),
    units=("sglang-*.service",),
    read_to=datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
    open_runs=1,
    sources=(
        SourceHealth(name="journal", state="reading"),
        SourceHealth(name="gpu", state="blind", detail="no NVIDIA driver on this machine"),
    ),
)
