"""The routes. Handlers run in the event loop: a read takes a millisecond, and threads would cost memory."""

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from forensics.api import problems, runs
from forensics.api.hosts import LoopbackHosts
from forensics.api.shapes import (
    CrashesParameters,
    CrashesShape,
    Health,
    HealthShape,
    ProblemShape,
    ServersShape,
)
from forensics.public import usec, when
from forensics.shapes import CrashShape, TimelineShape
from forensics.store import Store

CrashId = Annotated[
    str,
    Path(description="A crash's id, its invocation id, or the beginning of either.", examples=["5f2c9be0a1d4"]),
]
# Written out, since the framework would give it the media type of the good answer.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457).",
        "content": {problems.MEDIA_TYPE: {"schema": TypeAdapter(ProblemShape).json_schema()}},
    }
}


def create_app(store: Store, health: Callable[[], Health]) -> FastAPI:
    """The API over a store. `health` is asked at each `GET /healthz`."""
    app = FastAPI(
        title="Inquest",
        description="Verdicts on the deaths of SGLang servers. Times are RFC 3339 in UTC.",
        version=health().version,
        docs_url=None,  # it would load its script from elsewhere
        redoc_url=None,
    )
    app.add_middleware(LoopbackHosts)
    problems.install(app)

    @app.get("/crashes", response_model=CrashesShape, responses=PROBLEMS)
    async def crashes(request: Request, parameters: Annotated[CrashesParameters, Query()]) -> Response:
        """Crashes, newest first by the time of death."""
        page = store.crashes(parameters.query())
        response = _json({"crashes": page.crashes, "next": page.next})
        if page.next is not None:
            following = request.url.include_query_params(before=page.next)
            response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return response

    @app.get("/crashes/{crash_id}", response_model=CrashShape, responses=PROBLEMS)
    async def crash(crash_id: CrashId) -> Response:
        """One ended run and the verdict on it."""
        return _json(_found(store.shown(crash_id), crash_id))

    @app.get("/crashes/{crash_id}/timeline", response_model=TimelineShape, responses=PROBLEMS)
    async def timeline(crash_id: CrashId) -> Response:
        """Every fact known of that run, in order, and what could not be read."""
        return _json(_found(store.timeline(crash_id), crash_id))

    @app.get("/servers", response_model=ServersShape, responses=PROBLEMS)
    async def servers() -> Response:
        """Every unit that was watched: running since when, how often and how it died last."""
        return _json({"servers": store.servers()})

    app.include_router(runs.routes(store, PROBLEMS))

    @app.get("/healthz", response_model=HealthShape, responses=PROBLEMS)
    async def healthz() -> Response:
        """The daemon lives. 200 even when it is partly blind; `sources` say what it cannot see."""
        return _json(_health_shape(health(), store))

    return app


def _json(data: Any) -> Response:
    # The shapes are made by typed code and checked against the models by tests; validating them again for each
    # answer would only cost time.
    return Response(json.dumps(data, ensure_ascii=False, separators=(",", ":")), media_type="application/json")


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
