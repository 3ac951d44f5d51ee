"""How an answer is written, and what OpenAPI says of it."""

import json
from typing import Any

from fastapi import Request, Response
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from forensics.api import problems
from forensics.api.examples import EXAMPLES
from forensics.api.shapes import ProblemShape

# Written out, since the framework would give it the media type of the good answer.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457).",
        "content": {problems.MEDIA_TYPE: {"schema": TypeAdapter(ProblemShape).json_schema()}},
    }
}


def responses(example: str) -> dict[int | str, dict[str, Any]]:
    """What a route of JSON may answer, with its example."""
    good = {"content": {"application/json": {"example": EXAMPLES[example]}}}
    return {200: good, 304: {"description": "It is still what If-None-Match names."}, **PROBLEMS}


def as_json(data: Any) -> Response:
    # The shapes are made by typed code and checked against the models by tests; validating them again for each
    # answer would only cost time.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # A log line can have half a surrogate pair in it, which no encoding has.
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def as_page(request: Request, name: str, found: Any, following: str | None) -> Response:
    """One page of a list; `following` is the cursor of the next one, which a Link header leads to as well."""
    response = as_json({name: found, "next": following})
    if following is not None:
        url = request.url.include_query_params(before=following)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    return response


def found(shape: Any, what: str) -> Any:
    """The shape; a problem (404) when there is none."""
    if shape is None:
        raise HTTPException(404, f"no {what} in the store")
    return shape
