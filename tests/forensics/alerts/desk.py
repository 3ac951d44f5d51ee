"""One channel and one server as the store has them, with a clock of the test's own."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from forensics.alerts.decide import Manner, decide
from forensics.store.telling import DELIVERED, WAITING, Happening, Message, Past

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
MANNER = Manner(gather_seconds=(600.0, 3600.0, 21_600.0, 86_400.0), stays_seconds=30.0)


class Desk:
    """`told` are the messages that have arrived, each with the time at which it went out."""

    def __init__(self, manner: Manner = MANNER) -> None:
        self.manner = manner
        self.now_usec = 0
        self.served_until_usec = 0
        self.messages: list[Message] = []
        self.told: list[tuple[int, Message]] = []

    def happens(self, kind: str, at_usec: int | None = None, number: int = 1, **changes: Any) -> None:
        """Something happened now, or at an earlier time."""
        given: dict[str, Any] = {
            "kind": kind,
            "unit": "sglang-demo.service",
            "invocation_id": f"{number:032x}",
            "at_usec": self.now_usec if at_usec is None else at_usec,
            "now_usec": self.now_usec,
            "revision": 1,
            "cause": "python-exception",
            "family": "traceback",
            "strength": "confirmed",
            "fingerprint": "f1",
        }
        wanted = changes.pop("wanted", True)
        past = Past(messages=tuple(reversed(self.messages)), served_until_usec=self.served_until_usec)
        self.write(decide(Happening(**(given | changes)), past, self.manner, wanted=wanted))

    def write(self, decided: Iterable[Message]) -> None:
        for message in decided:
            if message.id:
                self.messages[message.id - 1] = message
            else:
                self.messages.append(replace(message, id=len(self.messages) + 1))

    def passes(self, usec: int, *, arrives: bool = True) -> None:
        """Time goes by; what is due meanwhile is sent, and arrives or may have."""
        self.now_usec += usec
        waiting = [one for one in self.messages if one.state == WAITING and one.due_usec <= self.now_usec]
        for message in sorted(waiting, key=lambda one: (one.due_usec, one.id)):
            sent = replace(message, tried=True, state=DELIVERED if arrives else WAITING)
            self.messages[message.id - 1] = sent
            if arrives:
                self.told.append((message.due_usec, sent))

    @property
    def kinds(self) -> list[str]:
        return [message.kind for _, message in self.told]

    def counts(self, kind: str) -> list[int]:
        return [message.count for _, message in self.told if message.kind == kind]
