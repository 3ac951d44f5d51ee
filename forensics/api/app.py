"""The routes. Handlers run in the event loop: a read takes a millisecond, and threads would cost memory."""

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from forensics.api import events, evidence, page, problems, runs
from forensics.api.access import LOOPBACK, Access, Door
from forensics.api.conditional import Conditional
from forensics.api.examples import EXAMPLES
from forensics.api.metrics import Metrics
from forensics.api.shapes import (
    CrashesParameters,
    CrashesShape,
    GroupsParameters,
    GroupsShape,
    Health,
    HealthShape,
    LivesParameters,
    LivesShape,
    ProblemShape,
    ReadyShape,
    ServersShape,
)
from forensics.public import usec, when
from forensics.report import report
from forensics.shapes import CrashShape, TimelineShape
from forensics.store import Store

CrashId = Annotated[
    str,
    Path(description="A crash's id, its invocation id, or the beginning of either.", examples=["5f2c9be0a1d4"]),
]
NEEDED = ("systemd", "server")
"""Without these sources no death is noticed at all."""
# Written out, since the framework would give it the media type of the good answer.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457).",
        "content": {problems.MEDIA_TYPE: {"schema": TypeAdapter(ProblemShape).json_schema()}},
    }
}


def create_app(
    store: Store,
    health: Callable[[], Health],
    *,
    access: Access = LOOPBACK,
    causes: Iterable[tuple[str, str]] = (),
    journal: evidence.Journal | None = None,
) -> FastAPI:
    """The API over a store. `health` is asked at each `GET /healthz`; `causes` are those of the rules, each with its
    family; `journal` reads the raw records for a bundle, None where there is no journal."""
    app = FastAPI(
        title="Inquest",
        description="Verdicts on the deaths of SGLang servers. Times are RFC 3339 in UTC. Every whole answer has an"
        " ETag; with If-None-Match the answer to an unchanged one is 304.",
        version=health().version,
        docs_url=None,  # it would load its script from elsewhere
        redoc_url=None,
    )
    # The last one added is the first to be asked.
    app.add_middleware(Conditional)
    if access.origins:
        app.add_middleware(CORSMiddleware, allow_origins=sorted(access.origins), allow_headers=["Authorization"])
    app.add_middleware(Door, access=access)
    problems.install(app)
    app.state.broadcast = broadcast = events.Broadcast(store.news)
    metrics = Metrics(store, health, causes)
    bundling = asyncio.Semaphore(1)

    @app.get("/crashes", response_model=CrashesShape, responses=_responses("crashes"))
    async def crashes(request: Request, parameters: Annotated[CrashesParameters, Query()]) -> Response:
        """Crashes, newest first by the time of death."""
        found = store.crashes(parameters.query())
        response = _json({"crashes": found.crashes, "next": found.next})
        if found.next is not None:
            following = request.url.include_query_params(before=found.next)
            response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return response

    @app.get("/crashes/groups", response_model=GroupsShape, responses=_responses("groups"))
    async def groups(parameters: Annotated[GroupsParameters, Query()]) -> Response:
        """Crashes that are alike, by fingerprint: how often, since when, where."""
        found, total = store.lives.groups(parameters.query())
        return _json({"groups": found, "total": total})

    @app.get("/crashes/{crash_id}", response_model=CrashShape, responses=_responses("crash"))
    async def crash(request: Request, crash_id: CrashId) -> Response:
        """One ended run and the verdict on it; as text for `Accept: text/plain`. A browser that follows a link of an
        alert is led to the page."""
        found = _found(store.shown(crash_id), crash_id)
        wanted = request.headers.get("accept", "")
        if "text/html" in wanted:
            # Relative, since a proxy may have put the page below a path.
            response: Response = RedirectResponse(f"../#/crashes/{found['id']}", 303)
        elif wanted.startswith("text/plain"):
            response = PlainTextResponse(_as_text(found))
        else:
            response = _json(found)
        response.headers["Vary"] = "Accept"
        return response

    @app.get("/crashes/{crash_id}/timeline", response_model=TimelineShape, responses=_responses("timeline"))
    async def timeline(crash_id: CrashId) -> Response:
        """Every fact known of that run, in order, and what could not be read."""
        return _json(_found(store.timeline(crash_id), crash_id))

    @app.get(
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
        shown, facts = _found(store.shown(crash_id), crash_id), _found(store.timeline(crash_id), crash_id)
        # One at a time, and in a thread of its own: reading the journal can take a second.
        async with bundling:
            made = await asyncio.to_thread(evidence.bundle, shown, facts, journal)
        name = f"inquest-{shown['id']}.tar.zst"
        return StreamingResponse(
            evidence.pieces(made),
            media_type=evidence.MEDIA_TYPE,
            headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
        )

    @app.get("/servers", response_model=ServersShape, responses=_responses("servers"))
    async def servers() -> Response:
        """Every unit that was watched: running since when, how often and how it died last."""
        return _json({"servers": store.servers()})

    @app.get("/lives", response_model=LivesShape, responses=_responses("lives"))
    async def lives(parameters: Annotated[LivesParameters, Query()]) -> Response:
        """Every run of a stretch of time in short: when it started, was ready, was asked to stop, ended, and how."""
        until = parameters.until or datetime.now(UTC)
        since = parameters.since or _a_day_before(until)
        found = store.lives.between(since, until)
        return _json({"since": when(usec(since)), "until": when(usec(until)), "lives": found})

    app.include_router(runs.routes(store, PROBLEMS))

    app.include_router(events.routes(broadcast, PROBLEMS))

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "Prometheus' text format, or OpenMetrics when asked for.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **PROBLEMS,
        },
    )
    async def scrape(request: Request) -> Response:
        """Crashes, restarts, sources, alerts, and what the servers printed last, for Prometheus."""
        content, media_type = metrics.text(request.headers.get("accept", ""))
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-store"})

    @app.get("/healthz", response_model=HealthShape, responses=_responses("health"))
    async def healthz() -> Response:
        """The daemon lives. 200 even when it is partly blind; `sources` say what it cannot see."""
        return _json(_health_shape(health(), store))

    @app.get("/readyz", response_model=ReadyShape, responses=_responses("ready"))
    async def readyz(request: Request) -> Response:
        """The daemon sees every death: it reads what PID 1 and the servers write, and its store answers. 503 if not."""
        now = health()
        store.news.bounds()
        blind = {source.name: source.detail for source in now.sources if source.state == "blind"}
        needed = [f"{name}: {blind[name]}" for name in NEEDED if name in blind]
        if needed:
            detail = "; ".join(needed)
            return problems.problem(503, "not-ready", detail, instance=request.url.path, hint="See GET /healthz.")
        return _json({"status": "ready", "not_seen": sorted(blind)})

    app.include_router(page.routes())
    return app


