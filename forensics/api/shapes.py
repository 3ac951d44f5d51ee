"""What the API answers, for OpenAPI. Crashes are in `forensics.shapes`, runs in `forensics.runs.shapes`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from typing_extensions import TypedDict

from forensics.runs.shapes import RunEntryShape
from forensics.shapes import CrashShape, GroupShape, LifeShape, ServerShape


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


class RunsShape(TypedDict):
    """A page, newest first: living runs before the ended ones. `next` as of the crashes."""

    runs: list[RunEntryShape]
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
