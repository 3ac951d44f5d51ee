"""What goes in and out, for validation and OpenAPI. Crashes and timelines are in `forensics.shapes`."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict

from forensics.model import Family, Phase, Strength
from forensics.shapes import CrashShape, GroupShape, LifeShape, ServerShape
from forensics.store import GroupQuery, Query
from forensics.store.lives import MOST_GROUPS
from forensics.store.query import MAX_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """One evidence source now: `reading`, or `blind` with the reason in `detail`."""

    name: str
    state: Literal["reading", "blind"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The daemon now. `read_to` is the wall clock of the last journal entry read, `units` the watched globs."""

    version: str
    started_at: datetime
    units: tuple[str, ...]
    read_to: datetime | None
    open_runs: int
    sources: tuple[SourceHealth, ...]


class SourceShape(TypedDict):
    """`state` is `reading` or `blind`; `detail` says why a source is blind."""

    name: str
    state: Literal["reading", "blind"]
    detail: str


class HealthShape(TypedDict):
    """`status` is `ok`, or `degraded` when a source is blind: verdicts then say what they could not see.

    `alerts` counts the messages of each sink by state: `waiting`, `delivered`, `superseded`, `abandoned`.
    """

    status: Literal["ok", "degraded"]
    version: str
    started_at: str
    units: list[str]
    read_to: str | None
    open_runs: int
    sources: list[SourceShape]
    alerts: dict[str, dict[str, int]]


class CrashesShape(TypedDict):
    """A page, newest first. `next` is the value for `before` that gives the page after it, null on the last one."""

    crashes: list[CrashShape]
    next: str | None


class ServersShape(TypedDict):
    servers: list[ServerShape]


class GroupsShape(TypedDict):
    """The deaths that are alike, the group that struck last first. `total` counts the groups beyond the limit too."""

    groups: list[GroupShape]
    total: int


class LivesShape(TypedDict):
    """Runs that lived in [since, until), by unit and start."""

    since: str
    until: str
    lives: list[LifeShape]


class ReadyShape(TypedDict):
    """The daemon reads the journal and its store, so that no death passes it by. `not_seen` are sources that it must do
    without: verdicts then say so."""

    status: Literal["ready"]
    not_seen: list[str]


class ProblemShape(TypedDict, total=False):
    """RFC 9457. `code` is stable, `hint` says what to do, `errors` name each wrong parameter."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    hint: str
    errors: list[dict[str, str]]


_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _rfc_3339(text: object) -> object:
    """Only this form, with its offset: a bare number or a time without a zone could mean several moments."""
    if isinstance(text, str):
        # A `+` that was not percent-encoded arrives as a space.
        text = re.sub(r"(?<=\d) (?=\d\d:\d\d\Z)", "+", text)
        if not _RFC_3339.fullmatch(text):
            raise ValueError("not a time with its offset, as RFC 3339 writes it: 2026-03-01T12:00:00Z")
    return text


Stamp = Annotated[AwareDatetime, BeforeValidator(_rfc_3339)]


class LivesParameters(BaseModel):
    """The query of `GET /lives`."""

    model_config = ConfigDict(extra="forbid")

    since: Annotated[
        Stamp | None, Field(description="From here on; a day before `until`, if not given (RFC 3339 with offset).")
    ] = None
    until: Annotated[Stamp | None, Field(description="Up to here; now, if not given (RFC 3339 with offset).")] = None


class GroupsParameters(BaseModel):
    """The query of `GET /crashes/groups`. Filters combine with and; what is not listed here is refused."""

    model_config = ConfigDict(extra="forbid")

    server: Annotated[
        str | None, Field(description="The server's name, or the whole unit name.", examples=["demo"])
    ] = None
    cause: Annotated[str | None, Field(description="The cause's slug.", examples=["kernel-oom"])] = None
    family: Annotated[Family | None, Field(description="The family of causes.")] = None
    since: Annotated[Stamp | None, Field(description="Died at or after this time (RFC 3339 with offset).")] = None
    until: Annotated[Stamp | None, Field(description="Died before this time (RFC 3339 with offset).")] = None
    limit: Annotated[int, Field(ge=1, le=MOST_GROUPS, description="At most so many groups.")] = 100

    def query(self) -> GroupQuery:
        return GroupQuery(**self.model_dump())


class CrashesParameters(BaseModel):
    """The query of `GET /crashes`. Filters combine with and; what is not listed here is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    server: Annotated[
        str | None, Field(description="The server's name, or the whole unit name.", examples=["demo"])
    ] = None
    cause: Annotated[str | None, Field(description="The cause's slug.", examples=["kernel-oom"])] = None
    family: Annotated[Family | None, Field(description="The family of causes.")] = None
    strength: Annotated[Strength | None, Field(description="How far the verdict carries.")] = None
    phase: Annotated[Phase | None, Field(description="How far the run had come.")] = None
    fingerprint: Annotated[str | None, Field(description="Crashes that are alike.")] = None
    since: Annotated[Stamp | None, Field(description="Died at or after this time (RFC 3339 with offset).")] = None
    until: Annotated[Stamp | None, Field(description="Died before this time (RFC 3339 with offset).")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Crashes a page.")] = 50
    before: Annotated[str | None, Field(description="`next` of the page before this one.")] = None

    def query(self) -> Query:
        return Query(**self.model_dump())
