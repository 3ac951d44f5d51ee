"""The routes on crashes: `/crashes`, `/crashes/groups`, `/crashes/{id}`, its timeline and its evidence."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse, StreamingResponse

from forensics.api import evidence
from forensics.api.answers import PROBLEMS, as_json, as_page, found, responses
from forensics.api.parameters import CrashesParameters, GroupsParameters
from forensics.api.shapes import CrashesShape, GroupsShape
from forensics.inquest import report
from forensics.shapes import CrashShape, TimelineShape
from forensics.store import Store

CrashId = Annotated[
    str,
    Path(description="A crash's id, its invocation id, or the beginning of either.", examples=["5f2c9be0a1d4"]),
]


def routes(store: Store, journal: evidence.Journal | None) -> APIRouter:
    """The routes over a store; `journal` reads the raw records for a bundle."""
    router = APIRouter()
    bundling = asyncio.Semaphore(1)

    @router.get("/crashes", response_model=CrashesShape, responses=responses("crashes"))
    async def crashes(request: Request, parameters: Annotated[CrashesParameters, Query()]) -> Response:
        """Crashes, newest first by the time of death."""
        page = store.crashes(parameters.query())
        return as_page(request, "crashes", page.crashes, page.next)

    @router.get("/crashes/groups", response_model=GroupsShape, responses=responses("groups"))
    async def groups(parameters: Annotated[GroupsParameters, Query()]) -> Response:
        """Crashes that are alike, by fingerprint: how often, since when, where."""
        alike, total = store.lives.groups(parameters.query())
        return as_json({"groups": alike, "total": total})

    @router.get("/crashes/{crash_id}", response_model=CrashShape, responses=responses("crash"))
    async def crash(request: Request, crash_id: CrashId) -> Response:
        """One ended run and the verdict on it; as text for `Accept: text/plain`. A browser that follows a link of an
        alert is led to the page."""
        shown = found(store.shown(crash_id), f"crash {crash_id!r}")
        wanted = request.headers.get("accept", "")
        if "text/html" in wanted:
            # Relative, since a proxy may have put the page below a path.
            response: Response = RedirectResponse(f"../#/crashes/{shown['id']}", 303)
        elif wanted.startswith("text/plain"):
            response = PlainTextResponse(_as_text(shown))
        else:
            response = as_json(shown)
        response.headers["Vary"] = "Accept"
        return response

    @router.get("/crashes/{crash_id}/timeline", response_model=TimelineShape, responses=responses("timeline"))
    async def timeline(crash_id: CrashId) -> Response:
        """Every fact known of that run, in order, and what could not be read."""
        return as_json(found(store.timeline(crash_id), f"crash {crash_id!r}"))

    @router.get(
        "/crashes/{crash_id}/evidence.tar.zst",
        response_class=Response,
        responses={
            200: {
                "description": "A tar archive: verdict, timeline, raw journal records; secrets removed.",
                "content": {evidence.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
            },
            **PROBLEMS,
        },
    )
    async def bundle(crash_id: CrashId) -> Response:
        """All of one crash in one file, for `inquest analyze` or to attach to a report."""
        shown = found(store.shown(crash_id), f"crash {crash_id!r}")
        facts = found(store.timeline(crash_id), f"crash {crash_id!r}")
        # One at a time, and in a thread of its own: reading the journal can take a second.
        async with bundling:
            made = await asyncio.to_thread(evidence.bundle, shown, facts, journal)
        name = f"inquest-{shown['id']}.tar.zst"
        return StreamingResponse(
            evidence.pieces(made),
            media_type=evidence.MEDIA_TYPE,
            headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
        )

    return router


def _as_text(crash: CrashShape) -> bytes:
    return ("\n".join(line.text for line in report(crash)) + "\n").encode("utf-8", "replace")
