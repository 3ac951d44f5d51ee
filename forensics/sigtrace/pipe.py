"""The text of a trace_pipe → what happened. Pure.

A process chooses its own name, up to 15 bytes of anything: spaces, dashes, colons, even newlines. A line is therefore
read from what no name is long enough to imitate: `: signal_generate: sig=` in its middle, ` res=N` at its end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One `signal_generate`. `usec` is CLOCK_MONOTONIC; pids are threads' ids of the first pid namespace.

    `code` is si_code: 0 or less came from a process (kill, tkill, sigqueue), more from the kernel.
    `to_thread` is whether only one thread was meant.
    """

    usec: int
    signal: int
    code: int
    sender_tid: int
    sender_comm: str
    target_tid: int
    target_comm: str
    to_thread: bool

    @property
    def from_kernel(self) -> bool:
        return self.code > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One `sched_process_exec`: a process became the program `filename`."""

    pid: int
    filename: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The kernel's buffer ran over; `count` is None when the kernel does not say how many records are gone."""

    count: int | None


Item = Signal | Executed | Lost

_SIGNAL = re.compile(
    rb"(?P<comm>[\s\S]{0,16})-(?P<tid>\d+) +\[\d+\] +(?:\S+ +)?(?P<seconds>\d+)\.(?P<micros>\d{6}): signal_generate: "
    rb"sig=(?P<sig>\d+) errno=-?\d+ code=(?P<code>-?\d+) comm=(?P<target>[\s\S]{0,16}) pid=(?P<pid>\d+) "
    rb"grp=(?P<grp>\d+) res=\d+\Z"
)
_EXECUTED = re.compile(rb": sched_process_exec: filename=(?P<filename>[\s\S]*) pid=(?P<pid>\d+) old_pid=\d+\Z")
_LOST = re.compile(rb"CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]\Z")
_UNKNOWN_COMM = "<...>"
_LONGEST = 512


class PipeText:
    """Takes the pipe's bytes as they come and gives whole records. A broken line is kept until its rest is there."""

    def __init__(self) -> None:
        self._rest = b""
        self._broken = b""

    def feed(self, chunk: bytes) -> Iterator[Item]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-_LONGEST:]
        for line in lines:
            text = self._broken + line
            if found := _parse(text):
                self._broken = b""
                yield found
            else:
                # A newline in a process's name: the record goes on in the next line.
                self._broken = (text + b"\n")[-_LONGEST:]


def _parse(text: bytes) -> Item | None:
    if lost := _LOST.search(text):
        return Lost(count=int(lost[1]) if lost[1] else None)
    if executed := _EXECUTED.search(text):
        return Executed(pid=int(executed["pid"]), filename=_text(executed["filename"]))
    match = _SIGNAL.search(text)
    if match is None:
        return None
    comm = _text(match["comm"]).strip()
    return Signal(
        usec=int(match["seconds"]) * 1_000_000 + int(match["micros"]),
        signal=int(match["sig"]),
        code=int(match["code"]),
        sender_tid=int(match["tid"]),
        sender_comm="" if comm == _UNKNOWN_COMM else comm,
        target_tid=int(match["pid"]),
        target_comm=_text(match["target"]),
        to_thread=match["grp"] == b"0",
    )


def _text(name: bytes) -> str:
    """A name for people: no control characters, nothing that a terminal would obey."""
    return printable(name.decode("utf-8", "replace"))


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
