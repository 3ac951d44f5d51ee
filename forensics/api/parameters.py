"""The queries of the lists, for validation and OpenAPI. Filters combine with and; what is not listed here is refused,
not ignored."""

import re
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from forensics.model import Family, Phase, Strength
from forensics.store import Query
from forensics.store.lives import MOST_GROUPS
from forensics.store.query import MAX_LIMIT

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _rfc_3339(text: object) -> object:
    """Only this form, with its offset: a bare number or a time without a zone could mean several moments."""
    if isinstance(text, str):
        # A `+` that was not percent-encoded arrives as a space.
        text = re.sub(r"(?<=\d) (?=\d\d:\d\d\Z)", "+", text)
        if not _RFC_3339.fullmatch(text):
            raise ValueError("not a time with its offset, as RFC 3339 writes it: 2026-03-01T12:00:00Z")
    return text


_Stamp = Annotated[AwareDatetime, BeforeValidator(_rfc_3339)]
_Server = Annotated[str | None, Field(description="The server's name, or the whole unit name.", examples=["demo"])]
_Cause = Annotated[str | None, Field(description="The cause's slug.", examples=["kernel-oom"])]
_OfFamily = Annotated[Family | None, Field(description="The family of causes.")]
_Since = Annotated[_Stamp | None, Field(description="Ended at or after this time (RFC 3339 with offset).")]
_Until = Annotated[_Stamp | None, Field(description="Ended before this time (RFC 3339 with offset).")]
_Before = Annotated[str | None, Field(description="`next` of the page before this one.")]


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    def query(self) -> Query:
        return Query(**self.model_dump())


class CrashesParameters(_Parameters):
    """The query of `GET /crashes`."""

    server: _Server = None
    cause: _Cause = None
    family: _OfFamily = None
    strength: Annotated[Strength | None, Field(description="How far the verdict carries.")] = None
    phase: Annotated[Phase | None, Field(description="How far the run had come.")] = None
    fingerprint: Annotated[str | None, Field(description="Crashes that are alike.")] = None
    since: _Since = None
    until: _Until = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Crashes a page.")] = 50
    before: _Before = None


class GroupsParameters(_Parameters):
    """The query of `GET /crashes/groups`."""

    server: _Server = None
    cause: _Cause = None
    family: _OfFamily = None
    since: _Since = None
    until: _Until = None
    limit: Annotated[int, Field(ge=1, le=MOST_GROUPS, description="At most so many groups.")] = 100


class RunsParameters(_Parameters):
    """The query of `GET /runs`. Runs that live stand on the first page, unless `until` is given."""

    server: _Server = None
    since: _Since = None
    until: _Until = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Ended runs a page.")] = 50
    before: _Before = None


class LivesParameters(BaseModel):
    """The query of `GET /lives`: runs that lived at some time between the two."""

    model_config = ConfigDict(extra="forbid")

    since: Annotated[
        _Stamp | None, Field(description="From here on; a day before `until`, if not given (RFC 3339 with offset).")
    ] = None
    until: Annotated[_Stamp | None, Field(description="Up to here; now, if not given (RFC 3339 with offset).")] = None


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
