"""Whatever Apprise speaks: mail, Slack, Discord, Telegram, ntfy, PagerDuty and a hundred more, each by its URL.

Apprise is an optional part of the installation and is imported only where a channel needs it: the daemon's memory is
counted. Its URLs hold passwords, so that none is ever shown: not in a log, not in an error.
"""

import importlib
import logging
import re
from typing import Any
from urllib.parse import unquote

from forensics.alerts.post import REFUSALS
from forensics.alerts.rendering import chat, html, markdown
from forensics.alerts.routing import QUIET
from forensics.alerts.sink import Refused
from forensics.alerts.words import TEST, words
from forensics.errors import InquestError, SettingsError
from forensics.redact import REMOVED
from forensics.report import cut
from forensics.store import Delivery
from forensics.store.telling import AMENDED, ANSWERING, FOLDED, HANG, RECOVERED

_RENDERED = (("html", html), ("markdown", markdown), ("text", chat))
"""The first that a service takes is what it gets: there everything from outside is escaped."""

_TYPES = {
    RECOVERED: "success",
    ANSWERING: "success",
    AMENDED: "info",
    TEST: "info",
    FOLDED: "warning",
    HANG: "warning",
}
SHORTEST_SECRET = 4
TIMEOUT_SECONDS = 60.0


class AppriseSink:
    """One Apprise URL."""

    def __init__(self, name: str, url: str, *, host: str, link: str) -> None:
        self.name = name
        self._host, self._link = host, link
        # Which part is the secret differs by service: in some it stands where others have their host.
        pieces = {piece for part in re.split(r"[/?&=:@#,]+", url)[1:] for piece in (part, unquote(part))}
        self._secrets = sorted((piece for piece in pieces if len(piece) >= SHORTEST_SECRET), key=len, reverse=True)
        apprise = _apprise(name)
        self._notify = apprise.Apprise()
        if not self._notify.add(url):
            raise SettingsError(
                "apprise-url",
                f"apprise channel {name!r}: Apprise does not know its URL (which is not shown, since it is a secret)",
                "The forms of all services: https://github.com/caronc/apprise/wiki",
            )
        service = self._notify[0]
        if "overflow=" not in url:
            service.overflow_mode = "truncate"  # a service that takes less would refuse it
        self._format, self._render = _rendering(service.notify_format)

    def send(self, delivery: Delivery) -> str:
        said = words(delivery, host=self._host, link=self._link)
        logged: list[tuple[str, str]] = []
        sent = self._notify.notify(
            title=said.title,
            body=self._render(said),
            body_format=self._format,
            notify_type=_type(delivery),
            timeout=TIMEOUT_SECONDS,
            log_callback=lambda entry, service: logged.append((entry.level, entry.message)),
            log_level=logging.DEBUG,
        )
        if not sent:
            # The reason is said in passing: what was caught, beside the warning that something was.
            why = [text for level, text in logged if level != "INFO" and (level != "DEBUG" or "Exception" in text)]
            said_why = cut(self._unsecret("; ".join(why))) or "Apprise says no more"
            status = re.search(r"\berror=(\d{3})\b", said_why)
            kind = Refused if status and int(status[1]) in REFUSALS else InquestError
            raise kind("apprise-failed", said_why)
        return "Apprise has sent it"

    def _unsecret(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        return text


def _apprise(channel: str) -> Any:
    try:
        apprise = importlib.import_module("apprise")
    except ImportError:
        raise SettingsError(
            "apprise-missing",
            f"apprise channel {channel!r}: the package `apprise` is not installed",
            "/opt/inquest/venv/bin/pip install 'apprise>=2.3'",
        ) from None
    # Its log lines name URLs; what it says of a failure is asked for with each message.
    logger = logging.getLogger("apprise")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    return apprise


def _rendering(formats: Any) -> tuple[str, Any]:
    """The best of the formats that a service takes, one or several, and how that is written."""
    several = formats if isinstance(formats, list | tuple) else (formats,)
    taken = {str(getattr(one, "value", one)) for one in several}
    return next(((name, render) for name, render in _RENDERED if name in taken), ("text", chat))


def _type(delivery: Delivery) -> str:
    """Apprise's kind of a message, which gives it its colour or its priority."""
    mild = delivery.crash is not None and delivery.crash["cause"] in QUIET
    return _TYPES.get(delivery.kind, "warning" if mild else "failure")
