"""Runs as they are remembered, ended or alive: what `GET /runs` shows, and the tuning tables made of it."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from forensics.codec import load_event, load_run, load_run_record, load_timeline
from forensics.errors import StoreError
from forensics.history import changes, configuration
from forensics.model import Crash, Run, RunRecord
from forensics.public import server_name, when
from forensics.redact import redact_json
from forensics.runs.compare import tuning
from forensics.runs.record import facts
from forensics.runs.shapes import FactsShape, RunDetailShape, RunEntryShape, TuningShape
from forensics.store import rows
from forensics.store.database import Database
from forensics.store.query import Query, where, write_cursor
from forensics.timeline import Timeline

log = logging.getLogger(__name__)

MOST_TUNED = 200
"""A tuning table is made of so many of the server's last runs."""

_ENDED = (
    "SELECT seq, invocation_id, unit, run ->> '$.boot_id' AS boot_id, started_at_usec, died_at_usec, is_crash, cause,"
    " strength, became_ready, summary, configuration, facts FROM runs"
    " JOIN (SELECT invocation_id AS life, started_at_usec, summary FROM lives) ON life = invocation_id WHERE "
)
"""Ended runs; the condition follows."""
_OF_OPEN_RUNS = ("server-args", "milestone", "unit-started", "unit-starting", "batch", "bench-result", "process-tree")
"""The facts of a living run that its record is made of; the sampled ones are still with the sampler."""

_NOTHING: FactsShape = {
    "ready_after_seconds": None,
    "max_total_num_tokens": None,
    "max_running_requests": None,
    "memory": [],
    "peaks": [],
    "decoding": None,
    "benches": [],
    "remark": None,
}


@dataclass(frozen=True, slots=True)
class RunPage:
    """Newest first. `next` is the cursor for `Query.before`, None on the last page."""

    runs: tuple[RunEntryShape, ...]
    next: str | None


def facts_text(crash: Crash) -> str:
    """What is remembered of an ended run, for its row. Never raises: the crash itself must be stored."""
    try:
        return rows.text_of(redact_json(facts(crash.run, crash.timeline)))
    except Exception:  # the crash is stored without it
        log.exception("no record could be made of run %s", crash.run.invocation_id)
        return ""


