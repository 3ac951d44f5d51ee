"""A crash as everybody outside sees it: the API, the webhook, the terminal.

Shapes only grow: a key is never renamed or taken away within a major version. Times are RFC 3339 in UTC.
"""

from typing import Any

from typing_extensions import TypedDict


class EvidenceShape(TypedDict):
    """One record and what it is to the death: `initiating`, `cascade`, `teardown` or `context`."""

    role: str
    kind: str
    source: str
    ref: str
    at: str
    message: str
    why: str


class RuledOutShape(TypedDict):
    cause: str
    why: str


class GapShape(TypedDict):
    """A stretch of a source that could not be read; bounds in monotonic microseconds of the boot, and as times, null is
    open."""

    source: str
    reason: str
    from_usec: int | None
    to_usec: int | None
    from_at: str | None
    to_at: str | None


class SupervisionShape(TypedDict):
    """What systemd was told to do about OOM kills and about an end (`OOMPolicy=`, `Restart=`; null where they were not
    read), and in words what it does next."""

    oom_policy: str | None
    restart: str | None
    next: str


class RejectedShape(TypedDict):
    """Records that speak as a sender (`claims`) that did not write them, and changed nothing. One row for each `kind`
    of fact that they imitate: `count` of them, of which the first is shown."""

    claims: str
    kind: str
    count: int
    ref: str
    at: str
    message: str
    written_by: str
    why: str


class DoingShape(TypedDict):
    """What the server was last seen doing; the figures as SGLang printed them."""

    figures: dict[str, str]
    seconds_before_death: float | None


class MemoryFigureShape(TypedDict):
    """One row of the memory table: what it is, how much, and which source says so."""

    what: str
    size_bytes: int
    source: str


class MemoryShape(TypedDict):
    """Where the memory went, as far as it was recorded."""

    sentence: str
    figures: list[MemoryFigureShape]


class ChangeShape(TypedDict):
    """One argument that differs between two runs; null where it was not set."""

    name: str
    before: str | None
    after: str | None


class HistoryShape(TypedDict):
    """The same death again: `occurrence` is 1 for the first of its fingerprint in this unit. `since_previous` are the
    changes since the last of them, `since_good` those since the last run of the unit that had become ready."""

    occurrence: int
    first_at: str | None
    previous_id: str | None
    good_id: str | None
    since_previous: list[ChangeShape]
    since_good: list[ChangeShape]
    sentence: str


class RunShape(TypedDict):
    """systemd's words on the end of the main process. `signal` is the name when a signal ended it; `core_dumped` is
    null where systemd did not say how it ended."""

    result: str | None
    exit_code: str | None
    exit_status: int | None
    signal: str | None
    core_dumped: bool | None
    main_pid: int | None
    n_restarts: int | None


class CrashShape(TypedDict):
    """An ended run and the verdict on it. `id` is the first 12 digits of `invocation_id`."""

    id: str
    unit: str
    server: str
    invocation_id: str
    boot_id: str
    is_crash: bool
    cause: str
    family: str
    strength: str | None
    subclass: str
    summary: str
    phase: str
    became_ready: bool
    started_at: str
    died_at: str
    doing: DoingShape
    evidence: list[EvidenceShape]
    ruled_out: list[RuledOutShape]
    also: list[str]
    gaps: list[GapShape]
    rejected: list[RejectedShape]
    supervision: SupervisionShape
    notes: list[str]
    ground: list[str]
    speculation: dict[str, str]
    advice: list[str]
    memory: MemoryShape | None
    fingerprint: str
    signature: str
    settled: bool
    revision: int
    backfilled: bool
    history: HistoryShape | None
    run: RunShape


class FactShape(TypedDict):
    """One fact of a timeline. `values` are the fields of its kind, `role` is set where the verdict rests on it."""

    kind: str
    at: str
    monotonic_usec: int
    source: str
    ref: str
    pid: int | None
    message: str
    role: str | None
    values: dict[str, Any]


class TimelineShape(TypedDict):
    id: str
    unit: str
    invocation_id: str
    boot_id: str
    sources: list[str]
    gaps: list[GapShape]
    events: list[FactShape]


class RunningShape(TypedDict):
    """A run that has not ended. `not_answering_since` is when its server, which runs and does not answer, was last seen
    to answer; null while it answers."""

    invocation_id: str
    since: str
    not_answering_since: str | None


class LastRunShape(TypedDict):
    """How a run ended, in short."""

    id: str
    died_at: str
    is_crash: bool
    cause: str
    family: str
    strength: str | None
    summary: str


class ServerShape(TypedDict):
    """A unit that is watched, or was. `runs` counts ended runs that are still in the store. `remark` says what is odd
    about the speculation of the living run, or of the last one."""

    unit: str
    server: str
    running: RunningShape | None
    runs: int
    crashes: int
    last_run: LastRunShape | None
    last_crash: LastRunShape | None
    remark: str | None


class LifeShape(TypedDict):
    """One run in short, for a picture of a server's lives; `ended_at` is null while it lives. `ready_at` and
    `stopping_at` are null when it never came to that, or no record says when. `restarted`: systemd scheduled the next
    run by itself."""

    id: str
    unit: str
    server: str
    started_at: str
    ready_at: str | None
    stopping_at: str | None
    ended_at: str | None
    became_ready: bool
    is_crash: bool
    restarted: bool
    cause: str | None
    family: str | None
    strength: str | None
    summary: str | None


class GroupShape(TypedDict):
    """Crashes that are alike, by fingerprint. What is said of them is said of the newest, `last_id`."""

    fingerprint: str
    count: int
    first_at: str
    last_at: str
    servers: list[str]
    last_id: str
    cause: str
    family: str
    strength: str | None
    summary: str


class ChannelShape(TypedDict):
    """One of those who are told: `type` is `journal`, `webhook`, `alertmanager`, `apprise`, `command` …, or `gone` for
    one that is no longer configured. The counts are of messages: `superseded` ones had become wrong or were told with
    others, `abandoned` ones were for a channel that went. `last_error` is why the next one did not arrive, if it was
    tried."""

    name: str
    type: str
    waiting: int
    delivered: int
    superseded: int
    abandoned: int
    last_delivered_at: str | None
    last_error: str


class WaitingShape(TypedDict):
    """A message that has not arrived yet, and `why`. `id` is that of the death or of the living run it is about; it is
    not told before `due_at`, and tried next at `next_try_at`."""

    channel: str
    kind: str
    server: str
    unit: str
    id: str
    count: int
    attempts: int
    due_at: str
    next_try_at: str
    why: str


class AlertsShape(TypedDict):
    """Who is told, and what waits to be, in the order in which it may go."""

    channels: list[ChannelShape]
    waiting: list[WaitingShape]
