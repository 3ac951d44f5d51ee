"""Answers only to this machine's own names.

The API has no password, since it listens on loopback. A page in a browser here could still reach it by a name that its
owner points to 127.0.0.1 (DNS rebinding); such a request carries that name in Host.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from forensics.api.problems import problem

LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)


class LoopbackHosts:
    """ASGI middleware: 421 for any other Host, and for none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if LOOPBACK.fullmatch(host):
            await self._app(scope, receive, send)
            return
        refusal = problem(
            421,
            "host-not-loopback",
            f"this API answers to localhost, 127.0.0.1 and [::1], not to {host!r}",
            instance=scope["path"],
            hint="A proxy before it should set Host to localhost.",
        )
        await refusal(scope, receive, send)
