"""Alerts that must go out. A row is written in the transaction of what it tells of: stored first, then sent."""

import json
import logging
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import replace

from forensics.store import rows
from forensics.store.database import Database
from forensics.store.delivery import Delivery, delivery_of
from forensics.store.news import tally
from forensics.store.telling import AMENDED, CRASH, LOOKED_BACK, READY, START_LIMIT, Channel, Happening, Message, Past

log = logging.getLogger(__name__)

FURTHEST_TRY_USEC = 3_600_000_000
"""A clock that was set back must not silence a sink: a try that lies further ahead than any back-off is due now."""

# Of one server's messages the first that is due goes first, and holds up the others until it has arrived.
IS_BEHIND = (
    "EXISTS (SELECT 1 FROM outbox AS other WHERE other.sink = one.sink AND other.unit = one.unit"
    " AND other.state = 'waiting' AND other.holds_up AND (other.due_usec, other.id) < (one.due_usec, one.id))"
)
_NEXT = (
    "SELECT *, max(iif(created_usec > :now, 0, due_usec), iif(next_try_usec > :furthest, 0, next_try_usec)) AS at_usec"
    " FROM outbox AS one WHERE sink = :sink AND state = 'waiting'"
    f" AND NOT {IS_BEHIND}"
    " ORDER BY at_usec > :now, due_usec, id LIMIT 1"
)


def enqueue(db: sqlite3.Connection, happening: Happening, channels: Iterable[Channel]) -> None:
    """Inside the transaction that stores what happened: what each channel decides to be told of it."""
    for channel in channels:
        for message in _decided(channel, happening, _past(db, channel.name, happening.unit)):
            _write(db, channel.name, happening, message)
    if happening.kind in (CRASH, AMENDED) and (ready_usec := _ready_usec(db, happening.unit)) > happening.at_usec:
        # The verdict came when the server was back already.
        enqueue(db, replace(happening, kind=READY, at_usec=ready_usec), channels)


def _decided(channel: Channel, happening: Happening, past: Past) -> Iterable[Message]:
    try:
        return tuple(channel.decide(happening, past))
    except Exception:
        # A mistake in the decision must cost neither the record of the death nor the alert.
        log.exception("what %s is told of %s could not be decided", channel.name, happening.unit)
    if happening.kind not in (CRASH, START_LIMIT):
        return ()
    return (
        Message(
            kind=happening.kind,
            due_usec=happening.now_usec,
            about=happening.invocation_id,
            revision=happening.revision,
            fingerprint=happening.fingerprint,
            since_usec=happening.at_usec,
            until_usec=happening.at_usec,
        ),
    )


def forget_messages(db: sqlite3.Connection, oldest_usec: int) -> None:
    """Inside a transaction: those about a death go with it, the others when they are as old."""
    db.execute("DELETE FROM outbox WHERE about IS NULL AND created_usec < ?", (oldest_usec,))


def _ready_usec(db: sqlite3.Connection, unit: str) -> int:
    """Since when the unit's living run is ready, 0 if there is none."""
    sql = "SELECT coalesce(max(ready_usec), 0) FROM tracked_runs WHERE unit = ? AND NOT has_ended"
    found: int = db.execute(sql, (unit,)).fetchone()[0]
    return found


def _past(db: sqlite3.Connection, sink: str, unit: str) -> Past:
    served = "SELECT coalesce(max(died_at_usec), 0) FROM runs WHERE unit = ? AND became_ready"
    # A server that flaps leaves many returns behind that were never told.
    told = (
        "SELECT * FROM outbox WHERE sink = ? AND unit = ? AND state != 'abandoned'"
        " AND NOT (state = 'superseded' AND about IS NOT NULL AND kind = 'recovered') ORDER BY id DESC LIMIT ?"
    )
    return Past(
        messages=tuple(_message(row) for row in db.execute(told, (sink, unit, LOOKED_BACK))),
        served_until_usec=db.execute(served, (unit,)).fetchone()[0],
    )


def _message(row: sqlite3.Row) -> Message:
    names = ("id", "kind", "state", "about", "revision", "fingerprint", "count", "due_usec")
    return Message(
        **{name: row[name] for name in (*names, "since_usec", "until_usec", "back_usec")},
        down=bool(row["down"]),
        tried=row["attempts"] > 0,
        details=json.loads(row["details"]),
    )


