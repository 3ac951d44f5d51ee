"""What machines are told: the JSON that a webhook is sent and that a command reads.

`{"event", "title", "text", "host", "unit", "server", "count", "since", "until", "back_at", "link", "crash",
"details"}`: `event` is `crash`, `amended`, `folded`, `start-limit`, `recovered`, `hang`, `answering` or `test`; `text`
what chat services show; `count` how many deaths it tells of, from `since` to `until`; `back_at` when the server was
ready again, null while it is not; `crash` the shape of `GET /crashes/{id}`, null where a living run is told of, of
which `details` say more; they are empty otherwise.
"""

import json

from forensics.alerts.rendering import chat
from forensics.alerts.words import words
from forensics.public import when
from forensics.store import Delivery


def body(delivery: Delivery, *, host: str, link: str) -> bytes:
    said = words(delivery, host=host, link=link)
    return json.dumps(
        {
            "event": delivery.kind,
            "title": said.title,
            "text": chat(said),
            "host": host,
            "unit": delivery.unit,
            "server": delivery.server,
            "count": delivery.count,
            "since": when(delivery.since_usec),
            "until": when(delivery.until_usec),
            "back_at": when(delivery.back_usec) if delivery.back_usec else None,
            "link": said.link,
            "crash": delivery.crash,
            "details": delivery.details if delivery.crash is None else {},
        }
    ).encode()
