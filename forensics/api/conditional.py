"""What a client has already is not sent again: an ETag on every whole answer, 304 where it is still the same; HEAD.
And what was answered already is not made again, as long as the store has not changed.

The tag is a digest of the answer itself: a crash changes with late evidence too, not only with its revision.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STREAMS = frozenset({"/events"})
MOST_BYTES = 4 * 2**20
"""So much of the last answers is kept, of each kind."""

Key = tuple[str, bytes, str]


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole answer: its two messages, and its tag."""

    start: Message
    body: Message
    tag: str

    def messages(self, known: set[str], *, head: bool) -> tuple[Message, Message]:
        """What is sent to a client that has what it has. Copies, since who passes them on adds headers."""
        if self.tag not in known and "*" not in known:
            return {**self.start}, {**self.body, "body": b""} if head else self.body
        headers = [pair for pair in self.start["headers"] if pair[0] != b"content-length"]
        return {**self.start, "status": 304, "headers": headers}, {**self.body, "body": b""}


class Answered:
    """The answers of one kind since the last change of what they are made of; `changes` counts those."""

    def __init__(self, changes: Callable[[], int]) -> None:
        self._changes = changes
        self._answers: dict[Key, Whole] = {}
        self._as_of = -1
        self._size_bytes = 0

    def find(self, key: Key) -> tuple[Whole | None, int]:
        """The answer if it still holds; and the number of changes, to `keep` one that is made now."""
        now = self._changes()
        if now != self._as_of:
            self._answers.clear()
            self._as_of, self._size_bytes = now, 0
        return self._answers.get(key), now

    def keep(self, key: Key, as_of: int, whole: Whole) -> None:
        """Keeps an answer that was begun at that number of changes. A change since then may be in it or not, and the
        next `find` throws it away."""
        size_bytes = self._size_bytes + len(whole.body["body"])
        if as_of == self._as_of and size_bytes <= MOST_BYTES:
            self._answers[key] = whole
            self._size_bytes = size_bytes


class Conditional:
    """ASGI middleware. Answers in several parts pass as they are, and so does all that is not 200. `kept` are patterns
    of the addresses whose answers depend on the store alone, each with what counts the changes of their part of it."""

    def __init__(self, app: ASGIApp, kept: Mapping[str, Callable[[], int]]) -> None:
        self._app = app
        self._kept = [(re.compile(pattern), Answered(changes)) for pattern, changes in kept.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"] in STREAMS:
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        headers = Headers(scope=scope)
        known = _tags(headers.get("if-none-match", ""))
        key = scope["path"], scope["query_string"], headers.get("accept", "")
        address = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        answered = next((kind for pattern, kind in self._kept if pattern.fullmatch(address)), None)
        whole, as_of = answered.find(key) if answered is not None else (None, 0)
        start: Message | None = None

        async def give(whole: Whole) -> None:
            for message in whole.messages(known, head=head):
                await send(message)

        async def answer(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is not None:
                first, start = start, None
                if first["status"] == 200 and not message.get("more_body", False):
                    whole = _whole(first, message)
                    if answered is not None:
                        answered.keep(key, as_of, whole)
                    await give(whole)
                    return
                await send(first)
            await send({**message, "body": b""} if head else message)

        if whole is not None:
            await give(whole)
        else:
            await self._app({**scope, "method": "GET"}, receive, answer)


def _whole(start: Message, body: Message) -> Whole:
    headers = MutableHeaders(scope=start)
    tag = headers.setdefault("ETag", f'"{blake2b(body["body"], digest_size=12).hexdigest()}"')
    headers.setdefault("Cache-Control", "no-cache")
    return Whole(start, body, tag)


def _tags(header: str) -> set[str]:
    # A cache may have made ours a weak one; the comparison of If-None-Match is weak.
    return {tag.strip().removeprefix("W/") for tag in header.split(",")} - {""}
