"""The words of an inquest: a run, a finding, a verdict, a crash. Standard library only."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from forensics.events import Event, Gap, Rejected
from forensics.runs.decoding import Decoding
from forensics.timeline import Timeline


class Strength(StrEnum):
    """How far a finding carries. There are no percentages: they hide what is missing."""

    CONFIRMED = "confirmed"
    """A record that cannot be forged names our process, cgroup or GPU, and explains the exit."""
    LIKELY = "likely"
    """It fits, but a named alternative is open."""


class Role(StrEnum):
    """What a record is to the death that it is evidence of."""

    INITIATING = "initiating"
    CASCADE = "cascade"
    TEARDOWN = "teardown"
    CONTEXT = "context"


class Family(StrEnum):
    KERNEL_OOM = "kernel-oom"
    STOP_TIMEOUT = "stop-timeout"
    STOP = "stop"
    SIGNAL = "signal"
    CUDA = "cuda"
    TRACEBACK = "traceback"
    NATIVE = "native"
    HANG = "hang"
    START = "start"
    HOST = "host"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """How far the run had come when it began to die."""

    BEFORE_LOGGING = "before-logging"
    STARTUP = "startup"
    WARMUP = "warmup"
    SERVING = "serving"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One life of a unit: one invocation id. Made by the tracker from the run's own records.

    `pids` maps each process that was seen to its role (`main`, `scheduler`, `detokenizer`, `controller`,
    `tokenizer`, `child`, or empty). Stamps are monotonic microseconds of `boot_id`; `ended_usec` is when the
    unit came to rest. `exit_code` (`exited`, `killed`, `dumped`) and `exit_status` are the main process's, None
    when systemd did not say. `control_group` is the cgroup's path below the mount point, as the kernel prints it.
    """

    unit: str
    invocation_id: str
    boot_id: str
    control_group: str
    main_pid: int | None
    pids: dict[int, str]
    started_usec: int
    ended_usec: int
    died_at: datetime
    result: str | None
    exit_code: str | None
    exit_status: int | None
    n_restarts: int | None = None

    def owns_cgroup(self, path: str | None) -> bool:
        """Whether a cgroup path from the kernel's log is this unit's or below it. Container prefixes may stand
        before it, and v1 paths look the same, so whole components decide; but below a user's own manager
        (`user@N.service`) a unit of the same name is another one."""
        if not path:
            return False
        if self.control_group and f"{path}/".startswith(f"{self.control_group}/"):
            return True
        parts = path.split("/")
        return self.unit in parts and not any(part.startswith("user@") for part in parts)

    def owns_pid(self, pid: int | None) -> bool:
        return pid is not None and (pid == self.main_pid or pid in self.pids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One record in its role, and why it matters in a few words."""

    role: Role
    event: Event
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule concluded. `key` are the stable parts for the fingerprint.

    `awaits` names sources whose late records could still overturn the finding (`kernel`, `coredump`): a finding
    that rests on silence is not told before they had their time.
    """

    strength: Strength
    summary: str
    evidence: tuple[Evidence, ...]
    subclass: str = ""
    key: tuple[str, ...] = ()
    awaits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotThis:
    """A rule looked and says why it is not this cause."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    cause: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What the server was last seen doing: figures as SGLang printed them."""

    figures: tuple[tuple[str, str], ...] = ()
    seconds_before_death: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigure:
    """One row of the memory table: `what` it is, how much, and who says so."""

    what: str
    size_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStory:
    """Where the memory went, as far as it was recorded, and one sentence on it."""

    sentence: str
    figures: tuple[MemoryFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """`OOMPolicy=` and `Restart=` as PID 1 had them, None where they were not read, and what it does about the end."""

    oom_policy: str | None = None
    restart: str | None = None
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer. `cause` is a stable slug (`unknown` when nothing is decisive), `strength` None for those.

    `is_crash` is False for a clean stop. `also` are the other causes whose rules matched: cascades, usually.
    `settled` is False while late evidence may still overturn it. `rejected` are records that speak as somebody who did
    not write them: they changed nothing.
    """

    cause: str
    family: Family
    strength: Strength | None
    subclass: str
    summary: str
    phase: Phase
    became_ready: bool
    is_crash: bool
    doing: Doing
    evidence: tuple[Evidence, ...]
    ruled_out: tuple[RuledOut, ...]
    also: tuple[str, ...]
    gaps: tuple[Gap, ...]
    notes: tuple[str, ...]
    advice: tuple[str, ...]
    fingerprint: str
    signature: str
    awaits: tuple[str, ...] = ()
    memory: MemoryStory | None = None
    ground: tuple[str, ...] = ()
    speculation: tuple[tuple[str, str], ...] = ()
    rejected: tuple[Rejected, ...] = ()
    supervision: Supervision = Supervision()

    @property
    def settled(self) -> bool:
        return not self.awaits


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A run, its timeline and the verdict on it: what is stored, shown, and judged again later.

    `crash_id` is the first 12 hex digits of the invocation id. `revision` counts the verdicts (1 is the first).
    """

    run: Run
    timeline: Timeline
    verdict: Verdict
    revision: int = 1

    @property
    def crash_id(self) -> str:
        return self.run.invocation_id[:12]


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """A run in the making: what the tracker knows of one invocation so far. Saved at each checkpoint."""

    unit: str
    invocation_id: str
    boot_id: str
    first_usec: int
    first_realtime_usec: int
    control_group: str = ""
    main_pid: int | None = None
    pids: dict[int, str] = field(default_factory=dict)
    lines: int = 0
    first_line_usec: int | None = None
    last_line_usec: int | None = None
    last_realtime_usec: int = 0
    events: list[Event] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    decoding: Decoding = field(default_factory=Decoding)
    remarked: bool = False
    """Whether people were told what is odd about its speculation."""
    silences_told: int = 0
    """How many of the heartbeat's records, of a server that does not answer or answers again, were passed on."""
    ended_usec: int | None = None
    ended_realtime_usec: int | None = None
