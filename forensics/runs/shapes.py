"""A run, a tuning table and a comparison as everybody outside sees them: the store, the API, the terminal.

Shapes only grow: a key is never renamed or taken away within a major version. Times are RFC 3339 in UTC, throughputs
are tokens a second as SGLang printed them.
"""

from typing_extensions import TypedDict

from forensics.shapes import ChangeShape, MemoryFigureShape


class ThroughputShape(TypedDict):
    """Generation throughput while so many requests ran: `1`, `2-4`, `5-16` or `17+`; over `lines` of SGLang's."""

    running_requests: str
    lines: int
    median: float
    best: float


class DecodingShape(TypedDict):
    """What the run decoded. `tokens` is an estimate. Accept lengths are null without speculation, and the rate where
    SGLang prints none; SGLang before 0.5.11 counts the bonus token into the rate."""

    lines: int
    tokens: int
    throughput: list[ThroughputShape]
    accept_length: float | None
    accept_length_least: float | None
    accept_length_most: float | None
    accept_rate: float | None
    peak_running_requests: int
    peak_queued_requests: int
    peak_token_usage: float | None


class BenchShape(TypedDict):
    """One `inquest bench` of the run: SGLang's own figures by their names, and the options it was run with."""

    at: str
    options: str
    figures: dict[str, float]


class FactsShape(TypedDict):
    """What is known of a run beside its verdict. `memory` is SGLang's accounting for one GPU, `peaks` what was sampled.
    `remark` says what is odd about its speculation, null where nothing is."""

    ready_after_seconds: float | None
    max_total_num_tokens: int | None
    max_running_requests: int | None
    memory: list[MemoryFigureShape]
    peaks: list[MemoryFigureShape]
    decoding: DecodingShape | None
    benches: list[BenchShape]
    remark: str | None


class EndShape(TypedDict):
    """How a run ended: the verdict in short. The rest is at `/crashes/{id}`."""

    ended_at: str
    is_crash: bool
    cause: str
    strength: str | None
    became_ready: bool
    summary: str


class RunEntryShape(FactsShape):
    """A run. `end` is null while it lives; `changes` are the arguments that differ from the run before it of the same
    unit, `before_id`, null where there is none that printed its arguments."""

    id: str
    unit: str
    server: str
    invocation_id: str
    boot_id: str
    started_at: str
    end: EndShape | None
    before_id: str | None
    changes: list[ChangeShape]


class RunDetailShape(RunEntryShape):
    """A run with its whole effective configuration, name → value as SGLang printed it."""

    configuration: dict[str, str]


class TuningRowShape(TypedDict):
    """The runs with one value. `best` and `median` are by concurrency; the median is that of the run with the most
    lines there. `ends` counts causes, with `running` for a run that lives."""

    value: str | None
    runs: list[str]
    best: dict[str, float]
    median: dict[str, float]
    accept_length: float | None
    max_running_requests: int | None
    ready: int
    crashes: int
    ends: dict[str, int]


class TuningShape(TypedDict):
    """A tuning table: one row a value of the argument `by`. `also_varied` are other arguments that differ between its
    runs: what they do is in the figures too."""

    server: str
    by: str
    rows: list[TuningRowShape]
    also_varied: list[str]
