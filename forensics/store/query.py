"""Which runs, in which order, and where a page ended."""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime

from forensics.errors import StoreError
from forensics.public import usec
from forensics.shapes import CrashShape

MAX_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A filter is off when it is None. `since` is inside, `until` outside, both of the run's end. `before` is the
    cursor of the last page. `server` is a unit's full name or the name in `sglang-<name>.service`."""

    server: str | None = None
    cause: str | None = None
    family: str | None = None
    strength: str | None = None
    phase: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first. `next` is the cursor for `Query.before`, None on the last page."""

    crashes: tuple[CrashShape, ...]
    next: str | None


def where(query: Query, ended: str, *, crashes_only: bool) -> tuple[str, list[object]]:
    """The condition of a query, with its values. `ended` is the column of the time of a run's end."""
    terms: list[tuple[str, list[object]]] = [("is_crash = 1", [])] if crashes_only else [("1", [])]
    for column in ("cause", "family", "strength", "phase", "fingerprint"):
        value = getattr(query, column)
        if value is not None:
            terms.append((f"{column} = ?", [value]))
    if query.server is not None:
        terms.append(("unit IN (?, ?)", [query.server, f"sglang-{query.server}.service"]))
    if query.since is not None:
        terms.append((f"{ended} >= ?", [usec(query.since)]))
    if query.until is not None:
        terms.append((f"{ended} < ?", [usec(query.until)]))
    if query.before is not None:
        # By key, not by offset: what arrives meanwhile is newer than the key, so nothing shifts.
        terms.append((f"({ended}, seq) < (?, ?)", list(read_cursor(query.before))))
    return " AND ".join(term for term, _ in terms), [value for _, values in terms for value in values]


def write_cursor(died_at_usec: int, seq: int) -> str:
    return base64.urlsafe_b64encode(f"{died_at_usec}.{seq}".encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[int, int]:
    """The key that `write_cursor` wrote. StoreError for anything else."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        died_at_usec, seq = text.split(".")
        key = int(died_at_usec), int(seq)
    except (binascii.Error, ValueError):
        key = None
    if key is None or write_cursor(*key) != cursor:
        raise StoreError("bad-cursor", f"not a cursor: {cursor!r}", "Use `next` of the page before as it is.")
    return key
