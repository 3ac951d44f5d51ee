"""A command of one's own: the JSON of `forensics.alerts.body` on its standard input, delivered when it exits with 0.

It runs without a shell, in a process group of its own that ends with it, and sees nothing of the daemon's environment:
`PATH`, `LANG` and what `environment` gives. It runs as the daemon does, in the sandbox of inquestd.service.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from forensics.alerts.body import body
from forensics.alerts.sink import Refused
from forensics.errors import InquestError
from forensics.store import Delivery

SAID_CHARS = 200


class CommandSink:
    def __init__(self, name: str, argv: Sequence[str], *, timeout_seconds: float, host: str, link: str) -> None:
        self.name = name
        self._argv = tuple(argv)
        self._timeout_seconds = timeout_seconds
        self._host, self._link = host, link

    def send(self, delivery: Delivery) -> str:
        # Files, not pipes: a command that reads nothing, or leaves a child behind with its output, cannot hold this up.
        with TemporaryFile() as given, TemporaryFile() as said:
            given.write(body(delivery, host=self._host, link=self._link))
            given.seek(0)
            status = self._run(given, said, environment(delivery, self._host))
            if status != 0:
                how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
                raise Refused("command-failed", f"{self._argv[0]}: {how}" + _tail(said))
        return "exit status 0"

    def _run(self, given: IO[bytes], said: IO[bytes], env: dict[str, str]) -> int:
        process = subprocess.Popen(
            self._argv, stdin=given, stdout=said, stderr=said, cwd="/", env=env, start_new_session=True
        )
        try:
            return process.wait(self._timeout_seconds)
        except subprocess.TimeoutExpired:
            raise InquestError(
                "command-timeout", f"{self._argv[0]}: not done in {self._timeout_seconds:g} s" + _tail(said)
            ) from None
        finally:
            # Also what it left behind: nobody else would end it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def environment(delivery: Delivery, host: str) -> dict[str, str]:
    """What a command sees: enough to decide without reading JSON."""
    crash = delivery.crash
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "INQUEST_EVENT": delivery.kind,
        "INQUEST_HOST": host,
        "INQUEST_SERVER": delivery.server,
        "INQUEST_UNIT": delivery.unit,
        "INQUEST_CAUSE": crash["cause"] if crash else "",
        "INQUEST_STRENGTH": (crash["strength"] or "") if crash else "",
        "INQUEST_CRASH_ID": crash["id"] if crash else "",
        "INQUEST_MESSAGE_ID": delivery.key,
    }


def _tail(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - SAID_CHARS))
    text = " ".join(said.read().decode("utf-8", "replace").split())
    return f": {text}" if text else ""
