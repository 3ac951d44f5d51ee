"""Alertmanager, API v2: a death is an alert that stands until the server is ready again.

An alert is known by its labels, so nothing is among them that differs from one death to the next of the same cause:
who died, where, of what. A cause that changes, and a server that is back, resolve what was told before with the labels
that it was told with. A crash is a moment, an alert a state: without `endsAt` Alertmanager would call it resolved after
five minutes.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from forensics.alerts.post import Poster
from forensics.alerts.routing import QUIET
from forensics.alerts.words import TEST, Words, words
from forensics.public import usec, when
from forensics.store import Delivery
from forensics.store.delivery import Earlier
from forensics.store.telling import AMENDED, CRASH, HANG, START_LIMIT

STANDS = timedelta(days=7)
"""For so long an alert stands when nothing more is heard of the server."""
TEST_STANDS = timedelta(minutes=5)

PATH = "/api/v2/alerts"
DIED = "InquestServerDied"
_NAMES = {HANG: "InquestServerHangs", START_LIMIT: "InquestServerGivenUp", TEST: "InquestTest"}


class AlertmanagerSink:
    def __init__(self, name: str, poster: Poster, *, host: str, link: str) -> None:
        self.name = name
        self._poster = poster
        self._host, self._link = host, link

    def send(self, delivery: Delivery) -> str:
        alerts = self.alerts(delivery, datetime.now(UTC))
        if not alerts:
            return "nothing of it stands"
        return self._poster.post(json.dumps(alerts).encode(), {}, path=PATH)

    def alerts(self, delivery: Delivery, now: datetime) -> list[dict[str, Any]]:
        """What is posted: the alert that stands now, and those that do not stand any more."""
        said = words(delivery, host=self._host, link=self._link)
        before = [(self._labels(delivery, one.kind, one.cause, one.family), one) for one in delivery.earlier]
        cause, family = (str(delivery.details.get(name, "")) for name in ("cause", "family"))
        mine = self._labels(delivery, delivery.kind, cause, family)
        found = []
        if delivery.down:
            # Of the same labels it is one alert, whose beginning stays.
            since_usec = min([delivery.since_usec, *(one.since_usec for labels, one in before if labels == mine)])
            found.append(_alert(mine, said, since_usec, now + (STANDS if delivery.kind != TEST else TEST_STANDS)))
        for labels, one in before:
            if _is_over(one, delivery) and labels not in [alert["labels"] for alert in found]:
                found.append(_alert(labels, said, one.since_usec, now))
        return found

    def _labels(self, delivery: Delivery, kind: str, cause: str, family: str) -> dict[str, str]:
        labels = {
            "alertname": _NAMES.get(kind, DIED),
            "instance": self._host,
            "server": delivery.server,
            "unit": delivery.unit,
            "severity": "warning" if kind in (HANG, TEST) or cause in QUIET else "critical",
            "cause": cause,
            "family": family,
        }
        # Alertmanager takes an empty label for none.
        return {name: value for name, value in labels.items() if value}


def _is_over(earlier: Earlier, delivery: Delivery) -> bool:
    """A server that is back has nothing left standing, one that died does not hang, a corrected cause was none."""
    if not delivery.down:
        return True
    if earlier.kind == HANG:
        return delivery.kind != HANG
    return delivery.kind == AMENDED and earlier.kind in (CRASH, AMENDED)


def _alert(labels: dict[str, str], said: Words, since_usec: int, ends: datetime) -> dict[str, Any]:
    annotations = {
        "summary": said.sentence,
        "description": "\n".join(part for part in (said.blame, said.history, said.todo, said.line) if part),
    }
    return {
        "labels": labels,
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": when(min(since_usec, usec(ends))),
        "endsAt": when(usec(ends)),
        "generatorURL": said.link,
    }
