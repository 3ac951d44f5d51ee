"""`GET /events`: what happens, as it happens, as Server-Sent Events.

An event's id is its number in the store. A client that comes back with the last id it had gets all that followed, from
the store: nothing is kept for it here, and a slow client costs a place in a file, not memory.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from forensics.api.answers import PROBLEMS
from forensics.store import Item, News

HEARTBEAT_SECONDS = 10.0
RETRY_MILLISECONDS = 1000
BATCH = 50
MOST_STREAMS = 64

EVENTS = (
    "A stream of `crash`, `amended`, `start-limit` (systemd has given the server up) and `run-ended`, each with the"
    " crash as data; of `run-started` with unit, server, invocation_id and started_at; of `run-ready`, `hang` (it runs"
    " and does not answer) and `answering` (it does again), with `at` for started_at; and `reset` when the id to"
    " begin after is too old: read the lists anew then. A comment comes at least every 15 seconds."
)

KINDS = ("crash", "amended", "start-limit", "run-ended", "run-started", "run-ready", "hang", "answering", "reset")
EVENT_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "To begin after it again."},
        "event": {"enum": KINDS},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer", "description": "Milliseconds to wait before coming back."},
    },
}
"""One event, as `itemSchema` of OpenAPI 3.2."""


class Broadcast:
    """All streams of one served API. Lives in the event loop, but for `_ring`, which other threads call."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self._closing = False
        news.listen(self._ring)

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    def close(self) -> None:
        """Ends every stream; their clients come back with their last id."""
        self._closing = True
        self._wake()

    def stream(self, last_id: str | None) -> AsyncIterator[str]:
        """A stream from after an event's id, or from now on. HTTPException 503 when there are too many."""
        if len(self._waiting) >= MOST_STREAMS:
            raise HTTPException(503, "too many streams of events are open", {"Retry-After": "10"})
        self._loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        self._waiting.add(rung)
        return self._run(last_id, rung)

    async def _run(self, last_id: str | None, rung: asyncio.Event) -> AsyncIterator[str]:
        try:
            number, told = self._begin(last_id)
            yield told
            while not self._closing:
                rung.clear()
                items = self._news.after(number, BATCH)
                for item in items:
                    number = item.number
                    if item.data is not None:
                        yield self._event(item)
                if not items:
                    try:
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            await rung.wait()
                    except TimeoutError:
                        yield ": still here\n\n"
        finally:
            self._waiting.discard(rung)

    def _begin(self, last_id: str | None) -> tuple[int, str]:
        """Where to begin, and the first words. An id of another store, or of too long ago, cannot be gone on from: the
        client is told to read the lists anew (`reset`)."""
        before_first, last = self._news.bounds()
        if last_id is None:
            # An id without data fires nothing, and is what the client comes back with.
            return last, f"retry: {RETRY_MILLISECONDS}\nid: {self._id(last)}\n\n"
        token, _, digits = last_id.rpartition(".")
        if token == self._news.store_token and digits.isdecimal() and len(digits) < 19:
            number = int(digits)
            if before_first <= number <= last:
                return number, f"retry: {RETRY_MILLISECONDS}\n\n"
        return last, f"retry: {RETRY_MILLISECONDS}\nid: {self._id(last)}\nevent: reset\ndata: {{}}\n\n"

    def _event(self, item: Item) -> str:
        return f"id: {self._id(item.number)}\nevent: {item.kind}\ndata: {_one_line(item.data)}\n\n"

    def _id(self, number: int) -> str:
        return f"{self._news.store_token}.{number}"


def routes(broadcast: Broadcast) -> APIRouter:
    """`/events`."""
    router = APIRouter()

    @router.get(
        "/events",
        response_class=StreamingResponse,
        responses={
            200: {"description": EVENTS, "content": {"text/event-stream": {"itemSchema": EVENT_SCHEMA}}},
            **PROBLEMS,
        },
    )
    async def events(
        after: Annotated[
            str | None, Query(description="Begin after this event's id; from now on, if not given.", max_length=64)
        ] = None,
        last_event_id: Annotated[
            str | None, Header(description="The same, as browsers send it when they come back.", max_length=64)
        ] = None,
    ) -> Response:
        """What happens, as it happens (Server-Sent Events)."""
        return StreamingResponse(
            broadcast.stream(last_event_id or after),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return router


def _one_line(data: Any) -> str:
    # JSON escapes every line break of its strings, and what cannot be encoded.
    return json.dumps(data, separators=(",", ":"))
