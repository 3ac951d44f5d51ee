"""Whether a server that runs also answers: asked from outside, beside it in its cgroup, as long as it lives.

SGLang's own watchdog is a thread of the process that it watches: a stopped or lost scheduler, a port that nobody
serves, or a main process that hangs look healthy to it. When no answer comes, that is told once, by one record in
the journal, as root writes it (``_UID=0``):

- ``MESSAGE_ID`` is that of this module; ``PRIORITY`` 3, or 5 when it answers again
- ``INQUEST_UNIT``, ``INQUEST_SERVER``, ``INQUEST_INVOCATION_ID``: the run
- ``INQUEST_HANG_STATE``: ``not-answering`` or ``answering`` (again)
- ``INQUEST_HANG_SINCE_USEC``: when it was last seen to answer, microseconds since 1970
- ``INQUEST_HANG_SECONDS``: for how long it has not answered
- ``INQUEST_HANG_PROBE``: what came instead (``nothing``, ``ConnectionRefusedError``)
- ``INQUEST_HANG_PROCESSES``: a line each ``pid state comm command…``; state is the kernel's letter, ``T`` is stopped
- ``INQUEST_HANG_LOST``: the names of processes that have ended since it was ready, a line each; SGLang itself may be
  about to end then, which takes it up to 66 s
- ``INQUEST_HANG_STACKS``: the stacks of main and schedulers by py-spy, or why there are none
- ``INQUEST_ON_HANG``: ``tell``, or ``restart`` where systemd will end it

With ``on_hang = "restart"`` the unit has a ``WatchdogSec=``, fed from here. A server that is stopped is given up at
once, another one when it has not answered for ``hang_timeout``: a first request of its kind may compile for minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from service import stacks
from service.background import Main, stay
from service.cgroup import unit_cgroup
from service.health import NO_ANSWER, Endpoint, health
from service.identity import Identity, comm, command_line, identity, note, state
from service.journal import JOURNAL_SOCKET, send
from service.notify import notify, status

__all__ = ["MESSAGE_ID", "Heartbeat", "main", "record"]

MESSAGE_ID = "9c5e4d5dc849425dae6d158fdd6b91b8"
NAME = "inquest-beat"
LOOK_SECONDS = 5.0
ASK_SECONDS = 10.0
ANSWER_SECONDS = 12.0
# A process that dies closes its connections a little before its death can be seen.
SETTLE_SECONDS = 0.5
# So often a detokenizer wakes between two looks only when answers flow: it sleeps until the scheduler sends some.
BUSY_SWITCHES = 10
_ERROR, _NOTICE = "3", "5"


def main(server: str, endpoint: Endpoint, give_up_seconds: float | None) -> int:
    """Stay beside the server; `give_up_seconds` without an answer is systemd's to end it, None never."""
    try:
        return stay(NAME, lambda process: Heartbeat(server, endpoint, process, give_up_seconds).run())
    except OSError:
        notify("WATCHDOG_USEC=0")  # nobody would feed it
        raise


@dataclass(slots=True)
class Heartbeat:
    """One run of one server, from ready to its end."""

    server: str
    endpoint: Endpoint
    process: Main
    give_up_seconds: float | None
    journal: str = JOURNAL_SOCKET
    first: dict[Identity, str] = field(default_factory=dict)  # the processes that it was ready with, and their names

    def run(self) -> None:
        """Return when the server has ended. What goes wrong here never costs the server its life."""
        try:
            self._watch()
        except BaseException:
            if self.give_up_seconds is not None:
                notify("WATCHDOG_USEC=0")  # nobody feeds it any more
            raise

    def _watch(self) -> None:
        answered = asked = time.monotonic()
        told = False
        seen = self._note(frozenset())  # at once: who dies before the first look was there as well
        switches = self._switches()
        while not self.process.ended(LOOK_SECONDS):
            # Also where the unit has no watchdog now: one that a daemon-reload gives it runs from then on.
            notify("WATCHDOG=1")
            seen = self._note(seen)
            before, switches = switches, self._switches()
            if not _streams(before, switches):
                if time.monotonic() - asked < ASK_SECONDS and not told:
                    continue
                asked = time.monotonic()
                answer = health(self.endpoint, ANSWER_SECONDS)
                # Whatever it says, it speaks: 503 is for SGLang itself to get over, or to die of.
                if not isinstance(answer, int) and not _streams(switches, self._switches()):
                    if not self.process.ended(SETTLE_SECONDS) and _is_active(self._unit):
                        self._silent(answered, answer, told=told)
                        told = True
                    continue
            answered = time.monotonic()
            if told:
                told = False
                self._speaks_again()

    @property
    def _unit(self) -> str:
        return f"sglang-{self.server}.service"

    def _silent(self, answered: float, answer: int | str, *, told: bool) -> None:
        """It did not answer: told once; given up where that is wanted and it is long or plain enough."""
        silence = time.monotonic() - answered
        pids = self._pids()
        lost = [name for process, name in self.first.items() if state(process) in (None, "Z", "X")]
        fields = record(self.server, pids, answer, silence, lost, restart=self.give_up_seconds is not None)
        if not told:
            workers = [pid for pid in pids if command_line(pid).startswith("sglang::scheduler")]
            fields["INQUEST_HANG_STACKS"] = stacks.dump([self.process.pid, *workers[:2]])
            self._send(fields)
        status(f"does not answer since {silence:.0f} s ({_words(answer)})")
        stopped = any(_state(pid) == "T" for pid in pids)
        if self.give_up_seconds is not None and (stopped or silence >= self.give_up_seconds):
            notify("WATCHDOG=trigger")

    def _speaks_again(self) -> None:
        fields = record(self.server, self._pids(), None, 0, (), restart=self.give_up_seconds is not None)
        self._send(fields)
        status("answers again")

    def _send(self, fields: dict[str, str]) -> None:
        try:
            send(fields, self.journal)
        except OSError as error:
            print(f"<3>inquest: {fields['MESSAGE']} (not recorded: {error})", file=sys.stderr, flush=True)

    def _pids(self) -> tuple[int, ...]:
        cgroup = unit_cgroup(self.server)
        pids = cgroup.pids() if cgroup else (self.process.pid,)
        # The step that this was forked by is about to end, and is none of the server's.
        own = (os.getpid(), os.getppid())
        return tuple(pid for pid in pids if pid not in own and not comm(pid).startswith("inquest-"))

    def _note(self, seen: frozenset[Identity]) -> frozenset[Identity]:
        now = frozenset(found for pid in self._pids() if (found := identity(pid)) is not None)
        if now != seen and os.geteuid() == 0 and unit_cgroup(self.server) is not None:
            with suppress(OSError):
                note(self.server, os.environ.get("INVOCATION_ID", ""), [process.pid for process in now])
        self.first = self.first or {process: comm(process.pid) for process in now}
        return now

    def _switches(self) -> dict[int, int]:
        """How often main, which comes first, and the detokenizers have waited for something and got it."""
        answering = [pid for pid in self._pids() if command_line(pid).startswith("sglang::detokenizer")]
        return {pid: count for pid in (self.process.pid, *answering) if (count := _voluntary_switches(pid)) is not None}


