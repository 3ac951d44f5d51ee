"""One structured record into the journal, by its native protocol: a datagram of ``KEY=value`` lines.

Instead of systemd-python, whose import costs as much as a whole record here, and which cannot be pointed at another
socket. Standard library only.
"""

from __future__ import annotations

import fcntl
import socket
import time
from collections.abc import Mapping

__all__ = ["JOURNAL_SOCKET", "send", "serialized"]

JOURNAL_SOCKET = "/run/systemd/journal/socket"
SEND_SECONDS = 2.0
TAKEN_SECONDS = 0.5
_SIOCOUTQ = 0x5411  # bytes sent that the other side has not read yet


def serialized(fields: Mapping[str, str]) -> bytes:
    """The datagram: ``KEY=value``, or the value's length in front of it where it has line breaks."""
    lines: list[bytes] = []
    for key, value in fields.items():
        name, data = key.encode("ascii"), value.encode("utf-8", "surrogateescape")
        if b"\n" in data:
            lines.append(name + b"\n" + len(data).to_bytes(8, "little") + data)
        else:
            lines.append(name + b"=" + data)
    return b"\n".join(lines) + b"\n"


def send(fields: Mapping[str, str], address: str = JOURNAL_SOCKET) -> None:
    """Send one record and see it taken, for journald looks up who sent it only then. Raises ``OSError``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(SEND_SECONDS)
        sock.sendto(serialized(fields), address)
        until = time.monotonic() + TAKEN_SECONDS
        while int.from_bytes(fcntl.ioctl(sock, _SIOCOUTQ, bytes(4)), "little") and time.monotonic() < until:
            time.sleep(0.001)
