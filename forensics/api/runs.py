"""The routes on runs: `/runs`, `/runs/{invocation_id}`, `/servers/{name}/tuning`, `/lives`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from forensics.api.answers import as_json, as_page, found, responses
from forensics.api.parameters import LivesParameters, RunsParameters, TuningParameters
from forensics.api.shapes import LivesShape, RunsShape
from forensics.public import usec, when
from forensics.runs.shapes import RunDetailShape, TuningShape
from forensics.store import Store

RunId = Annotated[
    str,
    Path(description="A run's invocation id, its id, or the beginning of either.", examples=["5f2c9be0a1d4"]),
]
ServerName = Annotated[str, Path(description="The server's name, or the whole unit name.", examples=["demo"])]


def routes(store: Store) -> APIRouter:
    """The routes over a store."""
    router = APIRouter()

    @router.get("/runs", response_model=RunsShape, responses=responses("runs"))
    async def runs(request: Request, parameters: Annotated[RunsParameters, Query()]) -> Response:
        """Runs: living ones, then ended ones, newest first by the time of their end."""
        page = store.runs.page(parameters.query())
        return as_page(request, "runs", page.runs, page.next)

    @router.get("/runs/{invocation_id}", response_model=RunDetailShape, responses=responses("run"))
    async def run(invocation_id: RunId) -> Response:
        """One run with its whole configuration."""
        return as_json(found(store.runs.one(invocation_id), f"run {invocation_id!r}"))

    @router.get("/servers/{name}/tuning", response_model=TuningShape, responses=responses("tuning"))
    async def tuning(name: ServerName, parameters: Annotated[TuningParameters, Query()]) -> Response:
        """The server's runs by the values of one argument."""
        return as_json(found(store.runs.tuning(name, parameters.by), f"run of a server {name!r}"))

    @router.get("/lives", response_model=LivesShape, responses=responses("lives"))
    async def lives(parameters: Annotated[LivesParameters, Query()]) -> Response:
        """Every run of a stretch of time in short: when it started, was ready, was asked to stop, ended, and how."""
        until = parameters.until or datetime.now(UTC)
        since = parameters.since or _a_day_before(until)
        lived = store.lives.between(since, until)
        return as_json({"since": when(usec(since)), "until": when(usec(until)), "lives": lived})

    return router


def _a_day_before(until: datetime) -> datetime:
    try:
        return until - timedelta(days=1)
    except OverflowError:  # in the year 1
        return until
