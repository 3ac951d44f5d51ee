"""Entries in journal order → runs. Holds what is known of each open run until it comes to rest, and a while after.

Everything here can be saved at a checkpoint (`RunRecord`) and taken up again, so that a killed daemon loses nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256

from forensics.belonging import (
    KERNEL_LATE_USEC,
    LINGER_USEC,
    core_is_of,
    lost_before_end,
    names_process_of,
    signal_is_of,
    units_of,
)
from forensics.entry import Entry
from forensics.events import (
    Answering,
    BenchResult,
    BootEnded,
    CoreDump,
    Event,
    Gap,
    HostShutdown,
    NotAnswering,
    OomKill,
    OomLimit,
    OomVictim,
    ProcessExit,
    Record,
    Rejected,
    Remains,
    SignalSent,
    SignalTracing,
    SpawnFailed,
    StartFailed,
    StateTimedOut,
    StopRequested,
    SystemdKill,
    UnitOomKill,
    UnitResult,
    UserspaceOomKill,
)
from forensics.lives import decode_stats, log_stats, make_run
from forensics.model import Run, RunRecord
from forensics.open_run import KEPT_FIRST, OpenRun
from forensics.relay import relay_of, without_writer
from forensics.sources import RECORDED, losses, rejected
from forensics.sources.journal import Lines
from forensics.sources.server import parse_decode
from forensics.stops import SHUTDOWN_LATE_USEC
from forensics.timeline import Timeline

_OF_THE_CGROUP = (OomKill, OomVictim, OomLimit)

_LOOK_BACK_USEC = 10_000_000
_ENDINGS = (ProcessExit, StateTimedOut, StopRequested, SystemdKill, UnitOomKill, UserspaceOomKill)
"""What PID 1 says first of a run whose beginning is not in the journal."""
_OF_THE_JOURNAL = ("systemd", "kernel", "server")


class Tracker:
    """Follows the watched units (globs) through the journal; `spared` are globs of units that are no servers.

    `feed` takes what the journal reader yields and returns the invocation ids that came to rest, or that were at
    rest and got late evidence: each is to be judged (again) by `judge_input`.
    """

    def __init__(self, units: Sequence[str], records: Iterable[RunRecord] = (), *, spared: Sequence[str] = ()) -> None:
        self._units, self._spared = tuple(units), tuple(spared)
        self._runs = {record.invocation_id: OpenRun.of(record) for record in records}
        self._unclaimed: list[Event] = []

    # --- for the checkpoint ---------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """No half-read block anywhere, no kill whose run is not known yet: a checkpoint taken now loses nothing."""
        return not self._unclaimed and all(run.log.idle for run in self._runs.values())

    def records(self) -> list[RunRecord]:
        return [run.record for run in self._runs.values()]

    # --- in -------------------------------------------------------------------------------------------------

    def feed(self, item: Entry | Lines | Gap) -> set[str]:
        if isinstance(item, Gap):
            return self._note_gap(item)
        if isinstance(item, Lines):
            self._count_lines(item)
            return set()
        touched = self._feed_entry(item)
        self.reject(item)
        return touched

    def reject(self, entry: Entry) -> None:
        """Note an entry that speaks as a sender that did not write it; nothing is believed of it."""
        if (found := rejected.parse(entry)) is not None:
            self._reject(found, entry)

    def add(self, invocation_id: str, events: Iterable[Event], gaps: Iterable[Gap] = ()) -> None:
        """Sampled facts of a run, taken while it lived."""
        run = self._runs.get(invocation_id)
        if run is None:
            return
        for event in events:
            run.append(event)
        run.record.gaps.extend(gaps)

    def flush_older(self, monotonic_usec: int) -> None:
        """Close half-read blocks to which nothing was added since this stamp."""
        self._forget_unclaimed(monotonic_usec)
        for run in self._runs.values():
            for event in run.log.flush_older(monotonic_usec):
                run.append(event)

    def forget(self, monotonic_usec: int, boot_id: str) -> None:
        """Drop runs that have been at rest for longer than late evidence can take."""
        for invocation_id, run in list(self._runs.items()):
            ended = run.record.ended_usec
            if ended is not None and (run.record.boot_id != boot_id or ended + LINGER_USEC < monotonic_usec):
                del self._runs[invocation_id]

    def open_runs(self) -> Iterator[RunRecord]:
        """Runs that have not come to rest."""
        return (run.record for run in self._runs.values() if run.record.ended_usec is None)

    def processes(self, invocation_id: str) -> tuple[int, ...]:
        """The processes of the server that have written lines in this run."""
        run = self._runs.get(invocation_id)
        return run.processes() if run else ()

    # --- out ------------------------------------------------------------------------------------------------

    def judge_input(self, invocation_id: str, sources: Iterable[str], gaps: Iterable[Gap] = ()) -> tuple[Run, Timeline]:
        """The run and its timeline as they stand now."""
        opened = self._runs[invocation_id]
        for event in opened.log.flush_all():
            opened.append(event)
        record = opened.record
        events = [*record.events, *record.rejected]
        if record.lines and record.first_line_usec is not None:
            events.append(log_stats(record))
        if record.decoding.lines:
            events.append(decode_stats(record))
        timeline = Timeline.of(events, [*record.gaps, *gaps], sources)
        if (relay := relay_of(timeline)) is not None:
            timeline = without_writer(timeline, relay)
        return make_run(record, timeline, relay), timeline

    def _note_gap(self, gap: Gap, unit: str = "") -> set[str]:
        """A loss concerns the runs that were alive, and the one that had just died: journald tells of it late."""
        touched = set()
        for run in self._runs.values():
            record = run.record
            late = record.ended_usec is not None
            if (unit and record.unit != unit) or gap in record.gaps:
                continue
            if late and not lost_before_end(gap, record):
                continue
            run.miss(gap)
            if late:
                touched.add(record.invocation_id)
        return touched

    def _reject(self, found: Rejected, entry: Entry) -> None:
        """Count what nobody may believe with the run whose process wrote it, and with those that it speaks of."""
        writer = entry.get("_SYSTEMD_INVOCATION_ID")
        for run in self._runs.values():
            record = run.record
            over = record.ended_usec is not None and entry.monotonic_usec - record.ended_usec > KERNEL_LATE_USEC
            if over or record.boot_id != entry.boot_id:
                continue
            if record.invocation_id == writer or rejected.concerns(found, record.unit, record.pids):
                rejected.tally(record.rejected, found)

    # --- one entry ------------------------------------------------------------------------------------------

    def _feed_entry(self, entry: Entry) -> set[str]:
        self._forget_unclaimed(entry.monotonic_usec)
        touched = self._close_other_boots(entry)
        if (loss := losses.parse(entry)) is not None and (loss.unit or loss.gap.source == "kernel"):
            return touched | self._note_gap(loss.gap, loss.unit)
        event = next((event for parse in RECORDED if (event := parse(entry)) is not None), None)
        if entry.from_systemd and self._watched(unit := entry.get("UNIT")):
            if invocation_id := entry.get("INVOCATION_ID"):
                begins = invocation_id not in self._runs
                run = self._run(unit, invocation_id, entry)
                touched |= self._supersede(run)
                if begins and isinstance(event, _ENDINGS):
                    self._look_back(run)
                if event is not None:
                    touched |= self._note(run, event, entry)
            elif isinstance(event, StartFailed) and event.job_result == "dependency":
                # Never started, so it has no invocation: the record itself is its one fact.
                run = self._run(unit, f"job-{sha256(entry.cursor.encode()).hexdigest()[:28]}", entry)
                run.append(event)
                run.end(entry.monotonic_usec, entry.realtime_usec)
                touched.add(run.record.invocation_id)
            return touched
        if isinstance(event, Remains | BenchResult | NotAnswering | Answering):
            invocation_id = entry.get("INQUEST_INVOCATION_ID") or entry.get("_SYSTEMD_INVOCATION_ID")
            if invocation_id in self._runs:
                # As root it could write in the name of our ExecStopPost=.
                if self._runs[invocation_id].is_server(entry.pid):
                    self._reject(rejected.refused(entry, event), entry)
                else:
                    touched |= self._note(self._runs[invocation_id], event, entry)
            return touched
        if entry.from_systemd and not isinstance(event, HostShutdown | UserspaceOomKill):
            return touched  # about a unit that is not watched; a slice may be above one that is
        traced = isinstance(event, SignalSent | SignalTracing)
        if event is not None and (traced or not self._watched(entry.get("_SYSTEMD_UNIT"))):
            return touched | self._note_everywhere(event, entry)
        if self._watched(unit := entry.get("_SYSTEMD_UNIT")):
            touched |= self._server_line(unit, entry, event)
        elif event is None and not unit and (writer := self._writer_without_unit(entry)) is not None:
            touched |= self._server_line(writer.record.unit, entry, None)
        return touched

    def _look_back(self, run: OpenRun) -> None:
        """The journal begins in the midst of this run, and the first record of it is of its end: the kill of a process
        of this unit shortly before was this run's, unless it was an earlier one's."""
        record = run.record
        reason = "the journal begins in the midst of this run"
        record.gaps += [Gap(source=source, reason=reason, to_usec=record.first_usec) for source in _OF_THE_JOURNAL]
        lives = (each.record for each in self._runs.values() if each is not run and each.record.unit == record.unit)
        ends = (life.ended_usec or life.first_usec for life in lives if life.boot_id == record.boot_id)
        record.first_usec = max([record.first_usec - _LOOK_BACK_USEC, *ends])
        for event in self._unclaimed:
            ours = record.unit in units_of(event) and event.record.boot_id == record.boot_id
            if ours and event.usec > record.first_usec:
                run.append(event)

    def _note_everywhere(self, event: Event, entry: Entry) -> set[str]:
        """A fact about the machine: it belongs to each run that was alive, or has just died."""
        touched, claimed = set(), set()
        for run in self._runs.values():
            if run.record.boot_id != entry.boot_id or not self._in_lifetime(run.record, event):
                continue
            if isinstance(event, CoreDump) and not core_is_of(event, run.record):
                continue
            ended = run.record.ended_usec
            if isinstance(event, HostShutdown) and ended is not None and event.usec > ended + SHUTDOWN_LATE_USEC:
                continue
            if isinstance(event, SignalSent | SignalTracing) and not signal_is_of(entry, event, run.record):
                continue
            claimed.add(run.record.unit)
            touched |= self._note(run, event, entry)
        if any(self._watched(unit) and unit not in claimed for unit in units_of(event)):
            self._unclaimed.append(event)
        return touched

    def _forget_unclaimed(self, monotonic_usec: int) -> None:
        if self._unclaimed:
            near = (e for e in self._unclaimed[-KEPT_FIRST:] if abs(monotonic_usec - e.usec) <= _LOOK_BACK_USEC)
            self._unclaimed = list(near)

    def _in_lifetime(self, record: RunRecord, event: Event) -> bool:
        """Whether a fact about the machine may be this run's: not from before it, nor from the unit's next life. A
        kernel record that names a process of ours is, whatever its clock says."""
        if names_process_of(event, record):
            return True
        if event.usec < record.first_usec - KERNEL_LATE_USEC:
            return False
        if record.ended_usec is None or not isinstance(event, _OF_THE_CGROUP):
            return True
        others = (run.record for run in self._runs.values() if run.record.unit == record.unit)
        return not any(record.first_usec < other.first_usec <= event.usec for other in others)

    def _note(self, run: OpenRun, event: Event, entry: Entry) -> set[str]:
        late = run.record.ended_usec is not None
        run.append(event)
        if isinstance(event, UnitResult) and not late:
            run.end(event.usec, entry.realtime_usec)
            return {run.record.invocation_id}
        return {run.record.invocation_id} if late else set()

    def _server_line(self, unit: str, entry: Entry, hint: Event | None) -> set[str]:
        invocation_id = entry.get("_SYSTEMD_INVOCATION_ID")
        run = self._owner_of(unit, entry) or self._writer_without_unit(entry)
        if run is None:
            if not invocation_id:
                return set()
            run = self._run(unit, invocation_id, entry)
        record = run.record
        if not record.control_group:
            record.control_group = entry.get("_SYSTEMD_CGROUP")
        if isinstance(hint, SpawnFailed):
            return self._note(run, hint, entry)
        if entry.get("_COMM").startswith("("):
            return set()  # systemd's forked child before it becomes the server: not the server's line
        if run.learn_writer(entry) != "control":
            run.count(1, entry.monotonic_usec, entry.monotonic_usec, entry.realtime_usec)
        before = len(record.events)
        for event in run.log.feed(entry):
            run.append(event)
        late = record.ended_usec is not None and len(record.events) != before
        return {record.invocation_id} if late else set()

    def _writer_without_unit(self, entry: Entry) -> OpenRun | None:
        """journald can be too late to learn the unit of a dying process, whose last lines lack it: its pid is known."""
        if entry.get("_TRANSPORT") not in ("stdout", "syslog", "journal"):
            return None
        for run in self._runs.values():
            record = run.record
            alive = record.ended_usec is None or entry.monotonic_usec - record.ended_usec <= KERNEL_LATE_USEC
            if record.boot_id == entry.boot_id and alive and run.is_server(entry.pid):
                return run
        return None

    def _owner_of(self, unit: str, entry: Entry) -> OpenRun | None:
        """An orphan that outlived its run logs under the invocation of the next one: its pid tells the truth, in one
        boot."""
        invocation_id = entry.get("_SYSTEMD_INVOCATION_ID")
        for run in self._runs.values():
            record = run.record
            other = record.unit == unit and record.invocation_id != invocation_id and record.boot_id == entry.boot_id
            if other and record.ended_usec is not None and record.pids.get(entry.pid or 0, "control") != "control":
                return run
        return self._runs.get(invocation_id)

    def _count_lines(self, item: Lines) -> None:
        run = self._runs.get(item.invocation_id)
        if run is None:
            record = RunRecord(
                unit=item.unit,
                invocation_id=item.invocation_id,
                boot_id=item.boot_id,
                first_usec=item.first_monotonic_usec,
                first_realtime_usec=item.last_realtime_usec,
            )
            run = self._runs[item.invocation_id] = OpenRun.of(record)
        run.count(item.count, item.first_monotonic_usec, item.last_monotonic_usec, item.last_realtime_usec)
        for line in item.decodes:
            run.record.decoding.add(parse_decode(line))

    # --- runs -----------------------------------------------------------------------------------------------

    def _watched(self, unit: str) -> bool:
        if not unit or any(fnmatchcase(unit, glob) for glob in self._spared):
            return False
        return any(fnmatchcase(unit, glob) for glob in self._units)

    def _run(self, unit: str, invocation_id: str, entry: Entry) -> OpenRun:
        run = self._runs.get(invocation_id)
        if run is None:
            record = RunRecord(
                unit=unit,
                invocation_id=invocation_id,
                boot_id=entry.boot_id,
                first_usec=entry.monotonic_usec,
                first_realtime_usec=entry.realtime_usec,
            )
            run = self._runs[invocation_id] = OpenRun.of(record)
        run.record.last_realtime_usec = max(run.record.last_realtime_usec, entry.realtime_usec)
        return run

    def _supersede(self, new: OpenRun) -> set[str]:
        """A unit has one life at a time: a new one means that the record of the old one's end was lost."""
        touched = set()
        for run in self._runs.values():
            record = run.record
            if run is new or record.unit != new.record.unit or record.ended_usec is not None:
                continue
            if record.first_usec <= new.record.first_usec and record.boot_id == new.record.boot_id:
                record.gaps.append(Gap(source="systemd", reason="no record of this run's end in the journal"))
                run.end(new.record.first_usec, new.record.first_realtime_usec)
                touched.add(record.invocation_id)
        return touched

    def _close_other_boots(self, entry: Entry) -> set[str]:
        """The journal has gone on to another boot: whatever was still open ended with its machine."""
        touched = set()
        for run in self._runs.values():
            record = run.record
            if record.ended_usec is not None or record.boot_id == entry.boot_id:
                continue
            last_usec = max([record.first_usec, record.last_line_usec or 0, *(event.usec for event in record.events)])
            orderly = any(isinstance(event, HostShutdown) for event in record.events)
            ended = BootEnded(
                record=Record(
                    source="systemd",
                    ref=entry.cursor,
                    boot_id=record.boot_id,
                    monotonic_usec=last_usec,
                    realtime_usec=record.last_realtime_usec,
                    message=f"the journal of boot {record.boot_id} ends here; the next entry is of {entry.boot_id}",
                ),
                orderly=orderly,
            )
            run.append(ended)
            run.end(last_usec, record.last_realtime_usec)
            touched.add(record.invocation_id)
        return touched