class Runs:
    """The runs' side of the store. Every method is one transaction and may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, query: Query | None = None) -> RunPage:
        """One page of runs: the living ones, then the ended ones by the time of their end, newest first."""
        query = query or Query()
        condition, values = where(query, "died_at_usec", crashes_only=False)
        with self._database.reading() as db:
            living = [] if query.before or query.until else [_entry(run) for run in _living(db, query.server)]
            found = db.execute(
                f"{_ENDED} {condition} ORDER BY died_at_usec DESC, seq DESC LIMIT ?",
                (*values, query.limit + 1),
            ).fetchall()
            ended = [_entry(_ended(db, row)) for row in found[: query.limit]]
        more = len(found) > query.limit
        last = found[query.limit - 1] if more else None
        return RunPage((*living, *ended), write_cursor(last["died_at_usec"], last["seq"]) if last else None)

    def one(self, name: str) -> RunDetailShape | None:
        """The run with this id, invocation id, or beginning of one. StoreError when several begin so."""
        if not name or not set(name) <= set("0123456789abcdef"):
            return None
        with self._database.reading() as db:
            # "g" follows "f": all that begin with the name.
            found = db.execute(
                f"{_ENDED} invocation_id >= ? AND invocation_id < ? LIMIT 2",
                (name, name + "g"),
            ).fetchall()
            runs = [_ended(db, row) for row in found]
            runs += [run for run in _living(db, None) if run["invocation_id"].startswith(name)]
        if len(runs) > 1:
            raise StoreError("ambiguous-id", f"several runs begin with {name!r}", "Give more digits of the id.")
        return runs[0] if runs else None

    def tuning(self, server: str, by: str | None = None) -> TuningShape | None:
        """The tuning table of a server; None for one that never ran."""
        condition, values = where(Query(server=server), "died_at_usec", crashes_only=False)
        with self._database.reading() as db:
            found = db.execute(
                f"{_ENDED} {condition} ORDER BY died_at_usec DESC, seq DESC LIMIT ?",
                (*values, MOST_TUNED),
            ).fetchall()
            runs = [*_living(db, server), *(_ended(db, row, compare=False) for row in found)]
        return tuning(server_name(runs[0]["unit"]), runs, by) if runs else None

    def remarks(self) -> dict[str, str]:
        """By unit, what is odd about the speculation of its living run, or of its last one."""
        found: dict[str, str | None] = {}
        with self._database.reading() as db:
            for run in _living(db, None):
                found[run["unit"]] = run["remark"]
            for unit in [row["unit"] for row in db.execute("SELECT DISTINCT unit FROM runs")]:
                if unit not in found:
                    row = db.execute(
                        "SELECT invocation_id, facts FROM runs WHERE unit = ? ORDER BY died_at_usec DESC LIMIT 1",
                        (unit,),
                    ).fetchone()
                    found[unit] = _facts(db, *row)["remark"]
        return {unit: remark for unit, remark in found.items() if remark}


def _entry(run: RunDetailShape) -> RunEntryShape:
    rest: Any = {name: value for name, value in run.items() if name != "configuration"}
    entry: RunEntryShape = rest
    return entry


def _ended(db: sqlite3.Connection, row: sqlite3.Row, *, compare: bool = True) -> RunDetailShape:
    arguments = json.loads(row["configuration"])
    before = _before(db, row["unit"], row["died_at_usec"], row["invocation_id"]) if compare else None
    detail: Any = {
        **_identity(row["unit"], row["invocation_id"], row["boot_id"], when(row["started_at_usec"])),
        "end": {
            "ended_at": when(row["died_at_usec"]),
            "is_crash": bool(row["is_crash"]),
            "cause": row["cause"],
            "strength": row["strength"],
            "became_ready": bool(row["became_ready"]),
            "summary": row["summary"],
        },
        **_since(before, arguments),
        **_facts(db, row["invocation_id"], row["facts"]),
        "configuration": arguments,
    }
    made: RunDetailShape = detail
    return made


def _facts(db: sqlite3.Connection, invocation_id: str, stored: str) -> FactsShape:
    """The stored facts; those of a run from before they were stored are made of its timeline."""
    if stored:
        return {**_NOTHING, **json.loads(stored)}
    row = db.execute("SELECT run, timeline FROM runs WHERE invocation_id = ?", (invocation_id,)).fetchone()
    return facts(load_run(json.loads(row["run"])), load_timeline(rows.unpack(row["timeline"])))


def _living(db: sqlite3.Connection, server: str | None) -> Iterator[RunDetailShape]:
    """Runs that have not ended, as of the last checkpoint; one whose end is stored since then has."""
    found = db.execute(
        "SELECT invocation_id, data FROM tracked_runs WHERE NOT has_ended"
        " AND (:server IS NULL OR unit IN (:server, :unit)) AND invocation_id NOT IN (SELECT invocation_id FROM runs)"
        " ORDER BY first_realtime_usec DESC",
        {"server": server, "unit": f"sglang-{server}.service"},
    ).fetchall()
    marks = ", ".join("?" * len(_OF_OPEN_RUNS))
    for row in found:
        record = load_run_record(json.loads(row["data"]))
        events = db.execute(
            f"SELECT data FROM tracked_events WHERE invocation_id = ? AND data ->> '$.kind' IN ({marks}) ORDER BY id",
            (row["invocation_id"], *_OF_OPEN_RUNS),
        ).fetchall()
        timeline = Timeline.of(load_event(json.loads(event["data"])) for event in events)
        arguments = redact_json(configuration(timeline))
        detail: Any = {
            **_identity(record.unit, record.invocation_id, record.boot_id, when(record.first_realtime_usec)),
            "end": None,
            **_since(_before(db, record.unit, record.first_realtime_usec, record.invocation_id), arguments),
            **redact_json(facts(_run_so_far(record), timeline, record.decoding)),
            "configuration": arguments,
        }
        made: RunDetailShape = detail
        yield made


def _run_so_far(record: RunRecord) -> Run:
    last_usec = max(record.first_usec, record.last_line_usec or 0)
    return Run(
        unit=record.unit,
        invocation_id=record.invocation_id,
        boot_id=record.boot_id,
        control_group=record.control_group,
        main_pid=record.main_pid,
        pids=record.pids,
        started_usec=record.first_usec,
        ended_usec=last_usec,
        died_at=datetime.fromtimestamp(max(record.last_realtime_usec, record.first_realtime_usec) / 1e6, UTC),
        result=None,
        exit_code=None,
        exit_status=None,
    )


def _before(db: sqlite3.Connection, unit: str, realtime_usec: int, invocation_id: str) -> sqlite3.Row | None:
    """The last run of the unit that had ended by then and whose arguments are known."""
    found: sqlite3.Row | None = db.execute(
        "SELECT invocation_id, configuration FROM runs WHERE unit = ? AND died_at_usec <= ? AND invocation_id != ?"
        " AND configuration != '{}' ORDER BY died_at_usec DESC, seq DESC LIMIT 1",
        (unit, realtime_usec, invocation_id),
    ).fetchone()
    return found


def _since(before: sqlite3.Row | None, arguments: dict[str, str]) -> Any:
    changed = changes(json.loads(before["configuration"]), arguments) if before else ()
    return {
        "before_id": before["invocation_id"][:12] if before else None,
        "changes": [{"name": one.name, "before": one.before, "after": one.after} for one in changed],
    }


def _identity(unit: str, invocation_id: str, boot_id: str, started_at: str) -> Any:
    return {
        "id": invocation_id[:12],
        "unit": unit,
        "server": server_name(unit),
        "invocation_id": invocation_id,
        "boot_id": boot_id,
        "started_at": started_at,
    }
