"""Channels for tests that are about something else: each death is told by itself, to everybody."""

from forensics.alerts.decide import Manner
from forensics.alerts.routing import Addressee


def everybody(*names: str) -> tuple[Addressee, ...]:
    return tuple(Addressee(name=name, type="webhook", manner=Manner(), everything=True) for name in names)
