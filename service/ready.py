"""Wait until the server answers: ``systemctl start`` returns when SGLang serves, not when it was launched.

Run by ``ExecStartPost=``, as root to read what the server logs. Ready is a 200 from ``/health_generate`` (one token
through scheduler and detokenizer) from a socket that this unit's own processes hold: an answer from a stranger on
the port does not count. There is no deadline here; systemd's ``TimeoutStartSec=`` is it.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from service.cgroup import own_cgroup, unit_cgroup
from service.exit_status import NOT_READY
from service.health import Endpoint, health
from service.identity import identity, note
from service.listeners import Listener, holder, listeners, owns
from service.logged import Logged
from service.notify import notify as to_systemd
from service.notify import status
from service.steps import step

__all__ = ["Endpoint", "main", "wait"]

POLL_SECONDS = 0.25
# Each question is a line in the server's own log.
ASK_SECONDS = 1.0
# SGLang gives up on its own health check after 20 s and says 503.
ANSWER_SECONDS = 25.0
STATUS_SECONDS = 5.0
# A stranger on the port that stays this long will still be there when SGLang wants it.
STRANGER_SECONDS = 10.0


class Gone(Exception):
    """The server will not become ready; the message says why."""


def main(server: str, endpoint: Endpoint, *, watchdog: bool = False) -> int:
    """Wait for the server whose main process systemd names in ``$MAINPID``; 0 when it answers.

    `watchdog` where the unit has a ``WatchdogSec=``: it runs from the server's launch on.
    """
    # A stop or a start timeout that comes meanwhile is PID 1's to judge, and no failure of this.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    started = time.monotonic()
    main_pid = int(os.environ.get("MAINPID", "0"))
    run = os.environ.get("INVOCATION_ID", "")
    try:
        with Logged(run) as logged:
            remark = wait(endpoint, main_pid, _unit_pids, status, logged.lines, watchdog=watchdog)
    except Gone as reason:
        status(f"not ready: {reason}")
        print(f"<3>inquest: not ready after {time.monotonic() - started:.0f} s: {reason}", file=sys.stderr)
        return NOT_READY
    seconds = time.monotonic() - started
    status(f"ready after {seconds:.0f} s{remark}")
    print(f"inquest: ready after {seconds:.1f} s on {endpoint.host} port {endpoint.port}{remark}", file=sys.stderr)
    if os.geteuid() == 0 and (cgroup := unit_cgroup(server)) is not None:
        try:
            note(server, run, (pid for pid in cgroup.pids() if pid != os.getpid()))
        except OSError as error:
            print(f"<4>inquest: the server's processes were not noted: {error}", file=sys.stderr)
    return 0


def wait(
    endpoint: Endpoint,
    main_pid: int,
    unit_pids: Callable[[], tuple[int, ...]],
    notify: Callable[[str], None],
    logged: Callable[[], Iterable[str]] = tuple,
    *,
    watchdog: bool = False,
) -> str:
    """Return when the server answers, with a remark for the log (mostly empty); raises ``Gone``.

    `unit_pids` are the processes that count as the server; `notify` takes what it is doing, in words; `logged` gives
    the lines that it has logged since the last call.
    """
    started = time.monotonic()
    born = identity(main_pid)
    asked_at, told_at, stranger_since = 0.0, 0.0, None
    told, reached = "", ""
    while True:
        if born is None or identity(main_pid) != born:
            raise Gone("the server's main process ended; its last lines are above")
        # Loading may take longer than the unit's watchdog waits, and this step is the sign of life until it is done.
        if watchdog:
            to_systemd("WATCHDOG=1")
        for line in logged():
            reached = step(line, reached)
        now = time.monotonic()
        if now - asked_at >= ASK_SECONDS:
            asked_at = now
            seen = _look(endpoint, unit_pids)
            if seen.ready:
                return seen.words
            stranger_since = (stranger_since or now) if seen.stranger else None
            if stranger_since is not None and now - stranger_since >= STRANGER_SECONDS:
                raise Gone(f"{seen.words}, so SGLang cannot have it")
            words = reached if reached and seen.vague else seen.words
            if words != told or now - told_at >= STATUS_SECONDS:
                notify(f"waiting for SGLang, {now - started:.0f} s: {words}")
                told, told_at = words, now
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One look at the server; `words` say what is being waited for, or remark on the answer.

    `vague` where what the server logs tells more.
    """

    words: str
    ready: bool = False
    stranger: bool = False
    vague: bool = False


def _look(endpoint: Endpoint, unit_pids: Callable[[], tuple[int, ...]]) -> _Seen:
    found = [listener for listener in listeners(endpoint.port) if _answers(listener, endpoint)]
    pids = unit_pids()
    if not found:
        return _Seen("loading the model" if any(map(_is_worker, pids)) else "starting its processes", vague=True)
    # Where the unit's processes cannot be listed, nobody can be called a stranger.
    owned = {owns(pids, listener.inode) if pids else None for listener in found}
    if owned == {False}:
        return _Seen(f"port {endpoint.port} belongs to {holder(found[0])}", stranger=True)
    answer = health(endpoint, ANSWER_SECONDS)
    if answer == 200:
        return _Seen("" if True in owned else " (whose socket it is could not be seen)", ready=True)
    return _Seen("warming up" if answer == 503 else f"its health check says {answer}")


def _answers(listener: Listener, endpoint: Endpoint) -> bool:
    """Whether a connection to the endpoint would reach this socket."""
    try:
        wanted = ipaddress.ip_address(endpoint.reachable_host)
    except ValueError:
        return True  # a name: any socket on the port may be meant
    return listener.address.is_unspecified or listener.address == wanted


def _is_worker(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether this is one of SGLang's own processes, which take their title when their imports are done."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().startswith(b"sglang::")
    except OSError:
        return False


def _unit_pids() -> tuple[int, ...]:
    cgroup = own_cgroup()
    return cgroup.pids() if cgroup else ()
