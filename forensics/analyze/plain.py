"""A server's own log, saved as text → its facts, life by life.

The same reader of the server's lines as for the journal does the work. Around it stands what saved text needs: the
prefixes of containers and other loggers, excerpts that begin in the middle of a traceback, a shell's `Killed`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from forensics.analyze import other_servers as others
from forensics.analyze import stamps, wrappings
from forensics.analyze.lines import Line
from forensics.analyze.text import Clock
from forensics.analyze.told import claimed, note, role_of, told, values_of
from forensics.analyze.wrappings import Unwrapped
from forensics.entry import Entry
from forensics.events import (
    Event,
    ProcessExit,
    ServerError,
    ServerSignal,
    Traceback,
    UnitResult,
)
from forensics.sources import sglang_lines
from forensics.sources.server import SKIPPED, ServerLog
from forensics.sources.tracebacks import TRACEBACK

SOURCE = "server"
QUOTED = "quoted"
"""The header of an exception that stands without its traceback: what an excerpt shows of one."""

_STEP_USEC = 10_000
"""What a line adds to the clock in a log without stamps, so that order can stand for time."""

_ACCESS = re.compile(rb'(?:\(\w+ pid=\d+\) )?INFO: +\S+:\d+ - "')
_WRAPPED = re.compile(
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) F )?"
)
_HEADLESS = re.compile(r'\s*File "[^"]+", line \d+, in ')
_EXCEPTION = re.compile(
    r"(?:- |\.\.\. )?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failed|Exit|NotFound|Overflow|Interrupt|Timeout"
    r"|Mismatch)(?:: .*|:? ?$)"
)
_OLD_PREFIX = re.compile(
    r"(?:\[gpu=\d+\]|\[(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?: [A-Z]+\d+)*\]|\d{4}-\d\d-\d\d [\d:]{8}(?: [A-Z]+\d+)*\]) "
)
_NEW_RECORD = re.compile(
    r"(?:\[[A-Z]+\]|DEBUG|INFO|WARNING|ERROR|CRITICAL)[: ]|\[\d|[WEIF]\d{4} |\d{4}-\d\d-\d\d[ T]|\[rank\d+\]:|\^C$"
)
_TOP = re.compile(r' *File "(?!<string>")[^"]+", line \d+, in (?:_run_module_as_main|<module>)$')
_TOP_FRAMES = (" in _run_module_as_main", " in <module>")
"""The outermost frame of a main program; children of multiprocessing have `<string>` there."""

_MOST_CLAIMS = 500
_TOLD_CHARS = 4096
"""Longer lines say nothing of an end by themselves: prompts, configurations, tensors."""

_STARTS = re.compile(r"(?:Starting|Started) \S+\.service\b")
_RESTART_USEC = 3_000_000


@dataclass(slots=True)
class PlainLog:
    """Feed it the lines of one file in order. `clock` gives the times; `place` turns a wall-clock time into the boot
    id and the monotonic time that the joined evidence uses."""

    name: str
    reference: datetime
    clock: Clock
    place: Callable[[int], tuple[str, int]]
    life: int = 0
    lines: int = 0
    first_usec: int | None = None
    last_usec: int = 0
    sglang: bool = False
    whole: bool = False
    """The life's beginning is in the file: then failures stand there with their headers, and excerpts are none."""

    claims: dict[int, list[tuple[str, Event]]] = field(default_factory=dict)
    """What systemd would have said of each life, as far as lines of this log claim it: `journalctl -o cat` has no
    senders. Whoever judges decides whether to believe it."""

    _log: ServerLog = field(default_factory=ServerLog)
    _roles: dict[int, str] = field(default_factory=dict)
    _sample: tuple[Line, Unwrapped | None, int] | None = None
    _second: bytes = b""
    _partial: tuple[Line, Unwrapped, str] | None = None
    _killed_self_usec: int | None = None
    _main_ended: bool = False
    _headed: int = 0

    def __post_init__(self) -> None:
        self._log.role_of = self._roles

    def feed(self, line: Line, found: Unwrapped | None = None) -> list[tuple[int, Event]]:
        """The facts that the line completes, each with the life that it belongs to; `found` is the line where it came
        as a record with its own stamp."""
        found_here = []
        for event in self._take(line, found):
            self._remember_end(event)
            found_here.append((self.life, event))
        return found_here

    def skim(self, line: Line) -> bool:
        """Count a line that carries no fact, which nearly all of a healthy server's are; False where it must be fed."""
        raw = line.raw
        if self._partial is not None:
            return False
        wrapped = _WRAPPED.match(raw)
        at = wrapped.end() if wrapped else 0
        gate = SKIPPED.match(raw, at)
        if gate is None and not _ACCESS.match(raw, at):
            return False
        second = wrapped[1] if wrapped else raw[1:20] if gate else b""
        if second and second != self._second:
            self._second = second
            text = (raw[: wrapped.end()] if wrapped else second + b" ").decode("ascii", "replace")
            stamped = stamps.parse(text, self.reference)
            self.clock.tick(stamped[0] if stamped else None)
        self._note_line(self.clock.now_usec)
        if gate and gate["sample"]:
            self._sample = line, None, self.clock.now_usec
        return True

    def _take(self, line: Line, found: Unwrapped | None) -> Iterator[Event]:
        unwrapped = found or wrappings.unwrap(line.text, self.reference)
        if self._partial is not None:
            line, first, text = self._partial
            unwrapped = Unwrapped(text + unwrapped.text, first.stamp, unwrapped.partial)
            self._partial = None
        if unwrapped.partial and len(unwrapped.text) < 1 << 18:
            self._partial = line, unwrapped, unwrapped.text
            return
        usec = self.clock.tick(unwrapped.stamp, 0 if self.clock.stamped else _STEP_USEC)
        self._note_line(usec)
        inner = unwrapped.text.encode()
        gate = SKIPPED.match(inner)
        if gate or _ACCESS.match(inner):
            if gate and gate["sample"]:
                self._sample = line, unwrapped, usec
            return
        yield from self._take_sample()
        yield from self._line(line, unwrapped, usec)

    def close(self) -> list[tuple[int, Event]]:
        """The file is over."""
        return [(self.life, event) for event in self._take_rest()]

    def _take_rest(self) -> Iterator[Event]:
        if self._partial is not None:
            line, unwrapped, _ = self._partial
            self._partial = None
            yield from self._line(line, unwrapped, self.clock.tick(unwrapped.stamp))
        yield from self._take_sample()
        yield from self._log.flush_all()

    # --- one line -------------------------------------------------------------------------------------------

    def _note_line(self, usec: int) -> None:
        self.lines += 1
        self.last_usec = usec
        if self.first_usec is None:
            self.first_usec = usec

    def _take_sample(self) -> Iterator[Event]:
        if self._sample is None:
            return
        line, unwrapped, usec = self._sample
        self._sample = None
        text = wrappings.unwrap(line.text, self.reference).text if unwrapped is None else unwrapped.text
        yield from self._log.feed(self._entry(line, text, usec, unwrapped.pid if unwrapped else None))

    def _entry(self, line: Line, text: str, usec: int, pid: int | None) -> Entry:
        boot_id, monotonic_usec = self.place(usec)
        fields = {"MESSAGE": text} if pid is None else {"MESSAGE": text, "_PID": str(pid)}
        return Entry(
            cursor=f"{self.name}:{line.number}",
            boot_id=boot_id,
            monotonic_usec=monotonic_usec,
            realtime_usec=usec,
            fields=fields,
        )

    def _line(self, line: Line, found: Unwrapped, usec: int) -> Iterator[Event]:
        text, pid = found.text, found.pid
        if "\x1b" in text:
            text = sglang_lines.ANSI.sub("", text)
        if pid is not None and found.role:
            self._roles.setdefault(pid, role_of(found.role))
        prefixed = sglang_lines.PREFIX.match(text)
        if self._begins_anew(text, prefixed, usec):
            yield from self._log.flush_all()
            self._next_life(usec)
        entry = self._entry(line, text, usec, pid)
        if prefixed:
            self.sglang = True
            if prefixed["text"].startswith("server_args="):
                self.whole = True
            yield from self._log.feed(entry)
            return
        if old := _OLD_PREFIX.match(text):
            text = text[old.end() :]
            entry = self._entry(line, text, usec, pid)
        if claim := claimed(entry, text):
            self._claim(*claim)
            self.lines -= 1
            if not self.lines:
                self.first_usec = None
            return
        shown = text.rsplit("\r", 1)[-1]
        if shown.startswith("KeyboardInterrupt") and self._log.reading(pid) == "traceback":
            # The end of a traceback, and of a program that was told to end.
            yield from self._log.feed(_with(entry, shown))
            yield from self._log.flush(pid)
            if shown.startswith("KeyboardInterrupt: terminated"):
                yield ServerSignal(record=note(entry), name="sigterm-received")
            return
        if found_here := told(entry, shown, sglang=self.sglang) if len(shown) <= _TOLD_CHARS else []:
            yield from self._log.flush(pid)
            yield from found_here
            return
        yield from self._fragment(entry, shown, pid, found)

    def _begins_anew(self, text: str, prefixed: re.Match[str] | None, usec: int) -> bool:
        if self._main_ended and text.startswith("usage: "):
            return True
        if prefixed and prefixed["text"].startswith("server_args="):
            return self.whole or self._killed_self_usec is not None
        if self.claims.get(self.life) and _STARTS.match(text) and ".service" in text:
            return any(isinstance(event, UnitResult | ProcessExit) for _, event in self.claims[self.life])
        if not self.sglang and others.BANNER.search(text):
            first, self.whole = not self.whole, True
            # `Started server process` of the front end comes minutes after the engine's own banner.
            return not first and "Started server process" not in text and "version" in text
        return self._killed_self_usec is not None and usec > self._killed_self_usec + _RESTART_USEC

    def _next_life(self, usec: int) -> None:
        self.life += 1
        self.lines, self.first_usec, self.last_usec = 1, usec, usec
        self.whole = self.sglang = False
        self._killed_self_usec = None
        self._main_ended = False
        self._roles.clear()

    def _remember_end(self, event: Event) -> None:
        if isinstance(event, ServerSignal) and event.name == "kill-process-tree":
            if dict(event.values).get("include_parent") == "True":
                self._killed_self_usec = event.record.realtime_usec
        elif isinstance(event, ServerError) and event.name == "usage-error":
            self._main_ended = True
        elif isinstance(event, Traceback) and not event.header and event.frames:
            top = event.frames[0]
            self._main_ended |= top.endswith(_TOP_FRAMES) and not top.startswith("<string>")

    def _claim(self, unit: str, event: Event) -> None:
        claims = self.claims.setdefault(self.life, [])
        if len(claims) < _MOST_CLAIMS:
            claims.append((unit, event))

    def _fragment(self, entry: Entry, text: str, pid: int | None, found: Unwrapped) -> Iterator[Event]:
        if text == TRACEBACK:
            self._headed = self.lines
        elif self._main_ended and self.lines == self._headed + 1 and _TOP.match(text):
            # A program raises so once: this is the next one's, and so is the header that was just read.
            self._next_life(entry.realtime_usec)
        open_kind = self._log.reading(pid)
        if open_kind and open_kind != "content" and _NEW_RECORD.match(text) and TRACEBACK not in text:
            yield from self._log.flush(pid)
            open_kind = ""
        if not open_kind and _HEADLESS.match(text):
            yield from self._log.feed(_with(entry, TRACEBACK))
        elif (
            not open_kind and not self.whole and _EXCEPTION.match(text) and not found.level.startswith(("INFO", "WARN"))
        ):
            yield from self._log.feed(_with(entry, f"{QUOTED}: {TRACEBACK}"))
            text = text.removeprefix("- ").removeprefix("... ")
            entry = _with(entry, text)
        elif not open_kind and not self.sglang and len(text) <= _TOLD_CHARS:
            for row in others.ERRORS:
                if match := row.pattern.search(text):
                    yield ServerError(record=note(entry), name=row.name, values=values_of(match))
                    return
        yield from self._log.feed(_with(entry, text) if text != entry.message else entry)


def _with(entry: Entry, message: str) -> Entry:
    return replace(entry, fields={**entry.fields, "MESSAGE": message})
