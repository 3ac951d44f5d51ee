"""The routes. Handlers run in the event loop: a read takes a millisecond, and threads would cost memory."""

from collections.abc import Callable, Iterable

from fastapi import FastAPI, Request, Response
from starlette.middleware.cors import CORSMiddleware

from forensics.api import crashes, events, evidence, page, problems, runs
from forensics.api.access import LOOPBACK, Access, Door
from forensics.api.answers import PROBLEMS, as_json, responses
from forensics.api.conditional import Conditional
from forensics.api.metrics import Metrics
from forensics.api.shapes import Health, HealthShape, ReadyShape, ServersShape
from forensics.public import usec, when
from forensics.shapes import AlertsShape
from forensics.store import Store

NEEDED = ("systemd", "server")
"""Without these sources no death is noticed at all."""


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
    app.add_middleware(
        Conditional,
        kept={
            r"/crashes([/?].*)?": lambda: store.changes_of_ended,
            # Lives up to now change with the clock too.
            r"/(runs|servers)([/?].*)?|/lives\?(.*&)?until=.*": lambda: store.changes,
        },
    )
    if access.origins:
        app.add_middleware(CORSMiddleware, allow_origins=sorted(access.origins), allow_headers=["Authorization"])
    app.add_middleware(Door, access=access)
    problems.install(app)
    app.state.broadcast = broadcast = events.Broadcast(store.news)
    metrics = Metrics(store, health, causes)

    app.include_router(crashes.routes(store, journal))
    app.include_router(runs.routes(store))
    app.include_router(events.routes(broadcast))

    @app.get("/servers", response_model=ServersShape, responses=responses("servers"))
    async def servers() -> Response:
        """Every unit that was watched: running since when, how often and how it died last."""
        return as_json({"servers": store.servers()})

    @app.get("/alerts", response_model=AlertsShape, responses=responses("alerts"))
    async def alerts() -> Response:
        """Who is told of deaths, what waits to be told, and why."""
        return as_json(store.alerts())

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

    @app.get("/healthz", response_model=HealthShape, responses=responses("health"))
    async def healthz() -> Response:
        """The daemon lives. 200 even when it is partly blind; `sources` say what it cannot see."""
        return as_json(_health_shape(health(), store))

    @app.get("/readyz", response_model=ReadyShape, responses=responses("ready"))
    async def readyz(request: Request) -> Response:
        """The daemon sees every death: it reads what PID 1 and the servers write, and its store answers. 503 if not."""
        now = health()
        store.news.bounds()
        blind = {source.name: source.detail for source in now.sources if source.state == "blind"}
        needed = [f"{name}: {blind[name]}" for name in NEEDED if name in blind]
        if needed:
            detail = "; ".join(needed)
            return problems.problem(503, "not-ready", detail, instance=request.url.path, hint="See GET /healthz.")
        return as_json({"status": "ready", "not_seen": sorted(blind)})

    app.include_router(page.routes())
    return app


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
