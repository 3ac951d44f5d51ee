"""A disk that is full: SQLite's page limit stands in for it, since SQLite reports both as SQLITE_FULL."""

from forensics.store import Store
from tests.forensics.factories import crash


def limit(store: Store) -> None:
    """Not a page more from now on."""
    pages = store._database._writer.execute("PRAGMA page_count").fetchone()[0]
    store._database._writer.execute(f"PRAGMA max_page_count = {pages}")


def lift(store: Store) -> None:
    store._database._writer.execute("PRAGMA max_page_count = 1000000")


def fill(store: Store) -> None:
    """Save crashes until it is full. StoreError when it is."""
    for number in range(2, 200):
        store.save(crash(number))
