"""systemd's words in text: believed where they hang together, and not where the server worked on behind them."""

from dataclasses import replace

from forensics.analyze.body import PLAIN
from forensics.analyze.reading import SavedFile
from forensics.events import Batch, BootEnded, Event, ProcessExit, StateTimedOut, UnitResult
from forensics.lives import make_run
from forensics.model import Run, RunRecord
from forensics.timeline import Timeline

_LATE_USEC = 2_000_000


def claims_of(record: RunRecord, file: SavedFile | None, timeline: Timeline) -> list[tuple[str, Event]]:
    """systemd's words in a log without senders (`journalctl -o cat`), where they hang together.

    One line could be anything that the server quotes; an exit and a result of one unit, with no work of the server
    behind them, read as what such an output is.
    """
    if file is None or file.plain is None or not record.unit.endswith(PLAIN):
        return []
    life = record.invocation_id.rsplit(":", 1)[-1]
    claims = file.plain.claims.get(int(life), []) if life.isdecimal() else []
    ends_of: dict[str, list[Event]] = {}
    for unit, event in claims:
        if isinstance(event, ProcessExit | UnitResult | StateTimedOut):
            ends_of.setdefault(unit, []).append(event)
    ended = [unit for unit, ends in ends_of.items() if len({event.kind for event in ends}) > 1]
    if len(ended) != 1:
        return []
    ends, claims = ends_of[ended[0]], [(unit, event) for unit, event in claims if unit == ended[0]]
    if any(batch.usec > max(event.usec for event in ends) for batch in timeline.all(Batch)):
        return []
    return claims


def with_claims(record: RunRecord, timeline: Timeline, claims: list[tuple[str, Event]]) -> tuple[Run, Timeline]:
    record.unit = claims[0][0]
    events = [event for _, event in claims]
    whole = Timeline.of([*timeline.events, *events], timeline.gaps, timeline.sources | {"systemd"})
    return replace(make_run(record, whole), ended_usec=last_usec(record, whole)), whole


def forged_end(record: RunRecord, timeline: Timeline) -> bool:
    """In text an end that the server outlived was never systemd's word."""
    if not record.boot_id.startswith("text-") or record.ended_usec is None or timeline.first(BootEnded):
        return False
    return any(batch.usec > record.ended_usec + _LATE_USEC for batch in timeline.all(Batch))


def last_usec(record: RunRecord, timeline: Timeline) -> int:
    """The last that the server, or systemd of it, said; the machine goes on without them."""
    own = (event.usec for event in timeline.events if event.record.source not in ("kernel", "oomkillers"))
    return max([record.first_usec, record.last_line_usec or 0, *own])
