"""The record that `inquest bench` writes of what it measured, for the run that it measured."""

import json

from forensics.entry import Entry
from forensics.events import BenchResult, Event

SOURCE = "bench"

MESSAGE_ID = "93a89fb2cf1b4fc8a1708db547a62e29"


def parse(entry: Entry) -> Event | None:
    """A measurement, believed because root wrote it (`_UID`, which the kernel sets); None for the rest."""
    if entry.get("MESSAGE_ID") != MESSAGE_ID or entry.get("_UID") != "0":
        return None
    try:
        figures = json.loads(entry.get("INQUEST_BENCH_FIGURES"))
        pairs = tuple((str(name), str(float(value))) for name, value in figures.items())
    except (ValueError, TypeError, AttributeError):
        return None
    return BenchResult(record=entry.record(SOURCE), options=entry.get("INQUEST_BENCH_OPTIONS"), figures=pairs)
