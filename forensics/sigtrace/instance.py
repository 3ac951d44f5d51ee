"""Our own tracefs instance: own buffer, own filter, nobody else's tracing is touched.

Kernel: Documentation/trace/ftrace.rst (instances, trace_pipe, buffer_percent), Documentation/trace/events.rst (filter).
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from forensics.sigtrace.pipe import Item, PipeText

TRACEFS = Path("/sys/kernel/tracing")
NAME = "inquest"
SIGNALS = (1, 2, 3, 6, 9, 15)
"""SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGTERM: what people and programs end processes with."""
KILLERS = ("*kill*", "*/fuser", "*/runc", "*/crun")
"""Programs that send a signal and are gone 200 µs later, together with their command line: they are looked at when
they are executed, a millisecond before."""

_BUFFER_KB = 64
"""For each CPU; a record takes 56 bytes."""
_FILTER_BYTES = 4000
"""The kernel takes a filter of less than a page."""
_READ_BYTES = 65536


class NotTraceable(Exception):
    """Signals cannot be traced on this machine; the text says why."""


class TraceInstance:
    """To be used in a `with` statement: at its end the instance is gone. One that a killed predecessor left is too."""

    def __init__(self, tracefs: Path = TRACEFS, name: str = NAME) -> None:
        self._folder = tracefs / "instances" / name
        self._signals = self._folder / "events/signal/signal_generate"
        self._executed = self._folder / "events/sched/sched_process_exec"
        self._pipe = -1
        self._text = PipeText()

    def __enter__(self) -> Self:
        if not self._folder.parent.is_dir():
            raise NotTraceable(f"{self._folder.parent} does not exist: tracefs is not mounted here")
        try:
            if self._folder.exists():
                self._folder.rmdir()
            self._folder.mkdir()
            self._set_up()
        except OSError as error:
            busy = " (is another inquest-sigtrace running?)" if error.errno == errno.EBUSY else ""
            self._remove()
            raise NotTraceable(f"{error.filename}: {error.strerror}{busy}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _set_up(self) -> None:
        self._write("trace_clock", "mono")
        self._write("buffer_size_kb", str(_BUFFER_KB))
        if (self._folder / "buffer_percent").exists():
            self._write("buffer_percent", "0")  # wake the reader at the first record, not at a half-full buffer
        (self._executed / "filter").write_text("||".join(f'filename ~ "{glob}"' for glob in KILLERS))
        self.watch_all()
        (self._signals / "enable").write_text("1")
        self._write("tracing_on", "1")
        self._pipe = os.open(self._folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """To be polled: readable as soon as there is a record."""
        return self._pipe

    def read(self) -> Iterator[Item]:
        """What one read of the pipe gives; nothing when it is empty."""
        try:
            chunk = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return
        yield from self._text.feed(chunk)

    def watch_all(self) -> None:
        """Record the signals to every process of this machine, so that the youngest is seen too."""
        (self._signals / "filter").write_text(_wanted())
        (self._executed / "enable").write_text("1")

    def watch_only(self, pids: Iterable[int]) -> None:
        """Record the signals to these processes; the kernel drops all others by itself."""
        head, tail, length = f"({_wanted()}) && (", ")", len(_wanted()) + 8
        terms = []
        for pid in sorted(pids):
            length += len(term := f"pid=={pid}") + 2
            if length > _FILTER_BYTES:
                break
            terms.append(term)
        (self._signals / "filter").write_text(head + ("||".join(terms) or "pid==0") + tail)
        (self._executed / "enable").write_text("0")

    def _write(self, name: str, value: str) -> None:
        (self._folder / name).write_text(value)

    def _remove(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        try:
            self._write("tracing_on", "0")
            for event in (self._signals, self._executed):
                (event / "enable").write_text("0")
        except OSError:
            pass
        for _ in range(20):
            try:
                self._folder.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
                time.sleep(0.05)  # somebody looks into it
            else:
                return


def _wanted() -> str:
    """Delivered only: not what was ignored, already pending, or sent to the dying."""
    return f"({'||'.join(f'sig=={signal}' for signal in SIGNALS)}) && result==0"
