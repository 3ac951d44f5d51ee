"""What a client has already is not sent again: an ETag on every whole answer, 304 where it is still the same; HEAD.

The tag is a digest of the answer itself: a crash changes with late evidence too, not only with its revision.
"""

from hashlib import blake2b

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STREAMS = frozenset({"/events"})


class Conditional:
    """ASGI middleware. Answers in several parts pass as they are, and so does all that is not 200."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"] in STREAMS:
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        known = _tags(Headers(scope=scope).get("if-none-match", ""))
        start: Message = {}

        async def answer(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start:
                first, start = start, {}
                headers = MutableHeaders(scope=first)
                if first["status"] == 200 and not message.get("more_body", False):
                    tag = headers.get("etag") or f'"{blake2b(message["body"], digest_size=12).hexdigest()}"'
                    headers["ETag"] = tag
                    headers.setdefault("Cache-Control", "no-cache")
                    if tag in known or "*" in known:
                        first = {**first, "status": 304}
                        del headers["content-length"]
                        message = {**message, "body": b""}
                await send(first)
            await send({**message, "body": b""} if head else message)

        await self._app({**scope, "method": "GET"}, receive, answer)


def _tags(header: str) -> set[str]:
    # A cache may have made ours a weak one; the comparison of If-None-Match is weak.
    return {tag.strip().removeprefix("W/") for tag in header.split(",")} - {""}
