"""Deliveries as sinks get them."""

from typing import Any

from forensics.codec import dump_run, dump_verdict
from forensics.model import Crash
from forensics.public import crash_shape, usec
from forensics.store import Delivery
from tests.forensics.factories import crash

LINK = "http://127.0.0.1:8642"
SECOND = 1_000_000


def delivery(kind: str = "crash", of: Crash | None = None, **changes: Any) -> Delivery:
    """A message about a death, by default that of `crash(1)`."""
    made = of or crash(1)
    at_usec = usec(made.run.died_at)
    given: dict[str, Any] = {
        "id": 1,
        "sink": "pager",
        "kind": kind,
        "unit": made.run.unit,
        "attempts": 1,
        "crash": crash_shape(dump_run(made.run), dump_verdict(made.verdict), revision=made.revision),
        "key": f"{made.crash_id}-1",
        "since_usec": at_usec,
        "until_usec": at_usec,
        "details": {"cause": made.verdict.cause, "family": str(made.verdict.family)},
    }
    return Delivery(**(given | changes))


def living(kind: str, **changes: Any) -> Delivery:
    """A message about a living run."""
    details = {"invocation_id": "0" * 31 + "7", **changes.pop("details", {})}
    return delivery(kind, crash=None, details=details, **changes)
