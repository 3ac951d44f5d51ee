"""One run while it is followed: what is known of it, the half-read lines of its log, and how much of it is kept."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from forensics.answering import is_check
from forensics.entry import Entry
from forensics.events import Batch, Event, Gap
from forensics.lives import role_of
from forensics.model import RunRecord
from forensics.sources.server import ServerLog

KEPT_FIRST, KEPT_LAST = 64, 128
"""Of each kind of fact, so many of a run's first and last are kept: a flood must not eat the daemon."""

_NOT_THE_SERVER = ("", "control")


@dataclass(slots=True)
class OpenRun:
    """`record` is all that a checkpoint has to keep; `log` assembles the server's lines; `counts` are of the record's
    events by kind."""

    record: RunRecord
    log: ServerLog
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, record: RunRecord) -> Self:
        """Taken up again where a checkpoint left it, or begun with an empty record."""
        return cls(record, ServerLog(record.pids), Counter(event.kind for event in record.events))

    @property
    def is_over(self) -> bool:
        return self.record.ended_usec is not None

    def is_server(self, pid: int | None) -> bool:
        """Whether a pid is one of the server's own processes, not of a command that systemd ran beside it."""
        return self.record.pids.get(pid or 0, "") not in _NOT_THE_SERVER

    def processes(self) -> tuple[int, ...]:
        """The server's processes that have written lines."""
        return tuple(pid for pid, role in self.record.pids.items() if role not in _NOT_THE_SERVER)

    def learn_writer(self, entry: Entry) -> str:
        """Remember what the writer of a line is; its role."""
        pids, pid = self.record.pids, entry.pid
        role = role_of(entry.get("_COMM"), entry.get("_CMDLINE"))
        if pid is None:
            return role
        if not role and "main" not in pids.values():
            role = "main"
        if role not in _NOT_THE_SERVER and pids.get(pid, "") in ("", "child"):
            pids[pid] = role
        else:
            pids.setdefault(pid, role)
        return role

    def count(self, lines: int, first_usec: int, last_usec: int, realtime_usec: int) -> None:
        """So many more lines of the server, the last of them written at that time."""
        record = self.record
        record.lines += lines
        if record.first_line_usec is None:
            record.first_line_usec = first_usec
        record.last_line_usec = max(record.last_line_usec or 0, last_usec)
        record.last_realtime_usec = max(record.last_realtime_usec, realtime_usec)

    def append(self, event: Event) -> None:
        """Keep the first and the last of each kind."""
        record = self.record
        if isinstance(event, Batch) and event.phase == "decode":
            record.decoding.add(dict(event.values))
        elif isinstance(event, Batch) and is_check(event):
            self._forget_last_check()
        self.counts[event.kind] += 1
        if self.counts[event.kind] > KEPT_FIRST + KEPT_LAST:
            same = [index for index, kept in enumerate(record.events) if kept.kind == event.kind]
            del record.events[same[KEPT_FIRST]]
            self.counts[event.kind] -= 1
        record.events.append(event)
        record.last_realtime_usec = max(record.last_realtime_usec, event.record.realtime_usec)

    def _forget_last_check(self) -> None:
        """Of health checks in a row only the last is kept: an idle server's would crowd out what it did before."""
        events = self.record.events
        at = next((at for at in range(len(events) - 1, -1, -1) if isinstance(events[at], Batch)), None)
        if at is not None and isinstance(last := events[at], Batch) and is_check(last):
            del events[at]
            self.counts[last.kind] -= 1

    def miss(self, gap: Gap) -> None:
        """Something of this run could not be read."""
        gaps = self.record.gaps
        if len(gaps) >= KEPT_FIRST:
            del gaps[KEPT_FIRST // 2]
        gaps.append(gap)

    def end(self, usec: int, realtime_usec: int) -> None:
        self.record.ended_usec, self.record.ended_realtime_usec = usec, realtime_usec
