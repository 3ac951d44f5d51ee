"""Tells people: stored first, then sent, until it has arrived. One crash, one alert; a dead sink holds up no other."""

import socket

from forensics.alerts.courier import Courier, Sink
from forensics.alerts.journal import JournalSink
from forensics.alerts.webhook import WebhookSink
from forensics.settings import Settings

__all__ = ["Courier", "Sink", "sinks"]


def sinks(settings: Settings) -> tuple[Sink, ...]:
    """Every sink of these settings. SettingsError when a secret cannot be read."""
    host, link = socket.gethostname(), settings.link
    return (
        JournalSink(host=host, link=link),
        *(WebhookSink.of(webhook, host=host, link=link) for webhook in settings.alerts.webhooks),
    )
