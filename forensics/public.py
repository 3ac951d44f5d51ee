"""From what the codec wrote to what everybody outside sees (`forensics.shapes`)."""

import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from forensics.shapes import (
    CrashShape,
    EvidenceShape,
    FactShape,
    GapShape,
    HistoryShape,
    MemoryShape,
    RejectedShape,
    SupervisionShape,
    TimelineShape,
)

_EPOCH = datetime.fromtimestamp(0, UTC)


def server_name(unit: str) -> str:
    """`sglang-demo.service` is the server `demo`; a unit of another name stands for itself."""
    return unit.removeprefix("sglang-").removesuffix(".service") or unit


def when(realtime_usec: int) -> str:
    """Microseconds since the epoch as RFC 3339 in UTC, always with six decimals so that texts sort as times do."""
    stamp = _EPOCH + timedelta(microseconds=realtime_usec)
    return stamp.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def usec(stamp: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    return (stamp - _EPOCH) // timedelta(microseconds=1)


def crash_shape(
    run: dict[str, Any],
    verdict: dict[str, Any],
    *,
    revision: int = 1,
    backfilled: bool = False,
    history: HistoryShape | None = None,
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
        "gaps": [_gap(gap, run) for gap in verdict["gaps"]],
        "rejected": [_rejected(found) for found in verdict.get("rejected", ())],
        "supervision": _supervision(verdict.get("supervision") or {}),
        "notes": list(verdict["notes"]),
        "ground": list(verdict.get("ground", ())),
        "speculation": dict(verdict.get("speculation", ())),
        "advice": list(verdict["advice"]),
        "memory": _memory(verdict["memory"]),
        "fingerprint": verdict["fingerprint"],
        "signature": verdict["signature"],
        "settled": not verdict.get("awaits"),
        "revision": revision,
        "backfilled": backfilled,
        "history": history,
        "run": {
            "result": run["result"],
            "exit_code": run["exit_code"],
            "exit_status": run["exit_status"],
            "signal": signal_name(run["exit_code"], run["exit_status"]),
            "core_dumped": None if run["exit_code"] is None else run["exit_code"] == "dumped",
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
        "gaps": [_gap(gap, run) for gap in timeline["gaps"]],
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


def _rejected(found: dict[str, Any]) -> RejectedShape:
    record = found["record"]
    writer = found["writer"] or "a process"
    pid = f" [{record['pid']}]" if record["pid"] is not None else ""
    unit = f" of {found['writer_unit']}" if found["writer_unit"] else ""
    return {
        "claims": found["claims"],
        "kind": found["imitates"],
        "count": found["count"],
        "ref": record["ref"],
        "at": when(record["realtime_usec"]),
        "message": record["message"],
        "written_by": f"{writer}{pid}{unit}",
        "why": found["why"],
    }


def _supervision(read: dict[str, Any]) -> SupervisionShape:
    return {"oom_policy": read.get("oom_policy"), "restart": read.get("restart"), "next": read.get("next", "")}


def _memory(memory: dict[str, Any] | None) -> MemoryShape | None:
    if memory is None:
        return None
    return {
        "sentence": memory["sentence"],
        "figures": [
            {"what": figure["what"], "size_bytes": figure["size_bytes"], "source": figure["source"]}
            for figure in memory["figures"]
        ],
    }


def _gap(gap: dict[str, Any], run: dict[str, Any]) -> GapShape:
    died_usec = usec(datetime.fromisoformat(run["died_at"]))

    def at(bound_usec: int | None) -> str | None:
        return None if bound_usec is None else when(died_usec - (run["ended_usec"] - bound_usec))

    return {
        "source": gap["source"],
        "reason": gap["reason"],
        "from_usec": gap["from_usec"],
        "to_usec": gap["to_usec"],
        "from_at": at(gap["from_usec"]),
        "to_at": at(gap["to_usec"]),
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
