"""The unit's status while the server stops: how many requests SGLang still finishes, and how long it may take.

Run by ``ExecStop=``, which it leaves at once: the signal to the server is systemd's, as ever.
"""

from __future__ import annotations

import os
import time

from service.background import Main, stay
from service.logged import Logged
from service.notify import status
from service.steps import in_flight

__all__ = ["main", "words"]

STATUS_SECONDS = 1.0


def main(limit_seconds: float) -> int:
    """Start to show the stop; `limit_seconds` is the unit's ``TimeoutStopSec=``."""
    return stay("inquest-drain", lambda server: _show(server, limit_seconds))


def _show(server: Main, limit_seconds: float) -> None:
    started = time.monotonic()
    remaining: int | None = None
    with Logged(os.environ.get("INVOCATION_ID", "")) as logged:
        status(words(0, limit_seconds, None))
        while not server.ended(STATUS_SECONDS):
            for line in logged.lines():
                found = in_flight(line)
                remaining = remaining if found is None else found
            status(words(time.monotonic() - started, limit_seconds, remaining))


def words(seconds: float, limit_seconds: float, remaining: int | None) -> str:
    """The status line after `seconds` of stopping; `remaining` requests as SGLang last said, every 5 s."""
    if remaining is None:
        what = "SGLang finishes the running requests"
    else:
        what = f"{remaining} request{'' if remaining == 1 else 's'} in flight"
    limit = "" if limit_seconds == float("inf") else f" of at most {limit_seconds:.0f} s"
    return f"stopping: {what}, {seconds:.0f} s{limit}"
