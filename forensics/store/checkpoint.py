"""The daemon's place in the journal, with what it knows of the runs that it still tracks there.

Written every second while servers run, so only what is new is written: events never change, and each is stored once.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace

from forensics.codec import dump_run_record, load_event, load_run_record
from forensics.events import Event
from forensics.lives import ready_usec
from forensics.model import RunRecord
from forensics.redact import redact_json
from forensics.store.database import Database
from forensics.store.news import tell
from forensics.store.outbox import enqueue
from forensics.store.rows import event_text, now_usec, text_of
from forensics.store.telling import READY, Channel, Happening


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything up to `cursor` is in `open_runs` or in the store. `realtime_usec` is that entry's wall clock."""

    cursor: str
    realtime_usec: int
    open_runs: tuple[RunRecord, ...]


class Place:
    """Saves and loads checkpoints. One thread saves."""

    def __init__(self, database: Database, channels: Iterable[Channel] = ()) -> None:
        self._database = database
        self._channels = tuple(channels)
        # What this process has written: the row of each event that is still tracked, by identity. None before the
        # first save, which starts afresh.
        self._stored: dict[int, tuple[Event, int]] | None = None
        self._last_row = 0

    def save(self, cursor: str, realtime_usec: int, runs: Iterable[RunRecord]) -> bool:
        """True when there is a living run in it that the checkpoint before did not have, or that has become ready."""
        runs = tuple(runs)
        living = [run for run in runs if run.ended_usec is None]
        ready = {run.invocation_id: stamp for run in living if (stamp := ready_usec(run)) is not None}
        stored: dict[int, tuple[Event, int]] = {}
        run_rows, new_rows, last_row = [], [], self._last_row
        known = self._stored or {}
        for run in runs:
            scalars = redact_json(dump_run_record(replace(run, events=[])))
            ended, ready_at = run.ended_usec is not None, ready.get(run.invocation_id)
            run_rows.append((run.invocation_id, run.unit, run.first_realtime_usec, ended, text_of(scalars), ready_at))
            for event in run.events:
                entry = known.get(id(event))
                if entry is None:
                    last_row += 1
                    entry = event, last_row
                    new_rows.append((last_row, run.invocation_id, event_text(event)))
                stored[id(event)] = entry
        # Not durable: an older checkpoint only means reading more of the journal again, and a save is done once.
        with self._database.writing(durable=False) as db:
            db.execute(
                "INSERT INTO checkpoint VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE"
                " SET cursor = excluded.cursor, realtime_usec = excluded.realtime_usec",
                (cursor, realtime_usec),
            )
            new = self._tell(db, living, ready)
            db.execute("DELETE FROM tracked_runs")
            db.executemany("INSERT INTO tracked_runs VALUES (?, ?, ?, ?, ?, ?)", run_rows)
            if self._stored is None:
                db.execute("DELETE FROM tracked_events")
            else:
                gone = [(row,) for key, (_, row) in self._stored.items() if key not in stored]
                db.executemany("DELETE FROM tracked_events WHERE id = ?", gone)
            db.executemany("INSERT INTO tracked_events VALUES (?, ?, ?)", new_rows)
        self._stored, self._last_row = stored, last_row
        return new

    def _tell(self, db: sqlite3.Connection, living: list[RunRecord], ready: dict[str, int]) -> bool:
        """Of the runs that live: which have begun since the checkpoint before, and which have become ready."""
        known = {
            row["invocation_id"]: row["ready_usec"]
            for row in db.execute("SELECT invocation_id, ready_usec FROM tracked_runs")
        }
        begun = [run for run in living if run.invocation_id not in known]
        now_ready = [run for run in living if run.invocation_id in ready and known.get(run.invocation_id) is None]
        for run in begun:
            tell(db, "run-started", run.invocation_id, run.unit, run.first_realtime_usec)
        for run in now_ready:
            tell(db, "run-ready", run.invocation_id, run.unit, ready[run.invocation_id])
            happening = Happening(
                kind=READY,
                unit=run.unit,
                invocation_id=run.invocation_id,
                at_usec=ready[run.invocation_id],
                now_usec=now_usec(),
            )
            enqueue(db, happening, self._channels)
        return bool(begun or now_ready)

    def load(self) -> Checkpoint | None:
        with self._database.reading() as db:
            place = db.execute("SELECT cursor, realtime_usec FROM checkpoint").fetchone()
            runs = db.execute("SELECT data FROM tracked_runs ORDER BY first_realtime_usec").fetchall()
            events = db.execute("SELECT invocation_id, data FROM tracked_events ORDER BY id").fetchall()
        if place is None:
            return None
        records = {
            record.invocation_id: record for record in (load_run_record(json.loads(run["data"])) for run in runs)
        }
        for row in events:
            records[row["invocation_id"]].events.append(load_event(json.loads(row["data"])))
        return Checkpoint(place["cursor"], place["realtime_usec"], tuple(records.values()))
