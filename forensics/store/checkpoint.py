"""The daemon's place in the journal, with what it knows of the runs that it still tracks there.

Written every second while servers run, so only what is new is written: events never change, and each is stored once.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from forensics.codec import dump_run_record, load_event, load_run_record
from forensics.events import Event
from forensics.model import RunRecord
from forensics.redact import redact_json
from forensics.store.database import Database
from forensics.store.news import tell_started
from forensics.store.rows import event_text, text_of


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything up to `cursor` is in `open_runs` or in the store. `realtime_usec` is that entry's wall clock."""

    cursor: str
    realtime_usec: int
    open_runs: tuple[RunRecord, ...]


class Place:
    """Saves and loads checkpoints. One thread saves."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # What this process has written: the row of each event that is still tracked, by identity. None before the
        # first save, which starts afresh.
        self._stored: dict[int, tuple[Event, int]] | None = None
        self._last_row = 0

    def save(self, cursor: str, realtime_usec: int, runs: Iterable[RunRecord]) -> bool:
        """True when there is a living run in it that the checkpoint before did not have."""
        runs = tuple(runs)
        living = [(run.invocation_id, run.unit, run.first_realtime_usec) for run in runs if run.ended_usec is None]
        stored: dict[int, tuple[Event, int]] = {}
        run_rows, new_rows, last_row = [], [], self._last_row
        known = self._stored or {}
        for run in runs:
            scalars = redact_json(dump_run_record(replace(run, events=[])))
            run_rows.append(
                (run.invocation_id, run.unit, run.first_realtime_usec, run.ended_usec is not None, text_of(scalars))
            )
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
            began = tell_started(db, living)
            db.execute("DELETE FROM tracked_runs")
            db.executemany("INSERT INTO tracked_runs VALUES (?, ?, ?, ?, ?)", run_rows)
            if self._stored is None:
                db.execute("DELETE FROM tracked_events")
            else:
                gone = [(row,) for key, (_, row) in self._stored.items() if key not in stored]
                db.executemany("DELETE FROM tracked_events WHERE id = ?", gone)
            db.executemany("INSERT INTO tracked_events VALUES (?, ?, ?)", new_rows)
        self._stored, self._last_row = stored, last_row
        return began

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
