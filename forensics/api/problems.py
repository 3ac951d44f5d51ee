"""Every error as `application/problem+json` (RFC 9457). No traceback crosses the wire."""

import difflib
import http
import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from forensics.api.parameters import (
    CrashesParameters,
    GroupsParameters,
    LivesParameters,
    RunsParameters,
    TuningParameters,
)
from forensics.errors import InquestError, StoreError

MEDIA_TYPE = "application/problem+json"
_PARAMETERS: dict[str, type[BaseModel]] = {
    "/runs": RunsParameters,
    "/tuning": TuningParameters,
    "/groups": GroupsParameters,
    "/lives": LivesParameters,
}
STATUSES = {
    "bad-cursor": 404,  # there is no such page
    "ambiguous-id": 409,
}


def problem(status: int, code: str, detail: str, *, instance: str, hint: str = "", **extra: Any) -> Response:
    content = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        **({"hint": hint} if hint else {}),
        **extra,
    }
    return Response(json.dumps(content), status_code=status, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Takes the place of the framework's own error bodies."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(InquestError, _inquest)
    app.add_exception_handler(Exception, _unexpected)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "-")
    detail = error.detail if error.detail != phrase else f"{request.method} {request.url.path}: {phrase.lower()}"
    hint = "GET /openapi.json lists what there is." if error.status_code == 404 else ""
    response = problem(error.status_code, code, detail, instance=request.url.path, hint=hint)
    response.headers.update(error.headers or {})
    return response


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = []
    for one in error.errors():
        name = str(one["loc"][-1])
        unknown = one["type"] == "extra_forbidden"
        said = f"unknown parameter; {_allowed(name, request.url.path)}" if unknown else _said(one["msg"])
        errors.append({"parameter": name, "problem": said})
    detail = "; ".join(f"{one['parameter']}: {one['problem']}" for one in errors)
    return problem(400, "bad-parameter", detail, instance=request.url.path, errors=errors)


def _said(text: str) -> str:
    return text.removeprefix("Value error, ")


def _allowed(name: str, path: str) -> str:
    names = list(_PARAMETERS.get("/" + path.rpartition("/")[2], CrashesParameters).model_fields)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"allowed: {', '.join(names)}"


async def _inquest(request: Request, error: Exception) -> Response:
    assert isinstance(error, InquestError)
    status = STATUSES.get(error.code, 503 if isinstance(error, StoreError) else 500)
    return problem(status, error.code, error.message, instance=request.url.path, hint=error.hint)


async def _unexpected(request: Request, error: Exception) -> Response:
    # The framework raises it again for the server to log.
    return problem(
        500,
        "internal-error",
        "The daemon failed to answer.",
        instance=request.url.path,
        hint="Its log has the traceback: journalctl -u inquestd",
    )
