"""Asks the daemon's API: over its unix socket where this user may write to it, else over TCP."""

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from forensics import settings
from forensics.errors import InquestError

TIMEOUT_SECONDS = 10.0
SOCKET = Path("/run/inquestd/api.sock")
"""Where systemd has the daemon make it."""


def address() -> str:
    """Where the API is: $INQUEST_API, or what the settings say."""
    return os.environ.get("INQUEST_API") or settings.load().local_address


class _OverSocket(http.client.HTTPConnection):
    """The socket's mode is its guard: no token is asked for here."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def connection(base: str, timeout_seconds: float = TIMEOUT_SECONDS) -> http.client.HTTPConnection:
    """Not yet connected."""
    if "INQUEST_API" not in os.environ:
        path = settings.load().api.socket or SOCKET
        if os.access(path, os.W_OK):
            return _OverSocket(path, timeout_seconds)
    parts = urlsplit(base)
    if parts.scheme != "http" or not parts.hostname:
        raise InquestError("bad-address", f"$INQUEST_API: not of the form http://host:port: {base!r}")
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_seconds)


def get(path: str, *, timeout_seconds: float = TIMEOUT_SECONDS, **parameters: object) -> Any:
    """The JSON that the API answers. InquestError when it does not answer, or answers with a problem."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    content = fetch(f"{path}?{query}" if query else path, timeout_seconds=timeout_seconds)
    try:
        return json.loads(content)
    except ValueError as error:
        raise _silent(error) from error


def fetch(target: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> bytes:
    """The body that the API answers. InquestError as with `get`."""
    asking = connection(address(), timeout_seconds)
    try:
        asking.request("GET", target)
        answer = asking.getresponse()
        if answer.status != 200:
            raise problem(answer)
        return answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise _silent(error) from error
    finally:
        asking.close()


def _silent(error: Exception) -> InquestError:
    return InquestError(
        "daemon-silent",
        f"inquestd does not answer at {address()}: {error}",
        "Is it running? See `systemctl status inquestd`; it says more in `journalctl -u inquestd`.",
    )


def problem(answer: http.client.HTTPResponse) -> InquestError:
    """What an answer that is not good says."""
    try:
        content = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        content = {}
    return InquestError(content.get("code", "problem"), content.get("detail", answer.reason), content.get("hint", ""))
