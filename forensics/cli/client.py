"""Asks the daemon's API."""

import http.client
import json
import os
from typing import Any
from urllib.parse import urlencode, urlsplit

from forensics import settings
from forensics.errors import InquestError

TIMEOUT_SECONDS = 10.0


def address() -> str:
    """Where the API is: $INQUEST_API, or what the settings say."""
    return os.environ.get("INQUEST_API") or settings.load().local_address


def get(path: str, **parameters: object) -> Any:
    """The JSON that the API answers. InquestError when it does not answer, or answers with a problem."""
    base = address()
    parts = urlsplit(base)
    if parts.scheme != "http" or not parts.hostname:
        raise InquestError("bad-address", f"$INQUEST_API: not of the form http://host:port: {base!r}")
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"{path}?{query}" if query else path)
        answer = connection.getresponse()
        content = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InquestError(
            "daemon-silent",
            f"inquestd does not answer at {base}: {error}",
            "Is it running? See `systemctl status inquestd`; it says more in `journalctl -u inquestd`.",
        ) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise InquestError(
            content.get("code", "problem"), content.get("detail", answer.reason), content.get("hint", "")
        )
    return content
