"""The routes on runs: `/runs`, `/runs/{invocation_id}`, `/servers/{name}/tuning`."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from forensics.api.shapes import Stamp
from forensics.runs.shapes import RunDetailShape, RunEntryShape, TuningShape
from forensics.store import RunQuery, Store
from forensics.store.query import MAX_LIMIT


class RunsShape(TypedDict):
    """A page, newest first: living runs before the ended ones. `next` is the value for `before` that gives the page
    after it, null on the last one."""

    runs: list[RunEntryShape]
    next: str | None


class RunsParameters(BaseModel):
    """The query of `GET /runs`. Filters combine with and; what is not listed here is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    server: Annotated[
        str | None, Field(description="The server's name, or the whole unit name.", examples=["demo"])
    ] = None
    since: Annotated[Stamp | None, Field(description="Ended at or after this time, or living.")] = None
    until: Annotated[Stamp | None, Field(description="Ended before this time (RFC 3339 with offset).")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Ended runs a page.")] = 50
    before: Annotated[str | None, Field(description="`next` of the page before this one.")] = None

    def query(self) -> RunQuery:
        return RunQuery(**self.model_dump())


class TuningParameters(BaseModel):
    """The query of `GET /servers/{name}/tuning`."""

    model_config = ConfigDict(extra="forbid")

    by: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
            description="An argument of SGLang by its name in `server_args`; without it the most varied one.",
            examples=["speculative_num_steps"],
        ),
    ] = None


RunId = Annotated[
    str,
    Path(description="A run's invocation id, its id, or the beginning of either.", examples=["5f2c9be0a1d4"]),
]
ServerName = Annotated[str, Path(description="The server's name, or the whole unit name.", examples=["demo"])]


def routes(store: Store, problems: dict[int | str, dict[str, Any]]) -> APIRouter:
    """The routes over a store; `problems` is what OpenAPI says of bad answers."""
    router = APIRouter()

    @router.get("/runs", response_model=RunsShape, responses=problems)
    async def runs(request: Request, parameters: Annotated[RunsParameters, Query()]) -> Response:
        """Runs: living ones, then ended ones, newest first by the time of their end."""
        page = store.runs.page(parameters.query())
        response = _json({"runs": page.runs, "next": page.next})
        if page.next is not None:
            following = request.url.include_query_params(before=page.next)
            response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return response

    @router.get("/runs/{invocation_id}", response_model=RunDetailShape, responses=problems)
    async def run(invocation_id: RunId) -> Response:
        """One run with its whole configuration."""
        found = store.runs.one(invocation_id)
        if found is None:
            raise HTTPException(404, f"no run {invocation_id!r} in the store")
        return _json(found)

    @router.get("/servers/{name}/tuning", response_model=TuningShape, responses=problems)
    async def tuning(name: ServerName, parameters: Annotated[TuningParameters, Query()]) -> Response:
        """The server's runs by the values of one argument."""
        table = store.runs.tuning(name, parameters.by)
        if table is None:
            raise HTTPException(404, f"no run of a server {name!r} in the store")
        return _json(table)

    return router


def _json(data: Any) -> Response:
    return Response(
        json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"),
        media_type="application/json",
    )
