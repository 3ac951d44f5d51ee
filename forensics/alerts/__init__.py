"""Tells people: stored first, then sent, until it has arrived. One crash, one alert; a dead sink holds up no other."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from forensics.alerts.alertmanager import AlertmanagerSink
from forensics.alerts.apprise import AppriseSink
from forensics.alerts.command import CommandSink
from forensics.alerts.courier import Courier
from forensics.alerts.decide import Manner
from forensics.alerts.journal import JournalSink
from forensics.alerts.otlp import OtlpSink
from forensics.alerts.post import Poster
from forensics.alerts.routing import Addressee, Route
from forensics.alerts.sink import Sink
from forensics.alerts.webhook import WebhookSink, signing_key
from forensics.errors import SettingsError
from forensics.settings import Secret, Settings
from forensics.settings.alerts import Alertmanager, Channel, Otlp, Webhook

__all__ = ["Addressee", "Courier", "Sink", "addressees", "sinks"]


def addressees(settings: Settings) -> tuple[Addressee, ...]:
    """Every channel of these settings, as what decides what it is told."""
    alerts = settings.alerts
    routes = tuple(
        Route(
            families=frozenset(route.families),
            causes=frozenset(route.causes),
            servers=route.servers,
            strengths=frozenset(route.strengths),
            kinds=frozenset(route.kinds),
            to=None if route.to is None else frozenset(route.to),
        )
        for route in alerts.routes
    )
    manner = Manner(gather_seconds=alerts.gather_seconds, stays_seconds=alerts.stays_ready_seconds)
    channels: dict[str, tuple[Channel, ...]] = {
        "webhook": alerts.webhooks,
        "alertmanager": alerts.alertmanagers,
        "apprise": alerts.apprise,
        "command": alerts.commands,
    }
    return (
        # A record of each death, for whoever looks them up.
        *(
            Addressee(name=name, type=type, manner=Manner(stays_seconds=alerts.stays_ready_seconds), everything=True)
            for name, type in ((JournalSink.name, "journal"), *((collector.name, "otlp") for collector in alerts.otlp))
        ),
        *(
            Addressee(name=channel.name, type=type, manner=manner, routes=routes)
            for type, several in channels.items()
            for channel in several
        ),
    )


def sinks(settings: Settings, only: str | None = None) -> tuple[Sink, ...]:
    """Every sink of these settings, or the one of that name. SettingsError when a secret cannot be read."""
    return tuple(_sinks(settings, only))


def _sinks(settings: Settings, only: str | None) -> Iterator[Sink]:
    alerts, host, link = settings.alerts, socket.gethostname(), settings.link

    def wanted(name: str) -> bool:
        return only in (None, name)

    if wanted(JournalSink.name):
        yield JournalSink(host=host, link=link)
    for webhook in alerts.webhooks:
        if wanted(webhook.name):
            key = signing_key(webhook.signing_key.read(), webhook.name) if webhook.signing_key else None
            yield WebhookSink(webhook.name, _poster(webhook), host=host, link=link, signing_key=key)
    for alertmanager in alerts.alertmanagers:
        if wanted(alertmanager.name):
            yield AlertmanagerSink(alertmanager.name, _poster(alertmanager), host=host, link=link)
    for collector in alerts.otlp:
        if wanted(collector.name):
            yield OtlpSink(collector.name, _poster(collector), host=host, link=link)
    for service in alerts.apprise:
        if wanted(service.name):
            yield AppriseSink(service.name, service.url.read().strip(), host=host, link=link)
    for command in alerts.commands:
        if wanted(command.name):
            yield CommandSink(command.name, command.argv, timeout_seconds=command.timeout_seconds, host=host, link=link)


def _poster(channel: Webhook | Alertmanager | Otlp) -> Poster:
    """Secrets are read now, so that a wrong path is told at start."""
    url = channel.url.read().strip() if isinstance(channel.url, Secret) else channel.url
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise SettingsError("alert-url", f"channel {channel.name!r}: its secret is not an http:// or https:// URL")
    headers = {name: secret.read() for name, secret in channel.headers.items()}
    return Poster(url, timeout_seconds=channel.timeout_seconds, headers=headers)
