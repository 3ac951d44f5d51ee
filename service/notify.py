"""``STATUS=``, ``WATCHDOG=`` and their like for PID 1 (sd_notify(3)). Standard library only."""

from __future__ import annotations

import os
import socket
import sys

__all__ = ["notify", "status"]


def status(text: str) -> None:
    """Show `text` as the unit's status line; does nothing where systemd does not listen."""
    notify(f"STATUS={text}")


def notify(*assignments: str) -> None:
    """Send ``KEY=value`` assignments; does nothing where systemd does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto("\n".join(assignments).encode(), address.replace("@", "\0", 1))
    except OSError as error:
        print(f"<4>inquest: {assignments[0].partition('=')[0]} not sent to systemd: {error}", file=sys.stderr)