def _streams(before: dict[int, int], after: dict[int, int]) -> bool:
    """Whether answers flow through a detokenizer, and main still moves (its HTTP server alone wakes it every 0.1 s)."""
    woke = [after[pid] - before[pid] for pid in after if pid in before]
    return len(woke) > 1 and woke[0] > 0 and max(woke[1:]) >= BUSY_SWITCHES


def _voluntary_switches(pid: int, proc: Path = Path("/proc")) -> int | None:
    try:
        for line in (proc / str(pid) / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def _is_active(unit: str) -> bool:
    """Whether systemd has the unit serving: one that stops may fall silent."""
    argv = ["systemctl", "show", "--property=ActiveState", "--value", unit]
    # systemctl tells whoever is named there of its own failures: this unit would bear them in its status.
    env = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
    try:
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.stdout.strip() not in {"deactivating", "inactive", "failed"}


def _state(pid: int) -> str:
    process = identity(pid)
    return (state(process) or "?") if process else "Z"


def _words(answer: int | str | None) -> str:
    return f"no answer within {ANSWER_SECONDS:.0f} s" if answer == NO_ANSWER else str(answer)


def record(
    server: str,
    pids: Sequence[int],
    answer: int | str | None,
    silence: float,
    lost: Sequence[str],
    *,
    restart: bool,
) -> dict[str, str]:
    """The record's fields, without the stacks; `answer` is None when it answers again, `lost` names what has ended."""
    unit = f"sglang-{server}.service"
    if answer is None:
        words = f"{unit} answers again"
    else:
        states = [f"{comm(pid)} is stopped" for pid in pids if _state(pid) == "T"]
        ended = [f"{name} has ended" for name in lost]
        words = f"{unit} runs but does not answer: {'; '.join([_words(answer), *states, *ended])}"
    fields = {"MESSAGE": words, "MESSAGE_ID": MESSAGE_ID, "PRIORITY": _NOTICE if answer is None else _ERROR}
    fields |= {"SYSLOG_IDENTIFIER": NAME, "OBJECT_SYSTEMD_UNIT": unit, "INQUEST_UNIT": unit, "INQUEST_SERVER": server}
    fields |= {"INQUEST_INVOCATION_ID": os.environ.get("INVOCATION_ID", "")}
    fields |= {"INQUEST_HANG_STATE": "answering" if answer is None else "not-answering"}
    fields |= {"INQUEST_ON_HANG": "restart" if restart else "tell"}
    if answer is not None:
        fields["INQUEST_HANG_PROBE"] = str(answer)
        fields["INQUEST_HANG_LOST"] = "\n".join(lost)
        fields["INQUEST_HANG_SECONDS"] = f"{silence:.0f}"
        fields["INQUEST_HANG_SINCE_USEC"] = str(int((time.time() - silence) * 1e6))
    lines = [f"{pid} {_state(pid)} {comm(pid)} {command_line(pid)[:200]}" for pid in pids]
    fields["INQUEST_HANG_PROCESSES"] = "\n".join(lines)
    return fields
