"""Ended runs in short, each a few hundred bytes: for a picture of every server's lives, and for deaths that are alike.

A row of `runs` carries its whole timeline; a list of a thousand of them would read all that from the disk.
"""

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from forensics.events import RestartScheduled, StartLimitHit, StopRequested, UnitStarted
from forensics.model import Crash
from forensics.public import server_name, usec, when
from forensics.shapes import GroupShape, LastRunShape, LifeShape
from forensics.store.database import Database
from forensics.store.query import Query, where

MOST_LIVES = 600
"""Shared evenly by the servers, so that one in a restart loop does not hide the others."""
MOST_GROUPS = 500


class Lives:
    """Reads the lives. Every method is one transaction and may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def between(self, since: datetime, until: datetime) -> list[LifeShape]:
        """Runs that lived in [since, until), by their start; of more than `MOST_LIVES`, each server's last ones."""
        bounds = usec(since), usec(until)
        within = "ended_at_usec >= ? AND started_at_usec < ?"
        with self._database.reading() as db:
            units = [row[0] for row in db.execute("SELECT DISTINCT unit FROM lives")]
            ended = [
                row
                for unit in units
                for row in db.execute(
                    f"SELECT * FROM lives WHERE unit = ? AND {within} ORDER BY ended_at_usec DESC LIMIT ?",
                    (unit, *bounds, max(1, MOST_LIVES // len(units))),
                )
            ]
            found = [*map(_ended, ended), *_living(db, bounds[1])]
        return sorted(found, key=lambda life: (life["unit"], life["started_at"]))

    def groups(self, query: Query) -> tuple[list[GroupShape], int]:
        """Crashes by fingerprint, the one that struck last first, and how many fingerprints there are in all."""
        condition, values = where(query, "ended_at_usec", crashes_only=True)
        with self._database.reading() as db:
            found = db.execute(
                "SELECT fingerprint, count(*) AS times, min(ended_at_usec) AS first_usec,"
                " max(ended_at_usec) AS last_usec, group_concat(DISTINCT unit) AS units, count(*) OVER () AS total"
                f" FROM lives WHERE {condition} GROUP BY fingerprint ORDER BY last_usec DESC, fingerprint LIMIT ?",
                (*values, query.limit),
            ).fetchall()
            groups = [self._group(db, row, condition, values) for row in found]
        return groups, found[0]["total"] if found else 0

    @staticmethod
    def _group(db: sqlite3.Connection, row: sqlite3.Row, condition: str, values: list[object]) -> GroupShape:
        newest = db.execute(
            f"SELECT * FROM lives WHERE {condition} AND fingerprint = ? ORDER BY ended_at_usec DESC LIMIT 1",
            (*values, row["fingerprint"]),
        ).fetchone()
        return {
            "fingerprint": row["fingerprint"],
            "count": row["times"],
            "first_at": when(row["first_usec"]),
            "last_at": when(row["last_usec"]),
            # The name of a unit has no comma that systemd would not have escaped.
            "servers": sorted(server_name(unit) for unit in row["units"].split(",")),
            "last_id": newest["invocation_id"][:12],
            "cause": newest["cause"],
            "family": newest["family"],
            "strength": newest["strength"],
            "summary": newest["summary"],
        }


def keep(db: sqlite3.Connection, crash: Crash, row: dict[str, Any], summary: str) -> tuple[bool, bool]:
    """Inside the transaction of a save, after the row of `runs`. Whether it is news that systemd will restart the unit,
    and that it has given it up: both follow a death by seconds, as late evidence."""
    invocation_id = row["invocation_id"]
    before = db.execute("SELECT restarted, gave_up FROM lives WHERE invocation_id = ?", (invocation_id,)).fetchone()
    restarted = crash.timeline.first(RestartScheduled) is not None
    gave_up = crash.timeline.first(StartLimitHit) is not None
    ended_usec = usec(crash.run.died_at)
    life = {
        "invocation_id": invocation_id,
        "unit": row["unit"],
        "started_at_usec": ended_usec - (crash.run.ended_usec - crash.run.started_usec),
        "ready_at_usec": _stamp(crash, UnitStarted),
        "stopping_at_usec": _stamp(crash, StopRequested),
        "ended_at_usec": ended_usec,
        **{name: row[name] for name in ("is_crash", "became_ready", "cause", "family", "strength", "phase")},
        "restarted": restarted,
        "gave_up": gave_up,
        "fingerprint": row["fingerprint"],
        # Half a surrogate pair can stand in JSON, and not in a column.
        "summary": summary.encode("utf-8", "replace").decode(),
    }
    db.execute(
        f"INSERT OR REPLACE INTO lives ({', '.join(life)}) VALUES ({', '.join(':' + name for name in life)})",
        life,
    )
    if before is None:
        return restarted, gave_up
    return restarted and not before["restarted"], gave_up and not before["gave_up"]


def newest(db: sqlite3.Connection, unit: str, *, crashes_only: bool) -> LastRunShape | None:
    """How the unit's last run ended, or its last crash."""
    row = db.execute(
        "SELECT * FROM lives WHERE invocation_id = (SELECT invocation_id FROM runs WHERE unit = ? AND is_crash >= ?"
        " ORDER BY died_at_usec DESC, seq DESC LIMIT 1)",
        (unit, crashes_only),
    ).fetchone()
    if row is None:
        return None
    return {
        "id": row["invocation_id"][:12],
        "died_at": when(row["ended_at_usec"]),
        "is_crash": bool(row["is_crash"]),
        "cause": row["cause"],
        "family": row["family"],
        "strength": row["strength"],
        "summary": row["summary"],
    }


def _stamp(crash: Crash, fact: type[UnitStarted] | type[StopRequested]) -> int | None:
    found = crash.timeline.first(fact)
    return None if found is None else found.record.realtime_usec


def _ended(row: sqlite3.Row) -> LifeShape:
    return {
        "id": row["invocation_id"][:12],
        "unit": row["unit"],
        "server": server_name(row["unit"]),
        "started_at": when(row["started_at_usec"]),
        "ready_at": _when(row["ready_at_usec"]),
        "stopping_at": _when(row["stopping_at_usec"]),
        "ended_at": when(row["ended_at_usec"]),
        "became_ready": bool(row["became_ready"]),
        "is_crash": bool(row["is_crash"]),
        "restarted": bool(row["restarted"]),
        "cause": row["cause"],
        "family": row["family"],
        "strength": row["strength"],
        "summary": row["summary"],
    }


def _living(db: sqlite3.Connection, until_usec: int) -> Iterator[LifeShape]:
    """Runs that have not ended, as of the last checkpoint."""
    for run in db.execute(
        "SELECT invocation_id, unit, first_realtime_usec FROM tracked_runs"
        " WHERE NOT has_ended AND first_realtime_usec < ?",
        (until_usec,),
    ).fetchall():
        stamps = {
            row["kind"]: row["at_usec"]
            for row in db.execute(
                "SELECT data ->> '$.kind' AS kind, min(data ->> '$.record.realtime_usec') AS at_usec"
                " FROM tracked_events WHERE invocation_id = ? AND kind IN ('unit-started', 'stop-requested')"
                " GROUP BY kind",
                (run["invocation_id"],),
            )
        }
        yield {
            "id": run["invocation_id"][:12],
            "unit": run["unit"],
            "server": server_name(run["unit"]),
            "started_at": when(run["first_realtime_usec"]),
            "ready_at": _when(stamps.get("unit-started")),
            "stopping_at": _when(stamps.get("stop-requested")),
            "ended_at": None,
            "became_ready": "unit-started" in stamps,
            "is_crash": False,
            "restarted": False,
            "cause": None,
            "family": None,
            "strength": None,
            "summary": None,
        }


def _when(realtime_usec: int | None) -> str | None:
    return None if realtime_usec is None else when(realtime_usec)
