"""What people see of the outbox: each channel, and what waits for it and why."""

import json
import sqlite3
from collections.abc import Iterable

from forensics.public import server_name, when
from forensics.shapes import AlertsShape, ChannelShape, WaitingShape
from forensics.store.database import Database
from forensics.store.outbox import IS_BEHIND
from forensics.store.telling import ABANDONED, DELIVERED, FOLDED, RECOVERED, SUPERSEDED, WAITING, Channel

MOST_WAITING = 100
GONE = "gone"
"""The type of a channel that is configured no longer, and was told something once."""


def alerts(database: Database, channels: Iterable[Channel], now_usec: int) -> AlertsShape:
    """Every channel with its counts, and the messages that wait, in the order in which they may go."""
    with database.reading() as db:
        types = {channel.name: channel.type for channel in channels}
        seen = [row["sink"] for row in db.execute("SELECT DISTINCT sink FROM outbox ORDER BY sink")]
        names = dict.fromkeys((*types, *seen))
        waiting = db.execute(
            f"SELECT *, {IS_BEHIND} AS is_behind FROM outbox AS one WHERE state = 'waiting'"
            " ORDER BY due_usec, id LIMIT ?",
            (MOST_WAITING,),
        )
        return {
            "channels": [_channel(db, name, types.get(name, GONE)) for name in names],
            "waiting": [_waiting(row, now_usec) for row in waiting],
        }


def _channel(db: sqlite3.Connection, name: str, type_: str) -> ChannelShape:
    counts = dict(db.execute("SELECT state, count(*) FROM outbox WHERE sink = ? GROUP BY state", (name,)).fetchall())
    last = db.execute(
        "SELECT max(delivered_usec) FROM outbox WHERE sink = ? AND state = ?", (name, DELIVERED)
    ).fetchone()
    failing = db.execute(
        "SELECT last_error FROM outbox WHERE sink = ? AND state = ? AND attempts > 0 ORDER BY due_usec, id LIMIT 1",
        (name, WAITING),
    ).fetchone()
    return {
        "name": name,
        "type": type_,
        "waiting": counts.get(WAITING, 0),
        "delivered": counts.get(DELIVERED, 0),
        "superseded": counts.get(SUPERSEDED, 0),
        "abandoned": counts.get(ABANDONED, 0),
        "last_delivered_at": None if last[0] is None else when(last[0]),
        "last_error": failing["last_error"] if failing else "",
    }


def _waiting(row: sqlite3.Row, now_usec: int) -> WaitingShape:
    about = row["about"] or json.loads(row["details"]).get("invocation_id", "")
    return {
        "channel": row["sink"],
        "kind": row["kind"],
        "server": server_name(row["unit"]),
        "unit": row["unit"],
        "id": about[:12],
        "count": row["count"],
        "attempts": row["attempts"],
        "due_at": when(row["due_usec"]),
        "next_try_at": when(max(row["due_usec"], row["next_try_usec"])),
        "why": _why(row, now_usec),
    }


def _why(row: sqlite3.Row, now_usec: int) -> str:
    if row["is_behind"]:
        return "an earlier message about this server has to go first"
    if row["attempts"] and row["last_error"]:
        return f"tried {row['attempts']} time{'s' if row['attempts'] > 1 else ''}: {row['last_error']}"
    if row["attempts"]:
        return "is being sent"
    if row["due_usec"] > now_usec and row["kind"] == FOLDED:
        return "gathers repeats of the same death"
    if row["due_usec"] > now_usec and row["kind"] == RECOVERED:
        return "waits to see whether the server stays ready"
    return "goes out now"
