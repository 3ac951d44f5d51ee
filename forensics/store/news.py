"""What has happened, numbered without holes: for those who listen, and counted for those who draw curves.

A row is written in the transaction of what it tells of, so nobody hears of a crash that is not there, and every crash
that is there is heard of. One writer commits in the order of the numbers.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from forensics.public import server_name, when
from forensics.store import rows
from forensics.store.database import Database

KEPT = 10_000
"""So many are kept; who was away for longer is told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that happened. `kind` is `crash`, `amended`, `start-limit` (systemd has given the server up) or
    `run-ended`, with the crash as it is now as `data` (`CrashShape`); or, of a living run, `run-started`, `run-ready`,
    `hang` or `answering`, with unit, server, invocation_id, a time (`started_at`, else `at`), and what else is known.
    """

    number: int
    kind: str
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A counter: `crashes` by unit, cause (`label`) and family; `amended`, `restarts` and `start_limits` by unit;
    `gaps` by source; `deliveries` by sink (`unit`) and outcome (`label`)."""

    name: str
    unit: str
    label: str
    family: str
    count: int


class News:
    """The listeners' side. Every method is one transaction and may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bells: set[Callable[[], None]] = set()
        self._clocks: set[Callable[[float], None]] = set()
        with database.reading() as db:
            self.store_token: str = db.execute("SELECT token FROM identity").fetchone()[0]

    def listen(self, bell: Callable[[], None]) -> None:
        """`bell` is called, from whatever thread, when there may be something new. It must return at once."""
        self._bells.add(bell)

    def time_verdicts(self, clock: Callable[[float], None]) -> None:
        """`clock` is given the seconds from each death to its first verdict."""
        self._clocks.add(clock)

    def judged(self, seconds: float) -> None:
        for clock in tuple(self._clocks):
            clock(seconds)

    def ring(self) -> None:
        for bell in tuple(self._bells):
            bell()

    def bounds(self) -> tuple[int, int]:
        """The number before the first one that is kept, and the last one."""
        with self._database.reading() as db:
            last = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'news'").fetchone()[0]
            first = db.execute("SELECT min(id) FROM news").fetchone()[0]
        return (last if first is None else first - 1), last

    def after(self, number: int, limit: int) -> list[Item]:
        """What came after that number, in order. What was pruned from the store since is passed over, but for its
        place: the last item's number says how far this has come."""
        with self._database.reading() as db:
            found = db.execute("SELECT * FROM news WHERE id > ? ORDER BY id LIMIT ?", (number, limit)).fetchall()
            return [Item(number=row["id"], kind=row["kind"], data=_data(db, row)) for row in found]

    def tallies(self) -> list[Tally]:
        with self._database.reading() as db:
            return [Tally(**row) for row in db.execute("SELECT * FROM tallies")]

    def last_decodes(self) -> dict[str, dict[str, str]]:
        """By unit, the figures of the last decode line of each living run, as of the last checkpoint."""
        with self._database.reading() as db:
            found = db.execute(
                "SELECT unit, tracked_events.data ->> '$.values' AS figures, max(id) FROM tracked_events"
                " JOIN tracked_runs USING (invocation_id) WHERE NOT has_ended"
                " AND tracked_events.data ->> '$.kind' = 'batch' AND tracked_events.data ->> '$.phase' = 'decode'"
                " GROUP BY unit"
            ).fetchall()
        return {row["unit"]: dict(json.loads(row["figures"])) for row in found}


def tell(
    db: sqlite3.Connection,
    kind: str,
    invocation_id: str,
    unit: str,
    at_usec: int,
    details: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Inside a transaction: one more thing has happened."""
    db.execute(
        "INSERT INTO news (kind, invocation_id, unit, at_usec, details) VALUES (?, ?, ?, ?, ?)",
        (kind, invocation_id, unit, at_usec, json.dumps(dict(details))),
    )


def is_told(db: sqlite3.Connection, kind: str, invocation_id: str, at_usec: int) -> bool:
    sql = "SELECT 1 FROM news WHERE kind = ? AND invocation_id = ? AND at_usec = ?"
    return db.execute(sql, (kind, invocation_id, at_usec)).fetchone() is not None


def tally(db: sqlite3.Connection, name: str, unit: str = "", label: str = "", family: str = "") -> None:
    """Inside a transaction: one more of these."""
    db.execute(
        "INSERT INTO tallies VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
        (name, unit, label, family),
    )


def forget(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM news WHERE id <= (SELECT max(id) FROM news) - ?", (KEPT,))


def _data(db: sqlite3.Connection, row: sqlite3.Row) -> Any:
    if row["kind"] in ("run-started", "run-ready", "hang", "answering"):
        return {
            "unit": row["unit"],
            "server": server_name(row["unit"]),
            "invocation_id": row["invocation_id"],
            "started_at" if row["kind"] == "run-started" else "at": when(row["at_usec"]),
            **json.loads(row["details"]),
        }
    stored = db.execute(
        "SELECT run, verdict, revision, backfilled, history FROM runs WHERE invocation_id = ?", (row["invocation_id"],)
    ).fetchone()
    return None if stored is None else rows.shape_of(stored)
