"""A webhook: one POST of JSON a message (`forensics.alerts.body`), delivered when the receiver answers 2xx.

`webhook-id` (and `Idempotency-Key`) is the same for each try of one message. With a signing key there is
`webhook-signature` as Standard Webhooks has it: `v1,` and the HMAC-SHA256 over `id.timestamp.body` in base64, the
timestamp being that of `webhook-timestamp`, in seconds since the epoch.
"""

import base64
import binascii
import hashlib
import hmac
import time

from forensics.alerts.body import body
from forensics.alerts.post import Poster
from forensics.errors import SettingsError
from forensics.store import Delivery

SHORTEST_KEY_BYTES = 24
KEY_PREFIX = "whsec_"


class WebhookSink:
    def __init__(self, name: str, poster: Poster, *, host: str, link: str, signing_key: bytes | None = None) -> None:
        self.name = name
        self._poster = poster
        self._host, self._link = host, link
        self._signing_key = signing_key

    def send(self, delivery: Delivery) -> str:
        content = body(delivery, host=self._host, link=self._link)
        headers = {"Idempotency-Key": delivery.key, "webhook-id": delivery.key}
        if self._signing_key is not None:
            timestamp = str(int(time.time()))
            headers["webhook-timestamp"] = timestamp
            headers["webhook-signature"] = signature(self._signing_key, delivery.key, timestamp, content)
        return self._poster.post(content, headers)


def signature(key: bytes, message_id: str, timestamp: str, content: bytes) -> str:
    signed = b".".join((message_id.encode(), timestamp.encode(), content))
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def signing_key(text: str, channel: str) -> bytes:
    """The key in a secret of the form `whsec_<base64>`. SettingsError, without the secret, when it is none."""
    try:
        key = base64.b64decode(text.strip().removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < SHORTEST_KEY_BYTES:
        raise SettingsError(
            "signing-key",
            f"{channel}: its signing key is not base64 of {SHORTEST_KEY_BYTES} bytes or more",
            "Make one: echo whsec_$(openssl rand -base64 32)",
        )
    return key
