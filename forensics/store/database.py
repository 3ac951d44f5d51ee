"""The SQLite file: connections, transactions, the schema and its migrations.

WAL, so that readers never wait for the writer and a killed writer leaves a whole file. One writing connection in the
process, behind a lock: SQLite's own waiting sleeps in steps, a lock does not.
"""

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from forensics.errors import StoreError

# Another process (a second daemon by mistake, a person with the sqlite3 shell) may hold the file for a moment.
BUSY_TIMEOUT_SECONDS = 5.0

# Each entry brings the schema from version i to i+1; `user_version` says how many have been done.
MIGRATIONS = (
    """
    CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        invocation_id TEXT NOT NULL UNIQUE,
        unit TEXT NOT NULL,
        is_crash INTEGER NOT NULL,
        cause TEXT NOT NULL,
        family TEXT NOT NULL,
        strength TEXT,
        phase TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        died_at_usec INTEGER NOT NULL,
        saved_at_usec INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        backfilled INTEGER NOT NULL,
        run TEXT NOT NULL,
        verdict TEXT NOT NULL,
        timeline BLOB NOT NULL
    ) STRICT;
    -- Every filter is in it, so that a list walks it in order and looks up only the rows that it shows.
    CREATE INDEX runs_newest ON runs (
        is_crash, died_at_usec DESC, seq DESC, unit, cause, family, strength, phase, fingerprint
    );
    CREATE INDEX runs_of_unit ON runs (unit, died_at_usec DESC, seq DESC, is_crash);

    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        invocation_id TEXT NOT NULL REFERENCES runs (invocation_id) ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        sink TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'superseded', 'abandoned')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_try_usec INTEGER NOT NULL,
        last_error TEXT NOT NULL DEFAULT '',
        created_usec INTEGER NOT NULL,
        delivered_usec INTEGER,
        UNIQUE (invocation_id, sink, revision)
    ) STRICT;
    CREATE INDEX outbox_waiting ON outbox (sink, next_try_usec) WHERE state = 'waiting';
    CREATE INDEX outbox_states ON outbox (sink, state);

    CREATE TABLE checkpoint (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        cursor TEXT NOT NULL,
        realtime_usec INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE tracked_runs (
        invocation_id TEXT PRIMARY KEY,
        unit TEXT NOT NULL,
        first_realtime_usec INTEGER NOT NULL,
        has_ended INTEGER NOT NULL,
        data TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tracked_events (
        id INTEGER PRIMARY KEY,
        invocation_id TEXT NOT NULL,
        data TEXT NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE runs ADD COLUMN became_ready INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN configuration TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE runs ADD COLUMN history TEXT NOT NULL DEFAULT 'null';
    UPDATE runs SET became_ready = coalesce(verdict ->> '$.became_ready', 0);
    """,
    """
    CREATE INDEX runs_alike ON runs (unit, fingerprint, died_at_usec) WHERE is_crash;
    CREATE INDEX runs_served ON runs (unit, died_at_usec) WHERE became_ready;
    """,
    """
    ALTER TABLE runs ADD COLUMN facts TEXT NOT NULL DEFAULT '';
    CREATE INDEX runs_ended ON runs (died_at_usec DESC, seq DESC);
    """,
    """
    CREATE TABLE lives (
        invocation_id TEXT PRIMARY KEY REFERENCES runs (invocation_id) ON DELETE CASCADE,
        unit TEXT NOT NULL,
        started_at_usec INTEGER NOT NULL,
        ready_at_usec INTEGER,
        stopping_at_usec INTEGER,
        ended_at_usec INTEGER NOT NULL,
        is_crash INTEGER NOT NULL,
        became_ready INTEGER NOT NULL,
        restarted INTEGER NOT NULL,
        cause TEXT NOT NULL,
        family TEXT NOT NULL,
        strength TEXT,
        phase TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        summary TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX lives_ended ON lives (unit, ended_at_usec);
    CREATE INDEX runs_configured ON runs (unit, died_at_usec DESC, seq DESC) WHERE configuration != '{}';
    CREATE INDEX lives_alike ON lives (is_crash, fingerprint, ended_at_usec, unit, cause, family);
    INSERT INTO lives SELECT invocation_id, unit, died_at_usec - (run ->> '$.ended_usec') + (run ->> '$.started_usec'),
        NULL, NULL, died_at_usec, is_crash, became_ready, 0, cause, family, strength, phase, fingerprint,
        coalesce(verdict ->> '$.summary', '') FROM runs;

    CREATE TABLE news (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK (kind IN ('crash', 'amended', 'run-started', 'run-ended')),
        invocation_id TEXT NOT NULL,
        unit TEXT NOT NULL,
        at_usec INTEGER NOT NULL
    ) STRICT;
    -- Numbers are of this store: a new file begins again, and must not be taken for the old one.
    CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), token TEXT NOT NULL) STRICT;
    INSERT INTO identity VALUES (1, lower(hex(randomblob(4))));
    -- Counters that only rise, whatever is pruned, corrected or restarted.
    CREATE TABLE tallies (
        name TEXT NOT NULL,
        unit TEXT NOT NULL,
        label TEXT NOT NULL,
        family TEXT NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (name, unit, label, family)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO tallies SELECT 'crashes', unit, cause, family, count(*) FROM runs WHERE is_crash GROUP BY 2, 3, 4;
    """,
    """
    ALTER TABLE lives ADD COLUMN gave_up INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tracked_runs ADD COLUMN ready_usec INTEGER;

    -- News of any kind, those of a living run with their own data.
    CREATE TABLE all_news (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        invocation_id TEXT NOT NULL,
        unit TEXT NOT NULL,
        at_usec INTEGER NOT NULL,
        details TEXT NOT NULL DEFAULT '{}'
    ) STRICT;
    INSERT INTO all_news (id, kind, invocation_id, unit, at_usec)
        SELECT id, kind, invocation_id, unit, at_usec FROM news;
    UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'news') WHERE name = 'all_news';
    DROP TABLE news;
    ALTER TABLE all_news RENAME TO news;

    -- Messages, each with what it tells: repeats are gathered in one, and a server can be back before it is told.
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        sink TEXT NOT NULL,
        unit TEXT NOT NULL,
        kind TEXT NOT NULL,
        about TEXT REFERENCES runs (invocation_id) ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        fingerprint TEXT NOT NULL,
        count INTEGER NOT NULL,
        since_usec INTEGER NOT NULL,
        until_usec INTEGER NOT NULL,
        back_usec INTEGER NOT NULL,
        down INTEGER NOT NULL,
        details TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'superseded', 'abandoned')),
        attempts INTEGER NOT NULL DEFAULT 0,
        due_usec INTEGER NOT NULL,
        next_try_usec INTEGER NOT NULL,
        holds_up INTEGER NOT NULL DEFAULT 1,
        last_error TEXT NOT NULL DEFAULT '',
        created_usec INTEGER NOT NULL,
        delivered_usec INTEGER
    ) STRICT;
    INSERT INTO messages SELECT outbox.id, sink, unit, iif(outbox.revision = 1, 'crash', 'amended'),
        outbox.invocation_id, outbox.revision, fingerprint, 1, died_at_usec, died_at_usec, 0, is_crash,
        json_object('cause', cause, 'family', family), state, attempts, created_usec, next_try_usec, 1, last_error,
        created_usec, delivered_usec FROM outbox JOIN runs USING (invocation_id);
    DROP TABLE outbox;
    ALTER TABLE messages RENAME TO outbox;
    CREATE INDEX outbox_waiting ON outbox (sink, unit, due_usec, id) WHERE state = 'waiting';
    CREATE INDEX outbox_told ON outbox (sink, unit, id);
    CREATE INDEX outbox_about ON outbox (about);
    CREATE INDEX outbox_states ON outbox (sink, state);
    """,
)


