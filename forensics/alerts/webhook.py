"""A webhook: one POST of JSON a verdict, delivered when the receiver answers 2xx.

Body: `{"event": "crash" | "verdict-changed", "text": …, "host": …, "link": …, "crash": {…}}`; `text` is what chat
services show, `crash` the shape of `GET /crashes/{id}`. `Idempotency-Key` is the same for each try of one message.
"""

import base64
import http.client
import json
import ssl
from urllib.parse import SplitResult, unquote, urlsplit

from forensics.errors import InquestError, SettingsError
from forensics.report import message
from forensics.settings import Secret, Webhook
from forensics.store import Delivery

ANSWER_CHARS = 200


class WebhookSink:
    """Standard library only: the daemon's memory is counted, and one POST needs no client library."""

    def __init__(
        self, name: str, url: str, *, timeout_seconds: float, headers: dict[str, str], host: str, link: str
    ) -> None:
        self.name = name
        self._url = urlsplit(url)
        self._timeout_seconds = timeout_seconds
        self._headers = {**_basic_authorization(self._url), **headers}
        self._host = host
        self._link = link

    @classmethod
    def of(cls, webhook: Webhook, *, host: str, link: str) -> "WebhookSink":
        """From the settings; secrets are read now, so that a wrong path is told at start."""
        url = webhook.url.read() if isinstance(webhook.url, Secret) else webhook.url
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise SettingsError(
                "webhook-url", f"webhook {webhook.name!r}: its secret is not an http:// or https:// URL"
            )
        return cls(
            webhook.name,
            url,
            timeout_seconds=webhook.timeout_seconds,
            headers={name: secret.read() for name, secret in webhook.headers.items()},
            host=host,
            link=link,
        )

    def send(self, delivery: Delivery) -> None:
        body = json.dumps(
            {
                "event": "verdict-changed" if delivery.amends else "crash",
                "text": message(delivery.crash, host=self._host, link=self._link, amends=delivery.amends),
                "host": self._host,
                "link": f"{self._link}/crashes/{delivery.crash['id']}",
                "crash": delivery.crash,
            }
        ).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "inquestd",
            "Idempotency-Key": delivery.key,
            **self._headers,
        }
        connection = self._connect()
        try:
            connection.request(
                "POST", self._url._replace(scheme="", netloc="", fragment="").geturl() or "/", body, headers
            )
            answer = connection.getresponse()
            said = answer.read(ANSWER_CHARS).decode("utf-8", "replace")
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            # Redirects too: following one would turn the POST into a GET, or send a secret elsewhere.
            raise InquestError("webhook-refused", f"the receiver answered {answer.status} {answer.reason}: {said}")

    def _connect(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, self._url.port, timeout=self._timeout_seconds, context=context)
        return http.client.HTTPConnection(host, self._url.port, timeout=self._timeout_seconds)


def _basic_authorization(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
