"""Alerts that must go out. A row is written in the transaction that stores its crash: stored first, then sent."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from forensics.public import crash_shape
from forensics.shapes import CrashShape
from forensics.store.database import Database
from forensics.store.news import tally

# A clock that was set back must not silence a sink: a try that lies further ahead than any back-off is due now.
FURTHEST_TRY_USEC = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message that one sink shall get. `amends` when that sink already got an earlier verdict on this run."""

    id: int
    sink: str
    crash: CrashShape
    attempts: int
    amends: bool

    @property
    def key(self) -> str:
        """The same for every try of this message, so that a receiver can tell a repeat."""
        return f"{self.crash['id']}-{self.crash['revision']}"


def enqueue(db: sqlite3.Connection, invocation_id: str, revision: int, sinks: Iterable[str], now_usec: int) -> None:
    """Inside the transaction of a save: one row a sink. What still waits from an earlier revision is not news any
    more; the new row tells it all."""
    db.execute("UPDATE outbox SET state = 'superseded' WHERE invocation_id = ? AND state = 'waiting'", (invocation_id,))
    db.executemany(
        "INSERT INTO outbox (invocation_id, revision, sink, state, next_try_usec, created_usec)"
        " VALUES (?, ?, ?, 'waiting', ?, ?)",
        [(invocation_id, revision, sink, now_usec, now_usec) for sink in sinks],
    )


class Outbox:
    """The sinks' side of the store. Stamps are microseconds since the epoch, since they outlive a boot."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def due(self, sink: str, now_usec: int) -> Delivery | None:
        """The oldest message of a sink whose time has come."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT outbox.id, outbox.attempts, run, verdict, runs.revision, backfilled, history, EXISTS ("
                "  SELECT 1 FROM outbox AS earlier WHERE earlier.invocation_id = outbox.invocation_id"
                "  AND earlier.sink = outbox.sink AND earlier.state = 'delivered') AS amends"
                " FROM outbox JOIN runs USING (invocation_id)"
                " WHERE sink = ? AND state = 'waiting' AND (next_try_usec <= ? OR next_try_usec > ?)"
                " ORDER BY outbox.id LIMIT 1",
                (sink, now_usec, now_usec + FURTHEST_TRY_USEC),
            ).fetchone()
        if row is None:
            return None
        crash = crash_shape(
            json.loads(row["run"]),
            json.loads(row["verdict"]),
            revision=row["revision"],
            backfilled=bool(row["backfilled"]),
            history=json.loads(row["history"]),
        )
        return Delivery(id=row["id"], sink=sink, crash=crash, attempts=row["attempts"], amends=bool(row["amends"]))

    def next_try_usec(self, sink: str) -> int | None:
        """When the next message of a sink is due; None when none waits."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT min(next_try_usec) FROM outbox WHERE sink = ? AND state = 'waiting'", (sink,)
            ).fetchone()
        result: int | None = row[0]
        return result

    def delivered(self, delivery: Delivery, now_usec: int) -> None:
        """The sink has it. What else waits for this sink is tried at once: it is there again."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE outbox SET state = 'delivered', attempts = attempts + 1, delivered_usec = ?, last_error = ''"
                " WHERE id = ?",
                (now_usec, delivery.id),
            )
            tally(db, "deliveries", delivery.sink, "delivered")
            db.execute(
                "UPDATE outbox SET next_try_usec = ? WHERE sink = ? AND state = 'waiting' AND next_try_usec > ?",
                (now_usec, delivery.sink, now_usec),
            )

    def failed(self, delivery: Delivery, error: str, next_try_usec: int) -> None:
        """This try did not work; the message stays."""
        with self._database.writing(durable=False) as db:
            db.execute(
                "UPDATE outbox SET attempts = attempts + 1, last_error = ?, next_try_usec = ? WHERE id = ?",
                (error, next_try_usec, delivery.id),
            )
            tally(db, "deliveries", delivery.sink, "failed")

    def abandon_others(self, sinks: Collection[str]) -> int:
        """Gives up what waits for sinks that are no longer configured; how many messages that were."""
        marks = ", ".join("?" * len(sinks))
        with self._database.writing(durable=False) as db:
            return db.execute(
                "UPDATE outbox SET state = 'abandoned', last_error = 'the sink is no longer configured'"  # noqa: S608
                f" WHERE state = 'waiting' AND sink NOT IN ({marks})",
                tuple(sinks),
            ).rowcount

    def states(self) -> dict[str, dict[str, int]]:
        """How many messages of each sink are in which state."""
        with self._database.reading() as db:
            rows = db.execute("SELECT sink, state, count(*) AS n FROM outbox GROUP BY sink, state").fetchall()
        result: dict[str, dict[str, int]] = {}
        for row in rows:
            result.setdefault(row["sink"], {})[row["state"]] = row["n"]
        return result
