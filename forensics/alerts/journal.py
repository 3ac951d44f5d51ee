"""The journal: a structured record for each message, found with `journalctl -t inquestd` or by its message id, and
explained by `journalctl -x` (inquest.catalog).

`journalctl -u sglang-demo` shows only what that unit or root said about it, and the daemon is neither; search for
`INQUEST_UNIT=sglang-demo.service`.
"""

from collections.abc import Callable
from typing import Any

from systemd import journal

from forensics.alerts.rendering import plain
from forensics.alerts.routing import QUIET
from forensics.alerts.words import TEST, words
from forensics.store import Delivery
from forensics.store.telling import AMENDED, ANSWERING, CRASH, HANG, RECOVERED, START_LIMIT

MESSAGE_IDS = {
    CRASH: "dda9a1b77c244a0fb78984335814e6ea",
    AMENDED: "47b435beabc5419cb0533073a6b8cd69",
    START_LIMIT: "0e937215af3247e5ac0f13670677b530",
    RECOVERED: "f1bc0bee9a89459c936e6a05906585bb",
    HANG: "b167a4ecbdf7482abae16911d02dcd0f",
    ANSWERING: "1028844866e048cd9383d8176c0831d0",
    TEST: "d6990a9ea0c54ad882e387291049c206",
}

ALERT, ERROR, WARNING, NOTICE, INFO = 1, 3, 4, 5, 6
"""syslog's priorities."""

_PRIORITIES = {AMENDED: NOTICE, START_LIMIT: ALERT, RECOVERED: NOTICE, HANG: WARNING, ANSWERING: NOTICE, TEST: INFO}


def fields(delivery: Delivery) -> dict[str, str]:
    """The record's fields beside MESSAGE. Stable names; INQUEST_STRENGTH is empty when nothing is decisive."""
    crash = delivery.crash
    found = {
        "MESSAGE_ID": MESSAGE_IDS[delivery.kind],
        "PRIORITY": str(_priority(delivery)),
        "SYSLOG_IDENTIFIER": "inquestd",
        "INQUEST_EVENT": delivery.kind,
        "INQUEST_UNIT": delivery.unit,
    }
    if crash is None:
        return {**found, "INQUEST_INVOCATION_ID": str(delivery.details.get("invocation_id", ""))}
    return {
        **found,
        "INQUEST_CAUSE": crash["cause"],
        "INQUEST_FAMILY": crash["family"],
        "INQUEST_STRENGTH": crash["strength"] or "",
        "INQUEST_CRASH_ID": crash["id"],
        "INQUEST_FINGERPRINT": crash["fingerprint"],
        "INQUEST_INVOCATION_ID": crash["invocation_id"],
        "INQUEST_REVISION": str(crash["revision"]),
    }


def _priority(delivery: Delivery) -> int:
    if delivery.kind in _PRIORITIES:
        return _PRIORITIES[delivery.kind]
    return WARNING if delivery.crash is not None and delivery.crash["cause"] in QUIET else ERROR


class JournalSink:
    """`send` is systemd.journal.send, which hands the record to journald's socket."""

    name = "journal"

    def __init__(self, *, host: str, link: str, send: Callable[..., Any] = journal.send) -> None:
        self._host = host
        self._link = link
        self._send = send

    def send(self, delivery: Delivery) -> str:
        text = plain(words(delivery, host=self._host, link=self._link))
        self._send(text, **fields(delivery))
        return "journald has taken it"
