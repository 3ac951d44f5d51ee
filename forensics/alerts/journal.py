"""The journal: a structured record for each verdict, found with `journalctl -t inquestd` or by its message id.

`journalctl -u sglang-demo` shows only what that unit or root said about it, and the daemon is neither; search for
`INQUEST_UNIT=sglang-demo.service`.
"""

from collections.abc import Callable
from typing import Any

from systemd import journal

from forensics.report import message
from forensics.shapes import CrashShape
from forensics.store import Delivery

CRASH_JUDGED = "dda9a1b77c244a0fb78984335814e6ea"
"""MESSAGE_ID of the first verdict on a crash."""
VERDICT_CHANGED = "47b435beabc5419cb0533073a6b8cd69"
"""MESSAGE_ID of a later verdict that differs."""

ERROR, WARNING, NOTICE = 3, 4, 5
"""syslog's priorities."""


def fields(delivery: Delivery) -> dict[str, str]:
    """The record's fields beside MESSAGE. Stable names; INQUEST_STRENGTH is empty when nothing is decisive."""
    crash = delivery.crash
    return {
        "MESSAGE_ID": VERDICT_CHANGED if delivery.amends else CRASH_JUDGED,
        "PRIORITY": str(_priority(crash, amends=delivery.amends)),
        "SYSLOG_IDENTIFIER": "inquestd",
        "INQUEST_UNIT": crash["unit"],
        "INQUEST_CAUSE": crash["cause"],
        "INQUEST_FAMILY": crash["family"],
        "INQUEST_STRENGTH": crash["strength"] or "",
        "INQUEST_CRASH_ID": crash["id"],
        "INQUEST_FINGERPRINT": crash["fingerprint"],
        "INQUEST_INVOCATION_ID": crash["invocation_id"],
        "INQUEST_REVISION": str(crash["revision"]),
    }


def _priority(crash: CrashShape, *, amends: bool) -> int:
    if amends or not crash["is_crash"]:
        return NOTICE
    return WARNING if crash["cause"] == "stop-timeout" else ERROR


class JournalSink:
    """`send` is systemd.journal.send, which hands the record to journald's socket."""

    name = "journal"

    def __init__(self, *, host: str, link: str, send: Callable[..., Any] = journal.send) -> None:
        self._host = host
        self._link = link
        self._send = send

    def send(self, delivery: Delivery) -> None:
        text = message(delivery.crash, host=self._host, link=self._link, amends=delivery.amends)
        self._send(text, **fields(delivery))
