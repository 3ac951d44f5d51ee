"""A crash as everybody outside sees it: the API, the webhook, the terminal. Built from what the codec wrote.

Shapes only grow: a key is never renamed or taken away within a major version. Times are RFC 3339 in UTC.
"""

import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from typing_extensions import TypedDict


class EvidenceShape(TypedDict):
    """One record and what it is to the death: `initiating`, `cascade`, `teardown` or `context`."""

    role: str
    kind: str
    source: str
    ref: str
    at: str
    message: str
    why: str


class RuledOutShape(TypedDict):
    cause: str
    why: str


class GapShape(TypedDict):
    """A stretch of a source that could not be read; bounds in monotonic microseconds of the boot, null is open."""

    source: str
    reason: str
    from_usec: int | None
    to_usec: int | None


class DoingShape(TypedDict):
    """What the server was last seen doing; the figures as SGLang printed them."""

    figures: dict[str, str]
    seconds_before_death: float | None


class RunShape(TypedDict):
    """systemd's words on the end of the main process. `signal` is the name when a signal ended it."""

    result: str | None
    exit_code: str | None
    exit_status: int | None
    signal: str | None
    main_pid: int | None
    n_restarts: int | None


class CrashShape(TypedDict):
    """An ended run and the verdict on it. `id` is the first 12 digits of `invocation_id`."""

    id: str
    unit: str
    server: str
    invocation_id: str
    boot_id: str
    is_crash: bool
    cause: str
    family: str
    strength: str | None
    subclass: str
    summary: str
    phase: str
    became_ready: bool
    started_at: str
    died_at: str
    doing: DoingShape
    evidence: list[EvidenceShape]
    ruled_out: list[RuledOutShape]
    also: list[str]
    gaps: list[GapShape]
    notes: list[str]
    advice: list[str]
    fingerprint: str
    signature: str
    settled: bool
    revision: int
    backfilled: bool
    run: RunShape


class FactShape(TypedDict):
    """One fact of a timeline. `values` are the fields of its kind, `role` is set where the verdict rests on it."""

    kind: str
    at: str
    monotonic_usec: int
    source: str
    ref: str
    pid: int | None
    message: str
    role: str | None
    values: dict[str, Any]


class TimelineShape(TypedDict):
    id: str
    unit: str
    invocation_id: str
    boot_id: str
    sources: list[str]
    gaps: list[GapShape]
    events: list[FactShape]


class RunningShape(TypedDict):
    """A run that has not ended."""

    invocation_id: str
    since: str


class LastRunShape(TypedDict):
    """How a run ended, in short."""

    id: str
    died_at: str
    is_crash: bool
    cause: str
    family: str
    strength: str | None
    summary: str


class ServerShape(TypedDict):
    """A unit that is watched, or was. `runs` counts ended runs that are still in the store."""

    unit: str
    server: str
    running: RunningShape | None
    runs: int
    crashes: int
    last_run: LastRunShape | None
    last_crash: LastRunShape | None


def server_name(unit: str) -> str:
    """`sglang-demo.service` is the server `demo`; a unit of another name stands for itself."""
    return unit.removeprefix("sglang-").removesuffix(".service") or unit


def when(realtime_usec: int) -> str:
    """Microseconds since the epoch as RFC 3339 in UTC, always with six decimals so that texts sort as times do."""
    stamp = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=realtime_usec)
    return stamp.isoformat(timespec="microseconds").replace("+00:00", "Z")


def usec(stamp: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    return (stamp - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def crash_shape(
    run: dict[str, Any], verdict: dict[str, Any], *, revision: int = 1, backfilled: bool = False
) -> CrashShape:
    """The public shape of what `codec.dump_run` and `codec.dump_verdict` gave."""
    died_usec = usec(datetime.fromisoformat(run["died_at"]))
    return {
        "id": run["invocation_id"][:12],
        "unit": run["unit"],
        "server": server_name(run["unit"]),
        "invocation_id": run["invocation_id"],
        "boot_id": run["boot_id"],
        "is_crash": verdict["is_crash"],
        "cause": verdict["cause"],
        "family": verdict["family"],
        "strength": verdict["strength"],
        "subclass": verdict["subclass"],
        "summary": verdict["summary"],
        "phase": verdict["phase"],
        "became_ready": verdict["became_ready"],
        "started_at": when(died_usec - (run["ended_usec"] - run["started_usec"])),
        "died_at": when(died_usec),
        "doing": {
            "figures": dict(verdict["doing"]["figures"]),
            "seconds_before_death": verdict["doing"]["seconds_before_death"],
        },
        "evidence": [_evidence(piece) for piece in verdict["evidence"]],
        "ruled_out": [{"cause": other["cause"], "why": other["why"]} for other in verdict["ruled_out"]],
        "also": list(verdict["also"]),
        "gaps": [_gap(gap) for gap in verdict["gaps"]],
        "notes": list(verdict["notes"]),
        "advice": list(verdict["advice"]),
        "fingerprint": verdict["fingerprint"],
        "signature": verdict["signature"],
        "settled": not verdict.get("awaits"),
        "revision": revision,
        "backfilled": backfilled,
        "run": {
            "result": run["result"],
            "exit_code": run["exit_code"],
            "exit_status": run["exit_status"],
            "signal": signal_name(run["exit_code"], run["exit_status"]),
            "main_pid": run["main_pid"],
            "n_restarts": run["n_restarts"],
        },
    }


def timeline_shape(run: dict[str, Any], verdict: dict[str, Any], timeline: dict[str, Any]) -> TimelineShape:
    """The public shape of what `codec.dump_timeline` gave, the verdict's evidence marked in it."""
    roles = {(piece["event"]["kind"], piece["event"]["record"]["ref"]): piece["role"] for piece in verdict["evidence"]}
    return {
        "id": run["invocation_id"][:12],
        "unit": run["unit"],
        "invocation_id": run["invocation_id"],
        "boot_id": run["boot_id"],
        "sources": timeline["sources"],
        "gaps": [_gap(gap) for gap in timeline["gaps"]],
        "events": [_fact(event, roles) for event in timeline["events"]],
    }


def signal_name(exit_code: str | None, exit_status: int | None) -> str | None:
    """The signal that ended a process, from systemd's pair of exit code and status; None when it exited by itself."""
    if exit_code not in ("killed", "dumped") or exit_status is None:
        return None
    try:
        return signal.Signals(exit_status).name
    except ValueError:  # a real-time signal
        return f"signal {exit_status}"


def _evidence(piece: dict[str, Any]) -> EvidenceShape:
    record = piece["event"]["record"]
    return {
        "role": piece["role"],
        "kind": piece["event"]["kind"],
        "source": record["source"],
        "ref": record["ref"],
        "at": when(record["realtime_usec"]),
        "message": record["message"],
        "why": piece["why"],
    }


def _gap(gap: dict[str, Any]) -> GapShape:
    return {
        "source": gap["source"],
        "reason": gap["reason"],
        "from_usec": gap["from_usec"],
        "to_usec": gap["to_usec"],
    }


def _fact(event: dict[str, Any], roles: dict[tuple[str, str], str]) -> FactShape:
    record = event["record"]
    return {
        "kind": event["kind"],
        "at": when(record["realtime_usec"]),
        "monotonic_usec": record["monotonic_usec"],
        "source": record["source"],
        "ref": record["ref"],
        "pid": record["pid"],
        "message": record["message"],
        "role": roles.get((event["kind"], record["ref"])),
        "values": {name: value for name, value in event.items() if name not in ("kind", "record")},
    }