def _write(db: sqlite3.Connection, sink: str, happening: Happening, message: Message) -> None:
    values = {
        "state": message.state,
        "about": message.about,
        "revision": message.revision,
        "count": message.count,
        "since_usec": message.since_usec,
        "until_usec": message.until_usec,
        "back_usec": message.back_usec,
        "down": message.down,
        "details": rows.text_of(message.details),
    }
    if message.id:
        values["due_usec"] = message.due_usec
        if message.fresh:
            values["next_try_usec"] = message.due_usec
        changes = ", ".join(f"{name} = :{name}" for name in values)
        db.execute(f"UPDATE outbox SET {changes} WHERE id = :id", {**values, "id": message.id})
        return
    values |= {
        "sink": sink,
        "unit": happening.unit,
        "kind": message.kind,
        "fingerprint": message.fingerprint,
        "due_usec": message.due_usec,
        "next_try_usec": message.due_usec,
        "created_usec": happening.now_usec,
    }
    db.execute(
        f"INSERT INTO outbox ({', '.join(values)}) VALUES ({', '.join(':' + name for name in values)})",
        values,
    )


class Outbox:
    """The sinks' side of the store. Stamps are microseconds since the epoch, since they outlive a boot."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._states: tuple[int, dict[str, dict[str, int]]] = (-1, {})

    def take(self, sink: str, now_usec: int) -> Delivery | None:
        """The next message of a sink, if its time has come. It counts as tried from here on: it may arrive, so nothing
        is gathered into it any more."""
        next_try_usec = self.next_try_usec(sink, now_usec)
        if next_try_usec is None or next_try_usec > now_usec:
            return None
        with self._database.writing(durable=False) as db:
            row = _next(db, sink, now_usec)
            if row is None or row["at_usec"] > now_usec:
                return None
            db.execute("UPDATE outbox SET attempts = attempts + 1 WHERE id = ?", (row["id"],))
            return delivery_of(db, row)

    def next_try_usec(self, sink: str, now_usec: int) -> int | None:
        """When the next message of a sink is due; None when none waits."""
        with self._database.reading() as db:
            row = _next(db, sink, now_usec)
        return None if row is None else row["at_usec"]

    def delivered(self, delivery: Delivery, now_usec: int) -> None:
        """The sink has it. What else waits for this sink is tried at once: it is there again."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE outbox SET state = 'delivered', delivered_usec = ?, last_error = '' WHERE id = ?",
                (now_usec, delivery.id),
            )
            tally(db, "deliveries", delivery.sink, "delivered")
            db.execute(
                "UPDATE outbox SET next_try_usec = ? WHERE sink = ? AND state = 'waiting' AND next_try_usec > ?",
                (now_usec, delivery.sink, now_usec),
            )

    def failed(self, delivery: Delivery, error: str, next_try_usec: int, *, holds_up: bool = True) -> None:
        """This try did not work; the message stays. `holds_up` is False for one that the receiver may never take, for
        then the next may go all the same."""
        with self._database.writing(durable=False) as db:
            db.execute(
                "UPDATE outbox SET last_error = ?, next_try_usec = ?, holds_up = ? WHERE id = ?",
                (error, next_try_usec, holds_up, delivery.id),
            )
            tally(db, "deliveries", delivery.sink, "failed")

    def abandon_others(self, sinks: Collection[str]) -> int:
        """Gives up what waits for sinks that are no longer configured; how many messages that were."""
        marks = ", ".join("?" * len(sinks))
        with self._database.writing(durable=False) as db:
            return db.execute(
                "UPDATE outbox SET state = 'abandoned', last_error = 'the sink is no longer configured'"
                f" WHERE state = 'waiting' AND sink NOT IN ({marks})",
                tuple(sinks),
            ).rowcount

    def owed(self, now_usec: int) -> dict[str, int]:
        """How many messages of each sink should be there by now; what is still being gathered is not among them."""
        sql = "SELECT sink, count(*) AS n FROM outbox WHERE state = 'waiting' AND due_usec <= ? GROUP BY sink"
        with self._database.reading() as db:
            return {row["sink"]: row["n"] for row in db.execute(sql, (now_usec,))}

    def states(self) -> dict[str, dict[str, int]]:
        """How many messages of each sink are in which state. Counted once after each change of the store."""
        changes, states = self._database.changes, self._states
        if states[0] != changes:
            with self._database.reading() as db:
                found = db.execute("SELECT sink, state, count(*) AS n FROM outbox GROUP BY sink, state").fetchall()
            counts: dict[str, dict[str, int]] = {}
            for row in found:
                counts.setdefault(row["sink"], {})[row["state"]] = row["n"]
            self._states = states = changes, counts
        return states[1]


def _next(db: sqlite3.Connection, sink: str, now_usec: int) -> sqlite3.Row | None:
    values = {"sink": sink, "now": now_usec, "furthest": now_usec + FURTHEST_TRY_USEC}
    row: sqlite3.Row | None = db.execute(_NEXT, values).fetchone()
    return row
