"""A process that stays in the unit's cgroup beside the server, started by a step of the unit, ended with the server.

systemd waits for the step alone; the server stays the unit's main process. On a stop only the main process gets a
signal (``KillMode=mixed``), and whoever outlives it gets SIGKILL, so what is here watches for that end itself.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from collections.abc import Callable

__all__ = ["Main", "stay"]

_PR_SET_NAME = 15


class Main:
    """The server's main process, as systemd named it to the step."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)

    def ended(self, seconds: float) -> bool:
        """Wait for its end, `seconds` at most; whether it has ended."""
        return bool(self._poll.poll(seconds * 1000))


def stay(name: str, work: Callable[[Main], None]) -> int:
    """Do `work` in a process of its own called `name`, and return 0 at once; for a step that systemd waits for.

    `name` has at most 15 characters. What `work` raises ends its process with a line in the journal.
    """
    try:
        main = Main(int(os.environ.get("MAINPID", "0")))
    except (OSError, OverflowError):  # it has ended already: nothing to stay for
        return 0
    if os.fork():
        return 0
    status = 0
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
        work(main)
    except Exception as error:  # in the background nobody else would tell of it
        print(f"<4>inquest: {name} ended: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        status = 1
    # No clean-up that could take longer than the server's own end.
    os._exit(status)