class Database:
    """The file at `path`, made or migrated when opened. Usable from every thread; `close()` ends all of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0
        """How many transactions were written since it was opened."""
        self._writing = threading.Lock()
        self._idle: deque[sqlite3.Connection] = deque()
        try:
            # Made here for its mode: log lines are for the daemon's user and group. The WAL files inherit it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
            self._writer = self._connect(writable=True)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._migrate()
        except sqlite3.Error as error:
            self._writer.close()
            raise self._unusable(error) from error
        except StoreError:
            self._writer.close()
            raise

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            "store-unusable",
            f"{self.path}: cannot be opened as the store: {error}",
            "Check that the state directory belongs to the daemon's user and the disk has room. "
            "A damaged file can be moved away; the daemon then starts with an empty store.",
        )

    def _connect(self, *, writable: bool) -> sqlite3.Connection:
        mode = "rw" if writable else "ro"
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,  # transactions are written out below
            check_same_thread=False,  # the writer is behind a lock, a reader is lent to one thread at a time
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _migrate(self) -> None:
        done: int = self._writer.execute("PRAGMA user_version").fetchone()[0]
        if done > len(MIGRATIONS):
            raise StoreError(
                "store-too-new",
                f"{self.path}: written by a newer version (schema {done}, this one knows {len(MIGRATIONS)})",
                "Install that version again, or move the file away.",
            )
        for version, script in enumerate(MIGRATIONS[done:], start=done + 1):
            # One transaction with its number: killed half-way, it is done again from the start.
            self._writer.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {version}; COMMIT;")

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction. `durable` waits for the disk; without, a power loss may undo the last ones, in order."""
        with self._writing:
            try:
                self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self._writer
                except BaseException:
                    self._writer.execute("ROLLBACK")
                    raise
                self._writer.execute("COMMIT")
                self.changes += 1
            except sqlite3.Error as error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise StoreError(
                    "store-write-failed", f"{self.path}: cannot be written: {error}", "Is the disk full?"
                ) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection in one transaction: every statement in it sees the same state."""
        try:
            connection = self._idle.pop() if self._idle else self._connect(writable=False)
        except IndexError:  # another thread took the last one
            connection = self._connect(writable=False)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        try:
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._idle.append(connection)

    def _unreadable(self, error: Exception) -> StoreError:
        return StoreError("store-read-failed", f"{self.path}: cannot be read: {error}")

    def close(self) -> None:
        """Readers first: the last connection to go folds the WAL back into the file."""
        while self._idle:
            self._idle.pop().close()
        with self._writing, closing(self._writer):
            pass
