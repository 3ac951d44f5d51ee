"""One POST of JSON. Standard library only: the daemon's memory is counted, and one POST needs no client library."""

import base64
import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from forensics.alerts.sink import Refused
from forensics.errors import InquestError

ANSWER_CHARS = 200

REFUSALS = frozenset({400, 413, 415, 422, 500, 501})
"""Answers that speak of the message, or fail on it; not of a receiver that is down or busy, nor of a right to send."""


class Poster:
    """Posts to one URL. Its user and password become Basic authorization, unless `headers` have another."""

    def __init__(self, url: str, *, timeout_seconds: float, headers: Mapping[str, str]) -> None:
        self._url = urlsplit(url)
        self._timeout_seconds = timeout_seconds
        self._headers = {"Content-Type": "application/json", "User-Agent": "inquestd"}
        if self._url.username is not None:
            pair = f"{unquote(self._url.username)}:{unquote(self._url.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._headers |= headers

    def post(self, body: bytes, headers: Mapping[str, str], *, path: str = "") -> str:
        """The status that the receiver answered; InquestError when it is not one of success. `path` is put behind the
        URL's own."""
        url = self._url._replace(scheme="", netloc="", fragment="")
        target = url._replace(path=url.path.rstrip("/") + path) if path else url
        connection = self._connect()
        try:
            connection.request("POST", target.geturl() or "/", body, {**self._headers, **headers})
            answer = connection.getresponse()
            said = answer.read(ANSWER_CHARS).decode("utf-8", "replace").strip()
        finally:
            connection.close()
        status = f"{answer.status} {answer.reason}"
        if not 200 <= answer.status < 300:
            # Redirects too: following one would turn the POST into a GET, or send a secret elsewhere.
            kind = Refused if answer.status in REFUSALS else InquestError
            raise kind("alert-refused", f"the receiver answered {status}" + (f": {said}" if said else ""))
        return status

    def _connect(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, self._url.port, timeout=self._timeout_seconds, context=context)
        return http.client.HTTPConnection(host, self._url.port, timeout=self._timeout_seconds)
