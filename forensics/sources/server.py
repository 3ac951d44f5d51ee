"""The server's own lines → facts. Lines can quote a user's prompt: what stands here is what the server printed.

Several processes write in turn into one stream, so lines are assembled by the process that wrote them (`_PID`, which
journald takes from the kernel) and by shape. Saved plain text has no `_PID`: there shape alone decides.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from forensics.entry import Entry
from forensics.events import (
    Batch,
    ChildDied,
    Event,
    FatalPythonError,
    Milestone,
    NativeAbort,
    PreflightRefused,
    Record,
    ServerArgs,
    ServerError,
    ServerSignal,
    Traceback,
)
from forensics.redact import redact
from forensics.sources import sglang_lines as lines
from forensics.sources.tracebacks import (
    FATAL,
    STRAY_HEADER,
    TERMINATE,
    TRACEBACK,
    parse_fatal_frames,
    parse_traceback,
    parse_what,
)

SOURCE = "server"
_MAX_BLOCK_LINES = 600
_MAX_ARG_CHARS = 400
_GLUED = re.compile(r"(?:refleaks\.html|(?:it/s|s/it|B/s)[^\[\]\n]{0,40}\])(?=\[\d{4}-\d\d-\d\d )")
"""Bars of tqdm and notices of nanobind end without a newline: the next record stands behind them on their line."""
_REFUSED = re.compile(
    r"inquest: (?:preflight refused: (?P<check>[\w-]{1,40})|(?P<spec>spec) refused|not ready after \d{1,9} s): "
    r"(?P<reason>.*)",
    re.DOTALL,
)
_STRAY_STARTS = frozenset({"--", "Pr", "Ex", "Er", "ER"})
_UNLOGGED = "Message: '"
"""Python's logging prints so what it could not log: a signal's handler that interrupted another record."""

_LONGEST = 8192
"""Of a line no more is looked at, or kept: journald hands out lines of any length."""
_STRAY_USEC = 1_000_000
_ANNOUNCING = ("ERROR: ", "Exception in ", "Task exception")
_UNNAMED_USEC = 150_000_000
"""Main takes so long at most to end after a child's exception."""
_CONTENT_USEC = 50_000
"""The lines of one record come in one write, microseconds apart: what comes later is not part of it."""

SKIPPED = re.compile(
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]+\d+)*\] "
    rb"(?:(?P<sample>(?:Prefill|(?P<decode>Decode)) batch)|INFO: +\S+:\d+ - \"|Ignore import error)| - leaked "
)
"""The live reader's gate: lines that no row could ever need, nearly all that a healthy server writes. They are counted;
of batch lines (`sample`) the last of each stretch is read, and of those of `decode` the figures are."""


def parse_figures(text: str) -> tuple[tuple[str, str], ...]:
    """`#running-req: 1, token usage: 0.20, …` → (("running-req", "1"), …), tolerant of every version's commas."""
    pairs = (part.split(": ", 1) for part in text.strip().rstrip(",").split(", "))
    # No name or figure of SGLang's is longer: what is can only be somebody's text.
    return tuple((pair[0].strip().lstrip("#")[:64], pair[1].strip()[:64]) for pair in pairs if len(pair) == 2)


def parse_decode(message: str) -> dict[str, str]:
    """The figures of a whole decode line, prefix and all; empty for another line."""
    prefixed = lines.PREFIX.match(message)
    batch = lines.BATCH.match(prefixed["text"]) if prefixed else None
    return dict(parse_figures(batch["figures"])) if batch and batch["phase"] == "Decode" else {}


def parse_server_args(text: str) -> tuple[tuple[str, str], ...]:
    """`ServerArgs(a='x', b=1)` or `{'a': 'x', 'b': 1}` → name and value as printed; commas inside values survive."""
    body = text[text.find("(") + 1 :] if text.startswith("ServerArgs(") else text[1:]
    pairs: list[tuple[str, str]] = []
    for part in _split_top_level(body.rstrip().rstrip(")}")):
        name, _, value = part.partition("=" if text.startswith("ServerArgs(") else ":")
        name = name.strip().strip("'\"")
        if name and "key" in name.rsplit("_", 1)[-1] and value.strip() not in ("None", ""):
            value = "'<redacted>'"
        if name:
            pairs.append((name, redact(value.strip())[:_MAX_ARG_CHARS]))
    return tuple(pairs)


