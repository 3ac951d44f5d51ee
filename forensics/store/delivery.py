"""A message as its sink gets it: the row of the outbox, with the death that it is about as it is judged now."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forensics.public import server_name
from forensics.shapes import CrashShape
from forensics.store import rows
from forensics.store.telling import AMENDED, CRASH, DELIVERED, LOOKED_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What this channel was told of this server before, and was not told to be over."""

    kind: str
    cause: str
    family: str
    since_usec: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message that one sink shall get: `attempts` counts this try too. The rest is as in `Message`; `crash` is the
    death that it is about as it is judged now, None for a living run."""

    id: int
    sink: str
    kind: str
    unit: str
    attempts: int
    crash: CrashShape | None
    key: str
    """The same for every try of this message, so that a receiver can tell a repeat."""
    count: int = 1
    since_usec: int = 0
    until_usec: int = 0
    back_usec: int = 0
    down: bool = True
    details: dict[str, Any]
    earlier: tuple[Earlier, ...] = ()

    @property
    def server(self) -> str:
        return server_name(self.unit)


def delivery_of(db: sqlite3.Connection, row: sqlite3.Row) -> Delivery:
    """The message in a row of the outbox, for this try."""
    details = json.loads(row["details"])
    kind, about = row["kind"], row["about"]
    if kind == CRASH and _was_told(db, row):
        kind = AMENDED  # it arrived after all
    stored = None if about is None else _judged(db, about)
    if about is None:
        key = f"{details['invocation_id'][:12]}-{kind}-{row['id']}"
    else:
        key = f"{about[:12]}-{row['revision']}" + ("" if kind in (CRASH, AMENDED) else f"-{kind}")
    return Delivery(
        id=row["id"],
        sink=row["sink"],
        kind=kind,
        unit=row["unit"],
        attempts=row["attempts"] + 1,
        crash=None if stored is None else rows.shape_of(stored),
        key=key,
        **{name: row[name] for name in ("count", "since_usec", "until_usec", "back_usec")},
        down=bool(row["down"]),
        details=details,
        earlier=tuple(_earlier(db, row)),
    )


def _judged(db: sqlite3.Connection, invocation_id: str) -> sqlite3.Row | None:
    sql = "SELECT run, verdict, revision, backfilled, history FROM runs WHERE invocation_id = ?"
    row: sqlite3.Row | None = db.execute(sql, (invocation_id,)).fetchone()
    return row


def _was_told(db: sqlite3.Connection, row: sqlite3.Row) -> bool:
    sql = "SELECT 1 FROM outbox WHERE sink = ? AND about = ? AND state = 'delivered' AND kind IN ('crash', 'amended')"
    return db.execute(sql, (row["sink"], row["about"])).fetchone() is not None


def _earlier(db: sqlite3.Connection, row: sqlite3.Row) -> Iterator[Earlier]:
    found = db.execute(
        "SELECT kind, details, since_usec, down FROM outbox WHERE sink = ? AND unit = ? AND id < ? AND state = ?"
        " ORDER BY id DESC LIMIT ?",
        (row["sink"], row["unit"], row["id"], DELIVERED, LOOKED_BACK),
    )
    for told in found:
        if not told["down"]:
            return
        details = json.loads(told["details"])
        yield Earlier(
            kind=told["kind"],
            cause=details.get("cause", ""),
            family=details.get("family", ""),
            since_usec=told["since_usec"],
        )
