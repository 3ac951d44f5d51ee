"""A crash as a row of `runs`, and a row as what people see."""

import json
import sqlite3
import time
import zlib
from datetime import UTC, datetime
from typing import Any

from forensics.codec import dump_event, dump_gap, dump_history, dump_run, dump_verdict
from forensics.events import Event
from forensics.history import History, Past, configuration, history
from forensics.model import Crash
from forensics.public import crash_shape, usec
from forensics.redact import harmless, redact_json
from forensics.shapes import CrashShape

# What must differ before people are told again. Later evidence for the same answer is kept, not told.
_TOLD = ("is_crash", "cause", "strength", "subclass")
_COLUMNS = ("is_crash", "cause", "family", "strength", "phase", "fingerprint", "became_ready")


def now_usec() -> int:
    return time.time_ns() // 1000


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return all(before[name] == after[name] for name in _TOLD)


def row_of(crash: Crash) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """A crash as a row of `runs`, with its verdict as the codec has it and its events as they are stored."""
    run, verdict = redact_json(dump_run(crash.run)), redact_json(dump_verdict(crash.verdict))
    gaps = redact_json([dump_gap(gap) for gap in crash.timeline.gaps])
    sources = sorted(crash.timeline.sources)
    events = [event_text(event) for event in crash.timeline.events]
    row = {
        "invocation_id": run["invocation_id"],
        "unit": run["unit"],
        **{name: verdict[name] for name in _COLUMNS},
        "configuration": text_of(redact_json(configuration(crash.timeline))),
        "died_at_usec": usec(crash.run.died_at),
        "saved_at_usec": now_usec(),
        "revision": 1,
        "run": text_of(run),
        "verdict": text_of(verdict),
        "timeline": pack(f'{{"events":[{",".join(events)}],"gaps":{text_of(gaps)},"sources":{text_of(sources)}}}'),
    }
    return row, verdict, set(events)


def event_text(event: Event) -> str:
    """An event as JSON, secrets removed."""
    data = dump_event(event)
    text = text_of(data)
    # A timeline has a thousand events: going into each of them would take longer than all the rest.
    return text if harmless(text) else text_of(redact_json(data))


def recall(db: sqlite3.Connection, row: dict[str, Any]) -> History:
    """What the store remembers of deaths like this one, and of the last run of the unit that served."""
    values = {name: row[name] for name in ("unit", "fingerprint", "died_at_usec", "invocation_id")}
    same = db.execute(
        "SELECT count(*) AS times, min(died_at_usec) AS first_usec FROM runs WHERE unit = :unit AND is_crash"
        " AND fingerprint = :fingerprint AND died_at_usec < :died_at_usec AND invocation_id != :invocation_id",
        values,
    ).fetchone()
    before = (
        "SELECT invocation_id, died_at_usec, configuration FROM runs WHERE unit = :unit AND {}"
        " AND died_at_usec < :died_at_usec AND invocation_id != :invocation_id ORDER BY died_at_usec DESC LIMIT 1"
    )
    previous = db.execute(before.format("is_crash AND fingerprint = :fingerprint"), values).fetchone()
    good = db.execute(before.format("became_ready"), values).fetchone()
    return history(
        json.loads(row["configuration"]),
        same["times"],
        _moment(same["first_usec"]) if same["times"] else None,
        _past(previous),
        _past(good),
    )


def history_text(past: History) -> str:
    return text_of(dump_history(past))


def _past(row: sqlite3.Row | None) -> Past | None:
    if row is None:
        return None
    return Past(
        crash_id=row["invocation_id"][:12],
        died_at=_moment(row["died_at_usec"]),
        configuration=json.loads(row["configuration"]),
    )


def _moment(realtime_usec: int) -> datetime:
    return datetime.fromtimestamp(realtime_usec / 1e6, UTC)


def events_of(packed: bytes) -> set[str]:
    """The events of a stored timeline, each as `event_text` wrote it."""
    return {text_of(event) for event in unpack(packed)["events"]}


def insert(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    db.execute(
        f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})",
        row,
    )


def update(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    """A later verdict. The place in the order of deaths, and how the run was first saved, stay as they were."""
    kept = ("invocation_id", "died_at_usec", "saved_at_usec", "backfilled")
    changes = ", ".join(f"{name} = :{name}" for name in row if name not in kept)
    db.execute(f"UPDATE runs SET {changes} WHERE invocation_id = :invocation_id", row)


def shape_of(row: sqlite3.Row) -> CrashShape:
    return crash_shape(
        json.loads(row["run"]),
        json.loads(row["verdict"]),
        revision=row["revision"],
        backfilled=bool(row["backfilled"]),
        history=json.loads(row["history"]),
    )


def text_of(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def pack(text: str) -> bytes:
    # Timelines repeat themselves: a tenth of the size for a millisecond.
    return zlib.compress(text.encode(), 1)


def unpack(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))
