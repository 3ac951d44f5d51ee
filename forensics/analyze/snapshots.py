"""What PID 1 said of a unit when its properties were saved goes to the run that it speaks of, or stands for one."""

from dataclasses import replace

from forensics.analyze.body import PLAIN, Body
from forensics.analyze.properties import Snapshot
from forensics.events import Gap
from forensics.model import RunRecord
from forensics.sources.journal import Lines

_ATTACH_USEC = 1_800_000_000
_EARLIEST_USEC = 315_532_800_000_000


def join(body: Body) -> None:
    """What PID 1 said of a unit goes to the run that it speaks of, or stands for one of which nothing else is."""
    for snapshot in body.snapshots:
        record = _run_of(body, snapshot)
        if record is None:
            if not snapshot.over:
                continue
            record = _run_from(body, snapshot)
        usec = record.ended_usec
        if usec is None:
            usec = max(record.last_line_usec or 0, record.first_usec, *(event.usec for event in record.events), 0)
        facts = list(snapshot.facts()) if record.ended_usec is None else [snapshot.state]
        placed = [
            replace(fact, record=replace(fact.record, boot_id=record.boot_id, monotonic_usec=usec)) for fact in facts
        ]
        body.tracker.add(record.invocation_id, placed)
        if record.unit.endswith(PLAIN) and snapshot.unit:
            record.unit = snapshot.unit
        if record.ended_usec is None and snapshot.over:
            record.ended_usec = usec
            record.ended_realtime_usec = snapshot.exited_usec or record.last_realtime_usec


def _run_of(body: Body, snapshot: Snapshot) -> RunRecord | None:
    records = body.tracker.records()
    if snapshot.invocation_id:
        same = next((each for each in records if each.invocation_id == snapshot.invocation_id), None)
        if same is not None:
            return same
    of_unit = [each for each in records if each.unit == snapshot.unit]
    if not of_unit:
        of_unit = [each for each in records if each.unit.endswith(PLAIN)]
    elif snapshot.invocation_id and not of_unit[-1].invocation_id.startswith("text-"):
        return None  # the journal knows this unit, but not this run
    if not of_unit or not snapshot.over:
        return None
    exited = snapshot.exited_usec
    if not exited:
        return of_unit[-1]
    nearest = min(of_unit, key=lambda each: abs(exited - each.last_realtime_usec))
    dated = nearest.last_realtime_usec > _EARLIEST_USEC
    return None if dated and abs(exited - nearest.last_realtime_usec) > _ATTACH_USEC else nearest


def _run_from(body: Body, snapshot: Snapshot) -> RunRecord:
    realtime = snapshot.exited_usec or snapshot.started_usec or 0
    boot_id, ended_usec = body.place(realtime)
    started = ended_usec - max(0, realtime - (snapshot.started_usec or realtime))
    invocation_id = snapshot.invocation_id or f"show:{snapshot.unit}"
    body.tracker.feed(
        Lines(
            unit=snapshot.unit,
            invocation_id=invocation_id,
            boot_id=boot_id,
            count=0,
            first_monotonic_usec=max(0, started),
            last_monotonic_usec=ended_usec,
            last_realtime_usec=realtime,
        )
    )
    record = body.record(invocation_id)
    record.first_line_usec = None
    reason = "the journal among the files does not hold this run"
    record.gaps += [Gap(source=source, reason=reason) for source in ("server", "systemd")]
    return record
