"""What carries a message to its receiver."""

from typing import Protocol

from forensics.errors import InquestError
from forensics.store import Delivery


class Sink(Protocol):
    """Where alerts go. `send` returns when the message has arrived, with what the receiver answered, and raises
    anything when it has not: `Refused` when it is this very message that the receiver does not take."""

    @property
    def name(self) -> str: ...

    def send(self, delivery: Delivery) -> str: ...


class Refused(InquestError):
    """The receiver is there, and does not take this very message. It is tried again like any other, but when that has
    happened a few times it holds up no other."""
