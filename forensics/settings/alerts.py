"""`[alerts]`: who is told, of what, and how often."""

import difflib
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from forensics.model import Family
from forensics.settings.values import HttpUrl, HttpUrlOrSecret, Secret, Table

JOURNAL = "journal"
"""The name of the channel that is always there."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Headers = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], Secret]
Timeout = Annotated[float, Field(gt=0, le=120)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


def _absolute(argv: tuple[str, ...]) -> tuple[str, ...]:
    if not argv[0].startswith("/"):
        raise ValueError('the first word is the program with its whole path: ["/usr/local/bin/page-me", "--now"]')
    return argv


class Channel(Table):
    """Somebody who is told. The name tells deliveries apart."""

    name: Name


class Webhook(Channel):
    """Where messages are POSTed as JSON. `headers` go with each request; their values come from files or credentials,
    since they are secrets as a rule. The URL may come from there too. With `signing_key` each request is signed as
    Standard Webhooks has it."""

    url: HttpUrlOrSecret
    timeout_seconds: Timeout = 10.0
    headers: Headers = Field(default_factory=dict)
    signing_key: Secret | None = None


class Alertmanager(Channel):
    """An Alertmanager, by the address below which its API is."""

    url: HttpUrlOrSecret
    timeout_seconds: Timeout = 10.0
    headers: Headers = Field(default_factory=dict)


class Otlp(Channel):
    """An OpenTelemetry collector, by the address below which it takes `/v1/logs`. As the journal, it is told
    everything."""

    url: HttpUrlOrSecret
    timeout_seconds: Timeout = 10.0
    headers: Headers = Field(default_factory=dict)


class Apprise(Channel):
    """A URL as Apprise has it, for mail, Slack, Telegram, ntfy … It holds passwords, so it comes from a file or a
    credential."""

    url: Secret


class Command(Channel):
    """A command that is run for each message, as the daemon's user."""

    argv: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_absolute)]
    timeout_seconds: Timeout = 30.0


class Route(Table):
    """Of what fits every condition that is given, only the channels in `to` are told; all of them without `to`."""

    families: tuple[Family, ...] = ()
    causes: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    strengths: tuple[Literal["confirmed", "likely", "none"], ...] = ()
    kinds: tuple[Literal["crash", "start-limit", "hang"], ...] = ()
    to: tuple[str, ...] | None = None

    @field_validator("causes")
    @classmethod
    def _known(cls, causes: tuple[str, ...]) -> tuple[str, ...]:
        if causes:
            # Loaded only where somebody names causes: every command reads the settings.
            from forensics.rules import RULES

            known = ["unknown", *(rule.cause for rule in RULES)]
            for cause in causes:
                if cause not in known:
                    raise ValueError(f"no cause {cause!r}; {_meant(cause, known)}")
        return causes


class Alerts(Table):
    """The journal is always told. `link` is the address of the API as people reach it, put into each message.

    Repeats of one death on one server are gathered for `gather_seconds`, the first time that long, the second time as
    the second number says, and so on, the last again and again; an empty list tells each by itself. A server is told to
    be back when it has been ready for `stays_ready_seconds`.
    """

    link: HttpUrl | None = None
    gather_seconds: tuple[Seconds, ...] = (600.0, 3600.0, 21_600.0, 86_400.0)
    stays_ready_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    webhooks: tuple[Webhook, ...] = ()
    alertmanagers: tuple[Alertmanager, ...] = ()
    otlp: tuple[Otlp, ...] = ()
    apprise: tuple[Apprise, ...] = ()
    commands: tuple[Command, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def names(self) -> list[str]:
        """The channels' names, as the file has them."""
        channels: tuple[tuple[Channel, ...], ...] = (
            self.webhooks,
            self.alertmanagers,
            self.otlp,
            self.apprise,
            self.commands,
        )
        return [channel.name for several in channels for channel in several]

    @model_validator(mode="after")
    def _names_differ(self) -> "Alerts":
        for name in self.names:
            if self.names.count(name) > 1 or name == JOURNAL:
                raise ValueError(f"the channel name {name!r} is taken; names tell deliveries apart")
        return self

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> "Alerts":
        for number, route in enumerate(self.routes):
            for name in route.to or ():
                if name == JOURNAL:
                    raise ValueError(f"routes[{number}].to: the journal is told everything, it needs no route")
                if name not in self.names:
                    raise ValueError(f"routes[{number}].to: no channel {name!r}; {_meant(name, self.names)}")
        return self


def _meant(given: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(given, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}allowed: {', '.join(sorted(names)) or 'none, for there is no channel'}"