def _responses(example: str) -> dict[int | str, dict[str, Any]]:
    good = {"content": {"application/json": {"example": EXAMPLES[example]}}}
    return {200: good, 304: {"description": "It is still what If-None-Match names."}, **PROBLEMS}


def _a_day_before(until: datetime) -> datetime:
    try:
        return until - timedelta(days=1)
    except OverflowError:  # in the year 1
        return until


def _json(data: Any) -> Response:
    # The shapes are made by typed code and checked against the models by tests; validating them again for each
    # answer would only cost time.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # A log line can have half a surrogate pair in it, which no encoding has.
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def _as_text(crash: CrashShape) -> bytes:
    return ("\n".join(line.text for line in report(crash)) + "\n").encode("utf-8", "replace")


def _found(shape: Any, crash_id: str) -> Any:
    if shape is None:
        raise HTTPException(404, f"no crash {crash_id!r} in the store")
    return shape


def _health_shape(health: Health, store: Store) -> HealthShape:
    return {
        "status": "ok" if all(source.state == "reading" for source in health.sources) else "degraded",
        "version": health.version,
        "started_at": when(usec(health.started_at)),
        "units": list(health.units),
        "read_to": None if health.read_to is None else when(usec(health.read_to)),
        "open_runs": health.open_runs,
        "sources": [{"name": source.name, "state": source.state, "detail": source.detail} for source in health.sources],
        "alerts": store.outbox.states(),
    }
