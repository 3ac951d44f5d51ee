"""Ended runs and the daemon's place in the journal."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from sqlite3 import Connection, Row
from typing import Any

from forensics.codec import load_run, load_timeline, load_verdict
from forensics.errors import StoreError
from forensics.model import Crash, RunRecord
from forensics.public import server_name, timeline_shape, when
from forensics.redact import redact_json
from forensics.shapes import AlertsShape, CrashShape, RunningShape, ServerShape, TimelineShape
from forensics.store import lives, news, rows, waiting
from forensics.store.checkpoint import Checkpoint, Place
from forensics.store.database import Database
from forensics.store.lives import Lives
from forensics.store.news import News
from forensics.store.outbox import Outbox, enqueue, forget_messages
from forensics.store.query import Page, Query, where, write_cursor
from forensics.store.runs import Runs, facts_text
from forensics.store.telling import AMENDED, CRASH, START_LIMIT, Channel, Happening

FILE_NAME = "inquest.sqlite"


class Store:
    """The store in one file, made when it is not there. One writer at a time; readers never wait.

    Every method is one transaction and may be called from any thread. `channels` are those who may have to be told of
    what is stored.
    """

    def __init__(self, path: Path, channels: Iterable[Channel] = ()) -> None:
        self._database = Database(path)
        self._channels = tuple(channels)
        self._changes_of_ended = 0
        self._place = Place(self._database, self._channels)
        self.outbox = Outbox(self._database)
        self.runs = Runs(self._database)
        self.lives = Lives(self._database)
        self.news = News(self._database)

    def close(self) -> None:
        self._database.close()

    @property
    def changes(self) -> int:
        """A number that rises with whatever is written: what was read at the same one is still so."""
        return self._database.changes

    @property
    def changes_of_ended(self) -> int:
        """The same for ended runs and their verdicts alone: checkpoints and deliveries leave them as they are."""
        return self._changes_of_ended

    def save(self, crash: Crash, *, alert: bool = True) -> Crash | None:
        """Stores an ended run with its verdict, and in the same transaction the alerts that must go out for it.

        A run that is new, or whose verdict changed in a way worth telling, comes back with its revision. None when
        there is nothing new to tell; later evidence for the same verdict is kept all the same, and a judgement from
        less evidence than is stored changes nothing. Clean stops and what is saved with `alert=False` (deaths from
        before the daemon knew the machine) are told to nobody.
        """
        row, verdict, events = rows.row_of(crash)
        row["facts"] = facts_text(crash)
        row["backfilled"] = not alert
        changed = True
        with self._database.writing() as db:
            stored = db.execute(
                "SELECT revision, is_crash, verdict, timeline FROM runs WHERE invocation_id = ?",
                (crash.run.invocation_id,),
            ).fetchone()
            row["history"] = rows.history_text(rows.recall(db, row))
            known = rows.events_of(stored["timeline"]) if stored is not None else set()
            if stored is None:
                rows.insert(db, row)
            elif events < known or (known and events.isdisjoint(known)):
                # A daemon that was killed and judges again has sampled less than the one before it; nothing it saw
                # is new, so its verdict is only the poorer one. And a run of which all was forgotten is no run: PID 1
                # speaks of the last one once more when a start is refused, for example by the start limit.
                return None
            elif rows.same(json.loads(stored["verdict"]), verdict):
                row["revision"], changed = stored["revision"], False
                rows.update(db, row)
            else:
                row["revision"] = stored["revision"] + 1
                rows.update(db, row)
            restarted, gave_up = lives.keep(db, crash, row, verdict["summary"])
            if changed:
                self._tell(db, row, verdict, amended=stored is not None)
                # A crash that turned out to be a clean stop is news to those who were told of a crash.
                if alert and (verdict["is_crash"] or (stored is not None and stored["is_crash"])):
                    enqueue(db, _happening(AMENDED if stored else CRASH, row), self._channels)
            if restarted:
                news.tally(db, "restarts", row["unit"])
            if gave_up:
                news.tally(db, "start_limits", row["unit"])
                news.tell(db, START_LIMIT, row["invocation_id"], row["unit"], row["died_at_usec"])
                if alert:
                    enqueue(db, _happening(START_LIMIT, row), self._channels)
        self._changes_of_ended += 1
        if stored is None and alert:
            self.news.judged(max(0, row["saved_at_usec"] - row["died_at_usec"]) / 1e6)
        if changed or gave_up:
            self.news.ring()
        return replace(crash, revision=row["revision"]) if changed else None

    def note(self, kind: str, unit: str, invocation_id: str, at_usec: int, details: dict[str, Any]) -> None:
        """Something about a living run (`hang`, `answering`), for those who listen and those who may have to be told.
        `details` says what; secrets are removed from it. What is noted already, as a daemon does that was killed before
        its checkpoint, changes nothing."""
        details = redact_json(details)
        with self._database.writing() as db:
            if news.is_told(db, kind, invocation_id, at_usec):
                return
            news.tell(db, kind, invocation_id, unit, at_usec, details)
            happening = Happening(
                kind=kind,
                unit=unit,
                invocation_id=invocation_id,
                at_usec=at_usec,
                now_usec=rows.now_usec(),
                details=details,
            )
            enqueue(db, happening, self._channels)
        self.news.ring()

    @staticmethod
    def _tell(db: Connection, row: dict[str, Any], verdict: dict[str, Any], *, amended: bool) -> None:
        kind = "amended" if amended else "crash" if verdict["is_crash"] else "run-ended"
        news.tell(db, kind, row["invocation_id"], row["unit"], row["died_at_usec"])
        if amended:
            news.tally(db, "amended", row["unit"])
        elif verdict["is_crash"]:
            news.tally(db, "crashes", row["unit"], row["cause"], row["family"])
            for source in {gap["source"] for gap in verdict["gaps"]}:
                news.tally(db, "gaps", label=source)

    def checkpoint(self, cursor: str, realtime_usec: int, runs: Iterable[RunRecord]) -> None:
        """Remembers how far the journal was read, and the runs that are still tracked there: open, or not yet judged
        for good."""
        if self._place.save(cursor, realtime_usec, runs):
            self.news.ring()

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint; None at the first start."""
        return self._place.load()

    def crashes(self, query: Query | None = None) -> Page:
        """One page of crashes, newest first by the time of death."""
        query = query or Query()
        condition, values = where(query, "died_at_usec", crashes_only=True)
        with self._database.reading() as db:
            found = db.execute(
                "SELECT seq, died_at_usec, run, verdict, revision, backfilled, history FROM runs"
                " INDEXED BY runs_newest"
                f" WHERE {condition} ORDER BY died_at_usec DESC, seq DESC LIMIT ?",
                (*values, query.limit + 1),
            ).fetchall()
        more = len(found) > query.limit
        found = found[: query.limit]
        return Page(
            tuple(rows.shape_of(row) for row in found),
            write_cursor(found[-1]["died_at_usec"], found[-1]["seq"]) if more else None,
        )

    def crash(self, name: str) -> Crash | None:
        """The ended run with this id, invocation id, or beginning of one. StoreError when several begin so."""
        row = self._find(name)
        if row is None:
            return None
        return Crash(
            run=load_run(json.loads(row["run"])),
            timeline=load_timeline(rows.unpack(row["timeline"])),
            verdict=load_verdict(json.loads(row["verdict"])),
            revision=row["revision"],
        )

    def shown(self, name: str) -> CrashShape | None:
        """Like `crash`, in its public shape."""
        row = self._find(name)
        return None if row is None else rows.shape_of(row)

    def timeline(self, name: str) -> TimelineShape | None:
        """The timeline of a run, named as for `crash`, in its public shape."""
        row = self._find(name)
        if row is None:
            return None
        return timeline_shape(json.loads(row["run"]), json.loads(row["verdict"]), rows.unpack(row["timeline"]))

    def servers(self) -> list[ServerShape]:
        """Every unit that has run since the store was made, by name."""
        remarks = self.runs.remarks()
        with self._database.reading() as db:
            counts = {
                row["unit"]: row
                for row in db.execute("SELECT unit, count(*) AS runs, sum(is_crash) AS crashes FROM runs GROUP BY unit")
            }
            silent = _not_answering(db)
            running: dict[str, RunningShape] = {
                row["unit"]: {
                    "invocation_id": row["invocation_id"],
                    "since": when(row["first_realtime_usec"]),
                    "not_answering_since": silent.get(row["invocation_id"]),
                }
                for row in db.execute("SELECT * FROM tracked_runs WHERE NOT has_ended ORDER BY first_realtime_usec")
            }
            return [
                {
                    "unit": unit,
                    "server": server_name(unit),
                    "running": running.get(unit),
                    "runs": counts[unit]["runs"] if unit in counts else 0,
                    "crashes": counts[unit]["crashes"] if unit in counts else 0,
                    "last_run": lives.newest(db, unit, crashes_only=False),
                    "last_crash": lives.newest(db, unit, crashes_only=True),
                    "remark": remarks.get(unit),
                }
                for unit in sorted(counts.keys() | running.keys())
            ]

    def alerts(self) -> AlertsShape:
        """Those who are told, and what waits for them."""
        return waiting.alerts(self._database, self._channels, rows.now_usec())

    def prune(self, max_crashes: int, max_age_days: int) -> int:
        """Drops what is older or beyond the newest `max_crashes`; clean runs count apart. How many rows went."""
        oldest = rows.now_usec() - max_age_days * 86_400_000_000
        gone = 0
        with self._database.writing(durable=False) as db:
            for is_crash in (0, 1):
                gone += db.execute(
                    "DELETE FROM runs WHERE is_crash = :is_crash AND (died_at_usec < :oldest OR seq NOT IN ("
                    "  SELECT seq FROM runs WHERE is_crash = :is_crash"
                    "  ORDER BY died_at_usec DESC, seq DESC LIMIT :most))",
                    {"is_crash": is_crash, "oldest": oldest, "most": max_crashes},
                ).rowcount
            news.forget(db)
            forget_messages(db, oldest)
        self._changes_of_ended += 1
        return gone

    def _find(self, name: str) -> Row | None:
        if not name or not set(name) <= set("0123456789abcdef"):
            return None
        with self._database.reading() as db:
            # "g" follows "f": all that begin with the name.
            found = db.execute(
                "SELECT * FROM runs WHERE invocation_id >= ? AND invocation_id < ? LIMIT 2", (name, name + "g")
            ).fetchall()
        if len(found) > 1:
            raise StoreError("ambiguous-id", f"several crashes begin with {name!r}", "Give more digits of the id.")
        return found[0] if found else None


def _not_answering(db: Connection) -> dict[str, str]:
    """By invocation, since when each living run that does not answer has not, as of the last checkpoint."""
    last = db.execute(
        "SELECT invocation_id, tracked_events.data ->> '$.kind' AS kind, max(id),"
        " tracked_events.data ->> '$.since_usec' AS since_usec"
        " FROM tracked_events JOIN tracked_runs USING (invocation_id) WHERE NOT has_ended"
        " AND tracked_events.data ->> '$.kind' IN ('not-answering', 'answering') GROUP BY invocation_id"
    )
    return {row["invocation_id"]: when(row["since_usec"]) for row in last if row["kind"] == "not-answering"}


def _happening(kind: str, row: dict[str, Any]) -> Happening:
    """The death in a row of `runs`, as it is told."""
    names = ("unit", "invocation_id", "revision", "is_crash", "cause", "family", "strength", "fingerprint")
    return Happening(
        kind=kind, at_usec=row["died_at_usec"], now_usec=row["saved_at_usec"], **{name: row[name] for name in names}
    )