def _split_top_level(text: str) -> Iterator[str]:
    depth, quote, start, escaped = 0, "", 0, False
    for index, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth <= 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


@dataclass(slots=True)
class _Block:
    """Lines of one process that belong together and are not complete yet."""

    kind: str
    header: str
    tag: str
    entries: list[Entry]
    texts: list[str]

    def is_over(self, monotonic_usec: int) -> bool:
        """Whether nothing more is to be waited for at this stamp."""
        last = self.entries[-1].monotonic_usec
        if last >= monotonic_usec:
            return False
        whole = self.kind != "traceback" or parse_traceback(self.texts) is not None
        return whole or last + _UNNAMED_USEC < monotonic_usec

    def add(self, entry: Entry, text: str) -> None:
        """One more line. Of too many the middle goes: how it began and what it came to are at the ends."""
        if len(self.texts) >= _MAX_BLOCK_LINES:
            del self.entries[_MAX_BLOCK_LINES // 2], self.texts[_MAX_BLOCK_LINES // 2]
        self.entries.append(_short(entry))
        self.texts.append(text)


@dataclass(slots=True)
class ServerLog:
    """The stream of one run. Feed it each entry of the server in order; it gives facts as they become whole.

    `role_of` names the writer's role where the journal's trusted fields told it (pid → role).
    """

    role_of: dict[int, str] = field(default_factory=dict)
    _blocks: dict[int | None, _Block] = field(default_factory=dict)
    _stray: dict[int | None, tuple[str, int]] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """No block is open that will become a fact: nothing would be lost by a restart after this entry."""
        return not self._stray and all(block.kind == "content" for block in self._blocks.values())

    def feed(self, entry: Entry) -> list[Event]:
        message = entry.message
        if "\x1b" in message:
            message = lines.ANSI.sub("", message)
        if "\r" in message:
            message = message.rstrip("\r").rsplit("\r", 1)[-1]
        if message[:1] != "[" and ("][" in message or "refleaks" in message) and (glued := _GLUED.search(message)):
            message = message[glued.end() :]
        pid = entry.pid
        if prefixed := lines.PREFIX.match(message):
            events = self.flush(pid)
            events.extend(self._record(entry, pid, prefixed["tag"].strip(), prefixed["text"]))
            return events
        return self._bare(entry, pid, message)

    def reading(self, pid: int | None) -> str:
        """The kind of this process's open block (`traceback`, `fatal`, `abort`, `content`), or the empty string."""
        block = self._blocks.get(pid)
        return block.kind if block else ""

    def flush(self, pid: int | None) -> list[Event]:
        """Close this process's open block, if any."""
        block = self._blocks.pop(pid, None)
        return self._close(block) if block else []

    def flush_older(self, monotonic_usec: int) -> list[Event]:
        """Close every block whose last line is older than this stamp. A traceback that names no exception yet stays
        open for longer: journald may not have known whose its last lines are, and they are found with the run's end."""
        old = [pid for pid, block in self._blocks.items() if block.is_over(monotonic_usec)]
        self._stray = {pid: stray for pid, stray in self._stray.items() if stray[1] >= monotonic_usec}
        return [event for pid in old for event in self.flush(pid)]

    def flush_all(self) -> list[Event]:
        """The run is over: close everything."""
        return [event for pid in list(self._blocks) for event in self.flush(pid)]

    # --- one line -----------------------------------------------------------------------------------------

    def _record(self, entry: Entry, pid: int | None, tag: str, text: str) -> list[Event]:
        """A line with SGLang's prefix: a record of its own."""
        self._stray.pop(pid, None)
        if text.startswith(lines.USER_CONTENT):
            self._open(pid, "content", "", tag, entry, text)
            return []
        if TRACEBACK in text:
            self._open(pid, "traceback", text.split(TRACEBACK, 1)[0].rstrip(": "), tag, entry, TRACEBACK)
            return []
        if text.startswith("server_args="):
            return [ServerArgs(record=_note(entry, "server_args=…"), args=parse_server_args(text[12:]))]
        if batch := lines.BATCH.match(text):
            return [_batch(entry, batch)]
        text = text[:_LONGEST]
        for row in lines.MILESTONES:
            if row.needle in text and (match := row.pattern.match(text)):
                return [Milestone(record=_note(entry), name=row.name, tag=tag, values=_values(match))]
        if signal := _signal_said(entry, text):
            return [signal]
        if text.startswith(_ANNOUNCING):
            self._stray[pid] = (text, entry.monotonic_usec)
        return self._loose(entry, pid, tag, text)

    def _bare(self, entry: Entry, pid: int | None, text: str) -> list[Event]:
        """A line without prefix: part of an open block, the start of one, or a line of a library."""
        block = self._blocks.get(pid)
        if block and block.kind == "content":
            if entry.monotonic_usec - block.entries[-1].monotonic_usec < _CONTENT_USEC:
                block.entries[-1] = entry
                return []
            del self._blocks[pid]
            block = None
        text = text[:_LONGEST]
        if text.startswith(_UNLOGGED) and (signal := _signal_said(entry, text.removeprefix(_UNLOGGED))):
            return [*self.flush(pid), signal]
        opened = self._opens(text)
        if block and not (opened and self._ends(block, opened)):
            block.add(entry, text)
            return []
        events = self._close(self._blocks.pop(pid)) if block else []
        if opened:
            kind, header = opened
            said, usec = self._stray.pop(pid, ("", 0))
            stray = said if entry.monotonic_usec - usec <= _STRAY_USEC else ""
            self._open(pid, kind, header or stray, "", entry, text)
            return events
        if text[:2] in _STRAY_STARTS and STRAY_HEADER.match(text):
            self._stray[pid] = (text.rstrip(":"), entry.monotonic_usec)
        if text.startswith("inquest: ") and (refused := _REFUSED.match(text)):
            check = refused["check"] or refused["spec"] or "not-ready"
            events.append(PreflightRefused(record=_note(entry), check=check, reason=redact(refused["reason"])))
            return events
        events.extend(self._loose(entry, pid, "", text))
        return events

    def _loose(self, entry: Entry, pid: int | None, tag: str, text: str) -> list[Event]:
        """Lines that say something on their own, wherever they stand."""
        if text.startswith("Fatal Python error") and (fatal := FATAL.match(text)):
            self._open(pid, "fatal", fatal["error"], tag, entry, text)
            return []
        for row in lines.CHILD_DEATHS:
            if row.needle in text and (match := row.pattern.match(text)):
                return [_child_died(entry, match)]
        role = self.role_of.get(pid or 0, "")
        for row in lines.ERRORS:
            if row.needle in text and (match := row.pattern.search(text)):
                values = _values(match)
                return [ServerError(record=_note(entry), name=row.name, process=role, tag=tag, values=values)]
        return []

    @staticmethod
    def _opens(text: str) -> tuple[str, str] | None:
        """The kind of block that this line begins, and its header."""
        if TRACEBACK in text:
            return "traceback", text.split(TRACEBACK, 1)[0].strip(" +|:").removesuffix("Exception Group").rstrip(": ")
        if text.startswith("Fatal Python error") and (fatal := FATAL.match(text)):
            return "fatal", fatal["error"]
        if text.startswith("terminate called") and TERMINATE.match(text):
            return "abort", ""
        return None

    @staticmethod
    def _ends(block: _Block, opened: tuple[str, str]) -> bool:
        """Whether a line that could open a block ends the open one; a chained traceback continues it."""
        if block.kind == "traceback" and opened[0] == "traceback":
            last = next((text.strip() for text in reversed(block.texts) if text.strip()), "")
            return not last.endswith("exception occurred:") and not last.endswith("following exception:")
        return True

    def _open(self, pid: int | None, kind: str, header: str, tag: str, entry: Entry, text: str) -> None:
        self._blocks[pid] = _Block(kind, header, tag, [_short(entry)], [text[:_LONGEST]])

    # --- a whole block ------------------------------------------------------------------------------------

    def _close(self, block: _Block) -> list[Event]:
        role = self.role_of.get(block.entries[0].pid or 0, "")
        if block.kind == "traceback":
            return self._close_traceback(block, role)
        if block.kind == "fatal":
            frames = parse_fatal_frames(block.texts)
            return [
                FatalPythonError(record=_note(block.entries[0]), error=block.header, process=role, frames=frames),
                *self._embedded(block),
            ]
        if block.kind == "abort":
            match = TERMINATE.match(block.texts[0])
            what = redact(parse_what(block.texts))
            at = next((i for i, text in enumerate(block.texts) if "what():" in text), 0)
            return [
                NativeAbort(record=_note(block.entries[at]), exception=match["type"] if match else "", what=what),
                *self._embedded(block),
            ]
        return []

    def _embedded(self, block: _Block) -> list[Event]:
        """Single lines of other kinds that stood among the block's lines (asserts, NCCL's watchdog …)."""
        events: list[Event] = []
        for entry, text in zip(block.entries[1:], block.texts[1:], strict=True):
            for row in lines.ERRORS:
                if row.needle in text and (match := row.pattern.search(text)):
                    events.append(
                        ServerError(
                            record=_note(entry), name=row.name, process="", tag=block.tag, values=_values(match)
                        )
                    )
                    break
        return events

    def _close_traceback(self, block: _Block, role: str) -> list[Event]:
        parsed = parse_traceback(block.texts)
        said = next((said for header, said in lines.TRACEBACK_HEADERS if block.header.startswith(header)), "")
        if parsed is None:
            return [_cut_off(block, said or role)] if said else []
        decisive = block.entries[parsed.exception_line]
        message = redact(f"{parsed.exception}: {parsed.text}".strip(": "))
        traceback = Traceback(
            record=_note(decisive, message),
            header=redact(block.header)[:200],
            process=said or role,
            tag=block.tag,
            exception=parsed.exception,
            text=redact(parsed.text)[:2000],
            frames=parsed.frames,
            chained=tuple(redact(cause)[:500] for cause in parsed.chained),
        )
        events: list[Event] = [traceback]
        for row in lines.CHILD_DEATHS:
            if match := row.pattern.match(f"{parsed.exception}: {parsed.text}"):
                events.append(_child_died(decisive, match))
                break
        return events


def _cut_off(block: _Block, process: str) -> Traceback:
    """Announced, and lost before the exception was named: that there was one is known all the same."""
    return Traceback(
        record=_note(block.entries[0]),
        header=redact(block.header)[:200],
        process=process,
        tag=block.tag,
        exception="",
        text="",
        frames=(),
    )


def _note(entry: Entry, message: str | None = None) -> Record:
    return entry.record(SOURCE, redact(entry.message[:_LONGEST]) if message is None else message[:_LONGEST])


def _short(entry: Entry) -> Entry:
    """The entry as it is kept until its block is whole."""
    if len(entry.message) <= _LONGEST:
        return entry
    return replace(entry, fields={**entry.fields, "MESSAGE": entry.message[:_LONGEST]})


def _values(match: re.Match[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, redact(value.strip())) for name, value in match.groupdict().items() if value is not None)


def _signal_said(entry: Entry, text: str) -> ServerSignal | None:
    for row in lines.SIGNALS:
        if row.needle in text and (match := row.pattern.match(text)):
            return ServerSignal(record=_note(entry), name=row.name, values=_values(match))
    return None


def _batch(entry: Entry, match: re.Match[str]) -> Batch:
    figures = parse_figures(match["figures"][:_LONGEST])
    return Batch(record=_note(entry, entry.message), phase=match["phase"].lower(), values=figures)


def _child_died(entry: Entry, match: re.Match[str]) -> ChildDied:
    groups = match.groupdict()
    pid, code = groups.get("pid"), groups.get("exit_code")
    return ChildDied(
        record=_note(entry),
        child=groups.get("child") or "scheduler",
        child_pid=int(pid) if pid else None,
        exit_code=int(code) if code else None,
    )
