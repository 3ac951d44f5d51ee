"""One input file → journal entries and a plain log's facts, in the order of time, and what the file covers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import BinaryIO

from forensics.analyze import lines as lines_of
from forensics.analyze import properties, shippers, structured, text, wrappings
from forensics.analyze.forms import Form, Recognised, recognise
from forensics.analyze.lines import Line
from forensics.analyze.opening import Input, damage_of, head_of
from forensics.analyze.plain import PlainLog
from forensics.analyze.properties import Snapshot
from forensics.analyze.text import Clock
from forensics.analyze.units import Attribution, Survey
from forensics.analyze.wrappings import Unwrapped
from forensics.entry import Entry
from forensics.errors import InputError
from forensics.events import Event
from forensics.sources import export

_WITH_FIELDS = (Form.JOURNAL, Form.EXPORT, Form.JSON, Form.VERBOSE)
_SNAPSHOTS = (Form.SHOW, Form.STATUS)
_FOREIGN = ("systemd-", "session-", "ssh", "cron", "dbus", "user@")


@dataclass(frozen=True, slots=True)
class Told:
    """Facts of a plain log: `life` counts the server's lives in that file."""

    log: "SavedFile"
    life: int
    usec: int
    events: tuple[Event, ...]


@dataclass(slots=True)
class SavedFile:
    """One recognised file. What it turned out to hold stands in the fields when it has been read."""

    source: Input
    recognised: Recognised
    reference: datetime
    number: int
    only: str | None = None
    kernel: bool = False
    foreign: bool = False
    manager: bool = False
    first_usec: int | None = None
    last_usec: int = 0
    first_mono_usec: int | None = None
    last_mono_usec: int = 0
    damage: str = ""
    survey: Survey = field(default_factory=Survey)
    clock: Clock | None = None
    plain: PlainLog | None = None

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def form(self) -> Form:
        return self.recognised.form

    @property
    def has_fields(self) -> bool:
        """Whether the journal's trusted fields are there."""
        return self.form in _WITH_FIELDS

    @property
    def is_snapshot(self) -> bool:
        return self.form in _SNAPSHOTS

    @property
    def readable(self) -> bool:
        return self.form is not Form.UNKNOWN

    @property
    def naive(self) -> bool:
        """Times without a zone were read as UTC."""
        return self.clock is not None and self.clock.naive

    # --- reading --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """A first look over files in which names must be gathered before lines can be told apart."""
        if self.form is Form.SYSLOG:
            with self.source.open() as stream:
                self.survey = text.survey(self._lines(stream), self.reference, self.recognised.indent)

    def snapshots(self) -> Iterator[Snapshot | Line]:
        with self.source.open() as stream:
            read = properties.show if self.form is Form.SHOW else properties.status
            yield from read(lines_of.forwards(stream), self.name, self.reference)

    def entries(
        self, place: Callable[[int], tuple[str, int]], advance: Callable[[int], None]
    ) -> Iterator[Entry | Told]:
        """The file's content in time order. Raises InputError when the file cannot be opened."""
        with self.source.open(advance) as stream:
            try:
                if self.form in (Form.TEXT, Form.RECORDS):
                    yield from self._plain(stream, place)
                else:
                    for entry in self._entries(stream):
                        self._note(entry)
                        yield entry
            except structured.Damaged as error:
                self.damage = str(error)
            self.damage = self.damage or damage_of(stream)

    def _lines(self, stream: BinaryIO) -> Iterator[Line]:
        return lines_of.backwards(stream) if self.recognised.newest_first else lines_of.forwards(stream)

    def _entries(self, stream: BinaryIO) -> Iterator[Entry]:
        form = self.form
        if form is Form.JOURNAL:
            yield from structured.journal_entries(self.source.path, stream)
        elif form is Form.EXPORT:
            found = export.read_export(stream)
            yield from reversed(list(found)) if self.recognised.newest_first else found
        elif form is Form.JSON:
            yield from structured.json_entries(self._lines(stream))
        elif form is Form.VERBOSE:
            yield from structured.verbose_entries(lines_of.forwards(stream))
        elif form is Form.DMESG_JSON:
            yield from structured.dmesg_json_entries(lines_of.forwards(stream), self.name)
        elif form is Form.KERNEL:
            self.clock = Clock(self.reference)
            yield from text.kernel_entries(
                self._lines(stream), self.name, self.reference, self.clock, self.recognised.indent
            )
        elif form is Form.SYSLOG:
            yield from self.with_senders(self._lines(stream))

    def with_senders(self, lines: Iterator[Line]) -> Iterator[Entry]:
        self.clock = Clock(self.reference)
        attribution = Attribution(self.survey, f"text-{self.number}", self.only)
        yield from text.syslog_entries(
            lines, self.name, self.reference, attribution, self.clock, self.recognised.indent
        )

    def _plain(self, stream: BinaryIO, place: Callable[[int], tuple[str, int]]) -> Iterator[Told]:
        self.clock = Clock(self.reference)
        if self.recognised.first is not None and not self.recognised.newest_first:
            self.clock.tick(self.recognised.first)
        self.plain = log = PlainLog(self.name, self.reference, self.clock, place)
        known = -1
        for line, unwrapped in self._server_lines(stream):
            found = [] if unwrapped is None and log.skim(line) else log.feed(line, unwrapped)
            if found or log.life != known:
                known = log.life
                self.first_usec = self.clock.now_usec if self.first_usec is None else self.first_usec
                yield from self._told(log, found, self.clock.now_usec)
        self.last_usec = self.clock.now_usec
        yield from self._told(log, log.close(), self.clock.now_usec)

    def _told(self, log: PlainLog, found: list[tuple[int, Event]], usec: int) -> Iterator[Told]:
        lives = dict.fromkeys([*(life for life, _ in found), log.life])
        for life in lives:
            yield Told(self, life, usec, tuple(event for of_life, event in found if of_life == life))

    def _server_lines(self, stream: BinaryIO) -> Iterator[tuple[Line, Unwrapped | None]]:
        if self.form is Form.TEXT:
            shipper = self.recognised.shipper
            for line in self._lines(stream):
                raw = shippers.without(shipper, line.raw) if shipper else line.raw
                if not raw or raw.isspace():
                    continue
                if shipper:
                    line = Line(line.number, raw)
                if raw.endswith(b"}") and (found := wrappings.record_in(line.text, self.reference)) is not None:
                    yield from _lines_of(line.number, found)
                else:
                    yield line, None
            return
        for number, record in enumerate(structured.objects(self._lines(stream)), start=1):
            found = wrappings.record_of(record, self.recognised.shipper)
            if found is not None:
                yield from _lines_of(number, found)

    def span_usec(self, offset_usec: int | None) -> tuple[int | None, int]:
        """From when to when it reaches, by the wall clock; `offset_usec` is wall clock less monotonic, where known."""
        if self.first_usec is None and self.first_mono_usec is not None and offset_usec is not None:
            return self.first_mono_usec + offset_usec, self.last_mono_usec + offset_usec
        return self.first_usec, self.last_usec

    def _note(self, entry: Entry) -> None:
        if entry.boot_id == text.UNDATED:
            if self.first_mono_usec is None:
                self.first_mono_usec = entry.monotonic_usec
            self.last_mono_usec = max(self.last_mono_usec, entry.monotonic_usec)
        else:
            if self.first_usec is None:
                self.first_usec = entry.realtime_usec
            self.last_usec = max(self.last_usec, entry.realtime_usec)
        if entry.from_kernel:
            self.kernel = True
        elif entry.from_systemd:
            unit = entry.get("UNIT")
            self.manager = self.manager or bool(unit)
            self.foreign = self.foreign or not unit or not unit.endswith(".service")
        elif not self.foreign:
            unit = entry.get("_SYSTEMD_UNIT")
            # `journalctl -u` shows core dumps beside the unit's own lines.
            self.foreign = not unit or (unit.startswith(_FOREIGN) and not unit.startswith("systemd-coredump@"))


def _lines_of(number: int, found: Unwrapped) -> Iterator[tuple[Line, Unwrapped]]:
    """One record can hold a whole traceback."""
    for part in found.text.splitlines() or [""]:
        yield Line(number, part.encode()), replace(found, text=part)


def recognise_all(inputs: list[Input], only: str | None) -> list[SavedFile]:
    """Each input with its form. Raises InputError for one that cannot be read."""
    found = []
    for number, source in enumerate(inputs):
        head, damage = head_of(source)
        if damage and not head:
            raise InputError("damaged", f"{source.name} is compressed, and damaged from its beginning: {damage}")
        reference = _reference(source)
        found.append(SavedFile(source, recognise(head, reference), reference, number, only, damage=damage))
    return found


def _reference(source: Input) -> datetime:
    """A moment not long after the file was written."""
    try:
        stamp = source.path.stat().st_mtime if source.path is not None else None
    except OSError:
        stamp = None
    now = datetime.now(UTC)
    return min(datetime.fromtimestamp(stamp, UTC), now) if stamp is not None and stamp > 0 else now
