"""Several files → one body of evidence: their entries in the order of time, run by run.

The tracker of the daemon does the work. What it needs and saved files lack is supplied here: lives of a server whose
log has no systemd in it, one clock for stamps of several kinds, kernel records that have only the time since boot.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from forensics.analyze.lines import Line
from forensics.analyze.plain import PlainLog
from forensics.analyze.properties import Snapshot
from forensics.analyze.reading import SavedFile, Told
from forensics.analyze.stamps import when
from forensics.analyze.text import ROLE, UNDATED, Clock
from forensics.analyze.wrappings import own_prefix
from forensics.belonging import LINGER_USEC
from forensics.entry import Entry
from forensics.events import DriverNoMemory, Event, Gap, GpuLost, OomKill, OomVictim, Xid
from forensics.lives import role_of
from forensics.model import RunRecord
from forensics.sources import kernel, oomkillers
from forensics.sources.journal import Lines
from forensics.sources.losses import JOURNAL_DROPPED, JOURNAL_MISSED
from forensics.sources.server import SKIPPED
from forensics.tracker import Tracker

PLAIN = ".plain"
"""The suffix of the unit names that stand for a plain log: `log-0.plain`."""

_TELLING = (OomKill, OomVictim, Xid, GpuLost, DriverNoMemory)
_MOST_KERNEL_EVENTS = 2000
_SETTLE_EVERY = 20_000
_RUN_OVER_USEC = 2_000_000
_MOST_PIDS = 512


@dataclass(slots=True)
class Body:
    """`units` are the globs to watch. `settle` is told of each run that no later entry can change, as it leaves."""

    files: list[SavedFile]
    units: tuple[str, ...]
    settle: Callable[["Body", RunRecord], None]
    tracker: Tracker = field(init=False)
    snapshots: list[Snapshot] = field(default_factory=list)
    kernel_events: list[Event] = field(default_factory=list)
    undated: list[Event] = field(default_factory=list)
    gaps: list[tuple[str, int, Gap]] = field(default_factory=list)
    boots: dict[str, int] = field(default_factory=dict)
    log_of: dict[str, SavedFile] = field(default_factory=dict)
    programs: dict[str, PlainLog] = field(default_factory=dict)
    known_units: set[str] = field(default_factory=set)
    known_pids: set[int] = field(default_factory=set)
    _boot: str = ""
    _text_boot: str = "text-0"
    _seen: int = 0
    _held: dict[str, Entry] = field(default_factory=dict)
    _by_id: dict[str, RunRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Their records are about other units' processes.
        self.tracker = Tracker((*self.units, f"*{PLAIN}"), spared=("systemd-coredump@*", *oomkillers.KILLERS))

    # --- reading everything ---------------------------------------------------------------------------------

    def read(self, advance: Callable[[int], None]) -> None:
        """Read all files to their ends."""
        streams: list[Iterator[Entry | Told]] = []
        for file in self.files:
            if file.is_snapshot:
                streams += self._snapshot(file)
            else:
                file.look()
        # The journals with fields first: their clock is the one that everything else is set by.
        for file in sorted(self.files, key=lambda file: not file.has_fields):
            if not file.is_snapshot:
                streams.append(self._first_known(file.entries(self.place, advance), file))
        for _, item in heapq.merge(*(self._keyed(stream) for stream in streams), key=lambda pair: pair[0]):
            self._feed(item)
        self._feed_held()
        for invocation_id, log in self.programs.items():
            self.tracker.add(invocation_id, [event for _, event in log.close()])

    def _snapshot(self, file: SavedFile) -> list[Iterator[Entry | Told]]:
        """A saved status: the properties at once, the journal's lines below them as a stream."""
        lines: list[Line] = []
        for item in file.snapshots():
            if isinstance(item, Snapshot):
                self.snapshots.append(item)
                if item.description:
                    for other in self.files:
                        other.survey._vote(item.description, item.unit)
            else:
                lines.append(item)
        if not lines:
            return []
        for line in lines:
            from forensics.analyze import senders

            if sent := senders.syslog(line.text, file.reference):
                file.survey.look(sent)
        return [iter(list(file.with_senders(iter(lines))))]

    def _first_known(self, stream: Iterator[Entry | Told], file: SavedFile) -> Iterator[Entry | Told]:
        """The stream; of a journal with fields the first entry is looked at beforehand, for its clock."""
        if not file.has_fields:
            return stream
        first = next(stream, None)
        if first is None:
            return iter(())
        assert isinstance(first, Entry)
        self._note_boot(first)

        def whole() -> Iterator[Entry | Told]:
            yield first
            yield from stream

        return whole()

    # --- one clock ------------------------------------------------------------------------------------------

    def place(self, realtime_usec: int) -> tuple[str, int]:
        """The boot and the monotonic time of a moment by the wall clock."""
        if not self._boot:
            return self._text_boot, realtime_usec
        return self._boot, max(0, realtime_usec - self.boots[self._boot])

    def _note_boot(self, entry: Entry) -> None:
        if not entry.boot_id or entry.from_kernel:
            return
        if entry.boot_id != self._boot or self._seen % 1024 == 0:
            self.boots[entry.boot_id] = entry.realtime_usec - entry.monotonic_usec
            self._boot = entry.boot_id

    @property
    def offset_usec(self) -> int | None:
        """Wall clock less monotonic clock, where the files tell."""
        if self._boot:
            return self.boots[self._boot]
        return next((each.offset_usec for each in self.snapshots if each.offset_usec is not None), None)

    def _keyed(self, stream: Iterator[Entry | Told]) -> Iterator[tuple[int, Entry | Told]]:
        """Each item with the time by which streams are merged: within one stream the order stays as it was."""
        latest = 0
        for item in stream:
            usec = item.usec if isinstance(item, Told) else item.realtime_usec
            if isinstance(item, Entry) and item.boot_id == UNDATED:
                usec = 0 if self.offset_usec is None else item.monotonic_usec + self.offset_usec
            latest = max(latest, usec)
            yield latest, item

    # --- one item -------------------------------------------------------------------------------------------

    def _feed(self, item: Entry | Told) -> None:
        self._seen += 1
        if isinstance(item, Told):
            self._feed_told(item)
            return
        entry = item
        if entry.boot_id == UNDATED:
            offset = self.offset_usec
            if offset is None:
                if (event := kernel.parse(entry)) is not None and len(self.undated) < _MOST_KERNEL_EVENTS:
                    self.undated.append(event)
                return
            entry = self._placed(entry, entry.monotonic_usec + offset)
        elif entry.boot_id.startswith("text-"):
            self._text_boot = entry.boot_id
            if self._boot:
                entry = self._placed(entry, entry.realtime_usec)
        else:
            self._note_boot(entry)
        if entry.from_kernel and len(self.kernel_events) < _MOST_KERNEL_EVENTS:
            event = kernel.parse(entry)
            if isinstance(event, _TELLING):
                self.kernel_events.append(event)
        if self._skim(entry):
            return
        self._note_loss(entry)
        if self._is_program(entry):
            self._feed_program(entry)
        else:
            self.tracker.feed(entry)
        if self._seen % _SETTLE_EVERY == 0:
            self._settle_old(entry)

    def _skim(self, entry: Entry) -> bool:
        """Count a server's line that carries no fact, as the daemon's reader does; of batch lines the last of a stretch
        is fed. False where the entry must be fed."""
        invocation_id = entry.get("_SYSTEMD_INVOCATION_ID")
        gate = None
        if entry.get("_TRANSPORT") == "stdout" and invocation_id and self._is_watched(entry.get("_SYSTEMD_UNIT")):
            gate = SKIPPED.match(entry.message[:64].encode())
        if gate is None:
            self._feed_held()
            return False
        if gate["sample"]:
            self._held[invocation_id] = entry
        if not self._is_program(entry):
            self.tracker.feed(
                Lines(
                    unit=entry.get("_SYSTEMD_UNIT"),
                    invocation_id=invocation_id,
                    boot_id=entry.boot_id,
                    count=0 if gate["sample"] else 1,
                    first_monotonic_usec=entry.monotonic_usec,
                    last_monotonic_usec=entry.monotonic_usec,
                    last_realtime_usec=entry.realtime_usec,
                )
            )
        return True

    def _feed_held(self) -> None:
        held, self._held = self._held, {}
        for sample in held.values():
            if self._is_program(sample):
                self._feed_program(sample)
            else:
                self.tracker.feed(sample)

    def _is_watched(self, unit: str) -> bool:
        return any(fnmatchcase(unit, glob) for glob in self.units)

    def _placed(self, entry: Entry, realtime_usec: int) -> Entry:
        boot_id, monotonic_usec = self.place(realtime_usec)
        return Entry(
            cursor=entry.cursor,
            boot_id=boot_id,
            monotonic_usec=monotonic_usec,
            realtime_usec=realtime_usec,
            fields=entry.fields,
        )

    def _note_loss(self, entry: Entry) -> None:
        """journald's own word that it dropped something."""
        message_id, message = entry.get("MESSAGE_ID"), entry.message
        text = not message_id and entry.get("SYSLOG_IDENTIFIER").startswith("systemd-journal")
        if message_id == JOURNAL_DROPPED or (text and message.startswith("Suppressed ")):
            unit = message.rsplit(" from ", 1)[-1].strip().rstrip(".")
            self.gaps.append((unit, entry.monotonic_usec, Gap(source="server", reason=f"journald: {message}")))
        elif message_id == JOURNAL_MISSED or (text and message.startswith("Missed ")):
            self.gaps.append(("", entry.monotonic_usec, Gap(source="kernel", reason=f"journald: {message}")))

    def _settle_old(self, entry: Entry) -> None:
        for record in self.tracker.records():
            ended = record.ended_usec
            if ended is not None and (record.boot_id != entry.boot_id or ended + LINGER_USEC < entry.monotonic_usec):
                if log := self.programs.pop(record.invocation_id, None):
                    self.tracker.add(record.invocation_id, [event for _, event in log.close()])
                self.settle(self, record)
        self.tracker.forget(entry.monotonic_usec, entry.boot_id)
        self._by_id.clear()

    # --- a program's lines in text with senders -------------------------------------------------------------

    def _is_program(self, entry: Entry) -> bool:
        """A line of a watched unit's program, read from text: nothing but its shape tells what it is."""
        return (
            entry.get("_TRANSPORT") == "stdout"
            and bool(entry.get("_SYSTEMD_INVOCATION_ID"))
            and entry.get("_SYSTEMD_INVOCATION_ID").startswith("text-")
            and self._is_watched(entry.get("_SYSTEMD_UNIT"))
        )

    def _feed_program(self, entry: Entry) -> None:
        unit, invocation_id, pid = entry.get("_SYSTEMD_UNIT"), entry.get("_SYSTEMD_INVOCATION_ID"), entry.pid
        name, _, number = entry.cursor.rpartition(":")
        log = self.programs.get(invocation_id)
        if log is None:
            clock = Clock(when(entry.realtime_usec))
            log = self.programs[invocation_id] = PlainLog(name, when(entry.realtime_usec), clock, self.place)
            self._begin(unit, invocation_id, entry.realtime_usec)
        log.clock.now_usec, log.clock.stamped = entry.realtime_usec, True
        line = Line(int(number) if number.isdecimal() else 0, entry.message.encode())
        found = own_prefix(entry.message, None, log.reference)
        found = replace(found, stamp=None, pid=pid if found.pid is None else found.pid)
        self.tracker.add(invocation_id, [event for _, event in log.feed(line, found)])
        self._count(invocation_id, log.lines, entry.realtime_usec)
        self.tracker.reject(entry)
        record = self.record(invocation_id)
        if pid is not None and pid not in record.pids and len(record.pids) < _MOST_PIDS:
            role = role_of(entry.get("SYSLOG_IDENTIFIER"), "") or entry.get(ROLE)
            record.pids[pid] = role or ("" if "main" in record.pids.values() else "main")

    def is_known(self, event: Event) -> bool:
        """Whether a kernel record is about a process or a cgroup of a run that was judged by itself."""
        if isinstance(event, OomKill) and set((event.task_memcg or "").split("/")) & self.known_units:
            return True
        pid = getattr(event, "oom_victim_pid", None) or getattr(event, "victim_pid", None)
        return (pid or getattr(event, "xid_pid", None)) in self.known_pids

    def know(self, unit: str, pids: Iterable[int]) -> None:
        self.known_units.add(unit)
        self.known_pids.update(pids)

    def _begin(self, unit: str, invocation_id: str, realtime_usec: int) -> None:
        """Open a run that no manager's record opened."""
        boot_id, monotonic_usec = self.place(realtime_usec)
        self.tracker.feed(
            Lines(
                unit=unit,
                invocation_id=invocation_id,
                boot_id=boot_id,
                count=0,
                first_monotonic_usec=monotonic_usec,
                last_monotonic_usec=monotonic_usec,
                last_realtime_usec=realtime_usec,
            )
        )

    def record(self, invocation_id: str) -> RunRecord:
        record = self._by_id.get(invocation_id)
        if record is None:
            record = next(each for each in self.tracker.records() if each.invocation_id == invocation_id)
            self._by_id[invocation_id] = record
        return record

    # --- plain logs -----------------------------------------------------------------------------------------

    def _feed_told(self, told: Told) -> None:
        log = told.log.plain
        assert log is not None
        by_run: dict[str, list[Event]] = {}
        for event in told.events:
            owner = self._owner(told, event.record.realtime_usec, event.usec)
            by_run.setdefault(owner, []).append(event)
        if not told.events:
            _, monotonic_usec = self.place(told.usec)
            by_run[self._owner(told, told.usec, monotonic_usec)] = []
        for invocation_id, events in by_run.items():
            self.tracker.add(invocation_id, events)
            self.log_of.setdefault(invocation_id, told.log)
            if told.life == log.life:
                self._count(invocation_id, log.lines, told.usec)

    def _owner(self, told: Told, realtime_usec: int, monotonic_usec: int) -> str:
        """The run that the log's life is: systemd's own, where the files tell of one at that time, else a new one."""
        if (known := self._run_at(monotonic_usec)) is not None:
            return known.invocation_id
        unit, invocation_id = f"log-{told.log.number}{PLAIN}", f"log:{told.log.number}:{told.life}"
        if invocation_id not in self.log_of:
            self._begin(unit, invocation_id, realtime_usec)
            self.log_of[invocation_id] = told.log
        return invocation_id

    def _run_at(self, monotonic_usec: int) -> RunRecord | None:
        """The one run of a unit that was alive then and whose own lines are nowhere else; None if there are several."""
        alive = [
            record
            for record in self.tracker.records()
            if not record.unit.endswith(PLAIN)
            and record.first_usec - 1_000_000 <= monotonic_usec
            and (record.ended_usec is None or monotonic_usec <= record.ended_usec + _RUN_OVER_USEC)
            and (not record.lines or record.invocation_id in self.log_of)
        ]
        return alive[-1] if len({record.unit for record in alive}) == 1 else None

    def _count(self, invocation_id: str, lines: int, realtime_usec: int) -> None:
        record = self.record(invocation_id)
        _, monotonic_usec = self.place(realtime_usec)
        record.lines = max(record.lines, lines)
        if record.first_line_usec is None:
            record.first_line_usec = monotonic_usec
        record.last_line_usec = max(record.last_line_usec or 0, monotonic_usec)
        record.last_realtime_usec = max(record.last_realtime_usec, realtime_usec)
