"""`GET /events` as an endless sequence: it comes back by itself, with the last id it had, so that nothing is missed."""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from forensics.cli import client

SILENCE_SECONDS = 40.0
"""The daemon says something at least every 15 seconds; silence for so long is a lost connection."""
WAITS_SECONDS = (1.0, 1.0, 2.0, 5.0)
"""Between tries; the last one for all that follow."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event: its id, its kind (`crash`, `run-started` …) and its data. Kind `alive` says only that the daemon is
    there, `lost` that it is not, with the reason in data."""

    kind: str
    data: Any = None
    id: str = ""


def events(sleep: Callable[[float], object] = time.sleep) -> Iterator[Happened]:
    """What happens from now on, without an end. InquestError when the daemon answers but will not tell."""
    last_id, tries = "", 0
    while True:
        try:
            for event in _connected(last_id):
                tries = 0
                last_id = event.id or last_id
                yield event
            reason = "it closed the stream"
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        yield Happened("lost", f"inquestd does not answer at {client.address()}: {reason}")
        sleep(WAITS_SECONDS[min(tries, len(WAITS_SECONDS) - 1)])
        tries += 1


def _connected(last_id: str) -> Iterator[Happened]:
    """One connection, until it ends."""
    with closing(client.connection(client.address(), SILENCE_SECONDS)) as asking:
        asking.request("GET", "/events", headers={"Last-Event-ID": last_id} if last_id else {})
        answer = asking.getresponse()
        if answer.status != 200:
            if answer.status >= 500:
                raise http.client.HTTPException(f"status {answer.status} {answer.reason}")
            raise client.problem(answer)
        yield from parsed(line.decode("utf-8", "replace") for line in answer)


def parsed(lines: Iterable[str]) -> Iterator[Happened]:
    """Lines of text/event-stream → events. An event without data carries only its id, and is `alive`."""
    kind, event_id, data = "message", "", ""
    for line in lines:
        field, _, value = line.rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if not field and not value and not line.startswith(":"):
            yield Happened(kind, json.loads(data), event_id) if data else Happened("alive", id=event_id)
            kind, event_id, data = "message", "", ""
        elif field == "event":
            kind = value
        elif field == "id":
            event_id = value
        elif field == "data":
            data += value
