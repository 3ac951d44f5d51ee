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
from forensics.store.migrations import MIGRATIONS

# Another process (a second daemon by mistake, a person with the sqlite3 shell) may hold the file for a moment.
BUSY_TIMEOUT_SECONDS = 5.0


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
