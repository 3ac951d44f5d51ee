"""Every fact that the sources can know. A fact is not a cause: only rules name causes.

Fields keep the spelling of their origin (`oom_memcg`, `task_memcg`, `unit_result`, `xid`), in snake case.
Sizes are bytes and end in `_bytes`, times are microseconds and end in `_usec`.
Adding a fact: one class here, one parser in `forensics/sources/`.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Where a fact was read, so that anybody can find the raw record again.

    `source` is the name of a module in `forensics/sources`; `ref` a journal cursor, a path, or `file:line`;
    `message` the text as it was written, secrets removed; `pid` the writer's. Facts are ordered by
    `monotonic_usec` within one `boot_id`; saved plain text has no monotonic clock and carries its wall clock there.
    """

    source: str
    ref: str
    boot_id: str
    monotonic_usec: int
    realtime_usec: int
    message: str
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact at a time."""

    kind: ClassVar[str] = ""
    record: Record

    @property
    def usec(self) -> int:
        return self.record.monotonic_usec


# --- the kernel (forensics/sources/kernel.py) --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill(Event):
    """`oom-kill:constraint=…`: the kernel chose a victim. `oom_memcg` is None when the whole host was short.

    Kernels before 5.0 spread this over lines that name either the pid or the cgroups (`constraint` decides between
    host and cgroup there); what a line does not name is None or empty.
    """

    kind = "oom-kill"
    constraint: str
    oom_memcg: str | None
    task_memcg: str | None
    task: str
    oom_victim_pid: int | None
    uid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OomVictim(Event):
    """`Killed process N (comm) total-vm:…`: always printed, with sizes, but without the cgroup's path. `memcg` is None
    where the line does not say (kernels before 5.0)."""

    kind = "oom-victim"
    victim_pid: int
    task: str
    memcg: bool | None
    anon_rss_bytes: int | None = None
    file_rss_bytes: int | None = None
    shmem_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OomLimit(Event):
    """`memory: usage …kB, limit …kB, failcnt …`: the memory cgroup's figures at the kill."""

    kind = "oom-limit"
    usage_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid(Event):
    """`NVRM: Xid (PCI:…): N, …`: the NVIDIA driver reports an error of a GPU."""

    kind = "xid"
    pci_bus_id: str
    xid: int
    xid_pid: int | None
    name: str | None
    caused_by_xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLost(Event):
    """The driver can no longer reach a GPU on the bus (also printed without an Xid number)."""

    kind = "gpu-lost"
    pci_bus_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverNoMemory(Event):
    """`NVRM: … NV_ERR_NO_MEMORY`: the driver could not get host memory (unified-memory machines wedge so)."""

    kind = "driver-no-memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segfault(Event):
    """`comm[pid]: segfault at …`, `traps: comm[pid] general protection fault …`, `trap invalid opcode`."""

    kind = "segfault"
    comm: str
    fault_pid: int
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HungTask(Event):
    """`INFO: task comm:pid blocked for more than N seconds.`"""

    kind = "hung-task"
    comm: str
    hung_pid: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed(Event):
    """A trusted record in words that no parser knows. `about` is `oom`: silence about OOM kills then proves nothing."""

    kind = "unparsed"
    about: str


# --- systemd, PID 1 (forensics/sources/systemd.py) ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStarting(Event):
    """A start job begins."""

    kind = "unit-starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStarted(Event):
    """The start job finished: ready, since our units wait for the server's answer."""

    kind = "unit-started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed(Event):
    """The start job ended without success; `job_result` failed, timeout, dependency, canceled …"""

    kind = "start-failed"
    job_result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(Event):
    """`Stopping …`: a stop or restart job. `job_type` is `stop` in both cases."""

    kind = "stop-requested"
    job_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStopped(Event):
    """`Stopped …`; also logged at every automatic restart. `job_type` `stop` with no `Stopping` before it means
    that the stop came while the unit was still activating."""

    kind = "unit-stopped"
    job_type: str
    job_result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit(Event):
    """`Main|Control process exited, code=…, status=…`. `command` is `ExecStart`, `ExecStartPre` …

    `exit_code` is `exited`, `killed` or `dumped`; `exit_status` the exit status or the signal's number.
    """

    kind = "process-exit"
    process: str
    command: str
    exit_code: str
    exit_status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTimedOut(Event):
    """`State 'stop-sigterm' timed out. Killing.`, `start operation timed out. Terminating.`

    `state` is systemd's word (`stop-sigterm`, `final-sigterm`, `stop-post`, `start`, `start-post` …),
    `action` what systemd did next (`Killing`, `Terminating`, `Aborting`, `Skipping SIGKILL` …).
    """

    kind = "state-timed-out"
    state: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdKill(Event):
    """`Killing process N (comm) with signal SIG….`: a signal that PID 1 itself sent (never an ordinary SIGTERM)."""

    kind = "systemd-kill"
    target_pid: int
    comm: str
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKill(Event):
    """`Sent signal SIG… to main process N (comm) on client request.`: somebody used `systemctl kill`."""

    kind = "client-kill"
    signal: str
    target_pid: int | None
    comm: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOomKill(Event):
    """`A process of this unit has been killed by the OOM killer.`: memory.events' oom_kill rose, who died is open."""

    kind = "unit-oom-kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceOomKill(Event):
    """systemd-oomd (PID 1 or oomd itself), earlyoom or nohang said that it killed, or signalled, something.

    `tool` is `systemd-oomd`, `earlyoom` or `nohang`; `cgroup` and `victim_pid` where the tool names them.
    """

    kind = "userspace-oom-kill"
    tool: str
    victim_pid: int | None = None
    comm: str | None = None
    cgroup: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult(Event):
    """The unit came to rest: `unit_result` is systemd's `Result=` (`success`, `signal`, `timeout`, `oom-kill` …)."""

    kind = "unit-result"
    unit_result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartScheduled(Event):
    """`Scheduled restart job, restart counter is at N.`"""

    kind = "restart-scheduled"
    n_restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLimitHit(Event):
    """`Start request repeated too quickly.`"""

    kind = "start-limit-hit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWatchdogTimeout(Event):
    """`Watchdog timeout (limit …)!`: systemd's own WatchdogSec= ran out; or `Watchdog request (…)!`, asked for by a
    process of the unit, where `limit` is empty."""

    kind = "service-watchdog-timeout"
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailed(Event):
    """`Failed to execute …`, `Failed at step EXEC spawning …`: from the forked child, hence a hint only."""

    kind = "spawn-failed"
    step: str
    executable: str | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOverProcess(Event):
    """`Found left-over process N (comm) in control group while starting unit.`, `… remains running after …`."""

    kind = "left-over-process"
    left_pid: int
    comm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unkillable(Event):
    """`Processes still around after SIGKILL. Ignoring.`: typical of GPU processes in uninterruptible sleep."""

    kind = "unkillable"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShutdown(Event):
    """An orderly shutdown or reboot of the host is under way."""

    kind = "host-shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BootEnded(Event):
    """The journal of this boot simply ends: a later boot follows. The stamp is the boot's last entry's."""

    kind = "boot-ended"
    orderly: bool


# --- core dumps (forensics/sources/coredump.py) -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreDump(Event):
    """systemd-coredump caught a dying process."""

    kind = "core-dump"
    coredump_pid: int
    comm: str
    exe: str | None
    signal: int
    unit: str | None
    truncated: bool = False


# --- the server's own log (forensics/sources/server.py) -----------------------------------------------------
# These lines can quote a user's prompt. `record.pid` is journald's word on who wrote them; the text is not.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArgs(Event):
    """`server_args=…`: the effective configuration, secrets removed; name → value as printed."""

    kind = "server-args"
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone(Event):
    """A step of the start or the stop that SGLang announces. `name` is one of `sources.server.MILESTONES`."""

    kind = "milestone"
    name: str
    tag: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Event):
    """`Prefill batch…` / `Decode batch…`: what the server was doing; figures as printed, keys without `#`."""

    kind = "batch"
    phase: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceback(Event):
    """A Python traceback, assembled from its lines.

    `header` is the line that announced it (`Scheduler hit an exception`), or empty; `process` the role of the
    writer (`main`, `scheduler`, `detokenizer`, `controller`, or empty); `exception` the type as printed; `text`
    its message (first lines); `frames` innermost last, each `file:line in function`; `chained` the types of the
    exceptions it came from, first cause first. `tag` is SGLang's rank tag (` TP0`).
    """

    kind = "traceback"
    header: str
    process: str
    tag: str
    exception: str
    text: str
    frames: tuple[str, ...]
    chained: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError(Event):
    """A line of the server that states a failure; `name` is a row of `sources.server.ERRORS`, `values` its figures."""

    kind = "server-error"
    name: str
    process: str = ""
    tag: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignal(Event):
    """SGLang says that it received a signal, or that it now kills its own tree.

    `name`: `sigterm-received`, `sigint-received`, `sigquit-received`, `child-failed` (SIGQUIT while launching),
    `kill-process-tree`, `draining`, `force-exit`.
    """

    kind = "server-signal"
    name: str
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDied(Event):
    """SGLang's main process noticed that a child died: `Subprocess scheduler_0 (pid=N) crashed with exit code -9`,
    `Rank 0 scheduler died during initialization (exit code: -9)`. A negative code is minus the signal."""

    kind = "child-died"
    child: str
    child_pid: int | None
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FatalPythonError(Event):
    """faulthandler's `Fatal Python error: …`, with the frames of the current thread, innermost first."""

    kind = "fatal-python-error"
    error: str
    process: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeAbort(Event):
    """`terminate called after throwing an instance of 'T'` with its `what()`, or glibc's `free(): invalid pointer`."""

    kind = "native-abort"
    exception: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightRefused(Event):
    """One of our own steps around the start said no; `check` is the check's name, `spec` for a spec with mistakes, or
    `not-ready` when the wait for readiness gave up."""

    kind = "preflight-refused"
    check: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats(Event):
    """How much the server wrote in this run: one fact a run, made when it ended. The record is the last line's."""

    kind = "log-stats"
    lines: int
    first_usec: int
    last_usec: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStats(Event):
    """What the run's decode lines came to: one fact a run, made when it ended. `tally` is what
    `forensics.runs.decoding.dump` gives, as JSON."""

    kind = "decode-stats"
    tally: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult(Event):
    """`inquest bench` measured this run with SGLang's own `bench_serving`: the options that say how, and its figures
    under its own names."""

    kind = "bench-result"
    options: str
    figures: tuple[tuple[str, str], ...]


# --- sampled while the server lives, since they vanish with it (cgroup, process, gpu, host, unit) ------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMemory(Event):
    """memory.current, .peak, .max, .swap.current and memory.events of the unit's cgroup; None where absent."""

    kind = "cgroup-memory"
    current_bytes: int | None
    peak_bytes: int | None
    max_bytes: int | None
    swap_current_bytes: int | None
    oom: int | None
    oom_kill: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory(Event):
    """/proc/meminfo and the host-wide `oom_kill` counter of /proc/vmstat, which counts every OOM kill of the
    kernel on this machine, in any cgroup: unchanged over a death means that no OOM killer was at work."""

    kind = "host-memory"
    total_bytes: int
    available_bytes: int
    swap_free_bytes: int
    vmstat_oom_kill: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a GPU as NVML sees it; None when the driver does not say how much it holds."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory(Event):
    """NVML's view of one GPU. None where NVML says NotSupported (unified-memory machines)."""

    kind = "gpu-memory"
    uuid: str
    index: int
    name: str
    pci_bus_id: str
    total_bytes: int | None
    used_bytes: int | None
    processes: tuple[GpuProcess, ...]
    performance_state: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the unit's cgroup."""

    pid: int
    ppid: int
    comm: str
    cmdline: str
    rss_bytes: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTree(Event):
    """The processes of the unit's cgroup; `main_pid` is systemd's MainPID."""

    kind = "process-tree"
    main_pid: int | None
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState(Event):
    """Properties of the unit over D-Bus, read while `invocation_id` was still this run's. `launch_blocking` is whether
    its environment makes the runtime wait for each kernel, so that an error is reported where it happened."""

    kind = "unit-state"
    active_state: str
    sub_state: str
    result: str
    exec_main_pid: int | None
    exec_main_code: int | None
    exec_main_status: int | None
    n_restarts: int | None
    control_group: str
    timeout_stop_usec: int | None
    memory_max_bytes: int | None
    oom_policy: str | None
    restart: str | None = None
    restart_usec: int | None = None
    launch_blocking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftProcess:
    """A process of the run that still existed after its end; `state` is the kernel's letter (`S`, `D`, `T` …)."""

    pid: int
    start_ticks: int
    state: str
    comm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What a process held of a GPU after the end: one that is left of the run (`left`), or another's."""

    pid: int
    used_bytes: int | None
    left: bool
    comm: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLeft:
    """One GPU after the end; None where NVML does not say."""

    index: int
    uuid: str
    performance_state: int | None
    used_bytes: int | None
    total_bytes: int | None
    uses: tuple[GpuUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains(Event):
    """What the unit's ExecStopPost wrote before the cgroup was gone: counters, systemd's view of the end, and how it
    found the ground. `left` is None where nobody looked, `gpus` where the machine has none of NVIDIA's or they did not
    answer; `blind` says what could not be seen, and `last_log_usec` when the server last wrote, since the epoch."""

    kind = "remains"
    service_result: str
    exit_code: str
    exit_status: str
    memory: CgroupMemory | None
    left: tuple[LeftProcess, ...] | None = None
    gpus: tuple[GpuLeft, ...] | None = None
    last_log_usec: int | None = None
    blind: tuple[str, ...] = ()


# --- asked while it lives, by the heartbeat in its unit (forensics/sources/heartbeat.py) ----------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedProcess:
    """A process of a server that did not answer; `state` is the kernel's letter, `T` for stopped."""

    pid: int
    state: str
    comm: str
    cmdline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAnswering(Event):
    """The unit was active, and no answer came to a health check from outside.

    `since_usec` is when it was last seen to answer, since the epoch; `probe` what came instead (`nothing`,
    `ConnectionRefusedError`); `lost` names the processes that had ended since it was ready; `stacks` are those of main
    and schedulers, or why there are none; `on_hang` is `tell`, or `restart` where systemd is to end it.
    """

    kind = "not-answering"
    since_usec: int
    probe: str
    processes: tuple[AskedProcess, ...]
    lost: tuple[str, ...]
    stacks: str
    on_hang: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering(Event):
    """A server that had not answered answers again."""

    kind = "answering"


# --- who sent the signal (forensics/sources/sigtrace.py) -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSent(Event):
    """The tracepoint `signal:signal_generate`: who sent which signal to whom.

    `from_kernel`: the kernel itself (the OOM killer, a terminal's Ctrl-C); its sender is whoever happened to run.
    `sender_unit` is empty when the sender was gone too soon; `sender_detail` what else is known of it, for people.
    """

    kind = "signal-sent"
    signal: int
    sender_pid: int
    sender_comm: str
    from_kernel: bool
    target_pid: int
    target_comm: str
    sender_detail: str = ""
    sender_unit: str = ""
    target_unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTracing(Event):
    """The tracer says from when on it has seen every signal to this run, or that some may have passed unseen.

    `since_usec` is monotonic; None means an interruption at the record's time.
    """

    kind = "signal-tracing"
    since_usec: int | None


# --- what nobody may believe (forensics/sources/rejected.py) --------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Event):
    """A record that speaks as a sender that did not write it. No rule looks at it.

    `claims` is that sender (`kernel`, `systemd`, `systemd-oomd` …), `imitates` the kind of fact that his record would
    have been, empty where it would have been none; `writer` and `writer_unit` who really wrote it (its pid is the
    record's); `about_unit`, `about_pid` what it speaks of; `count` how many of this kind there were, of which this is
    the first; `why` says what is believed instead.
    """

    kind = "rejected"
    claims: str
    imitates: str
    writer: str
    writer_unit: str
    about_unit: str
    about_pid: int | None
    why: str
    count: int = 1


# Each fact that may be stored, by its kind.
EVENT_TYPES: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__subclasses__()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stretch of a source that could not be read: unreadable, dropped, rate-limited, rotated, not there.

    The bounds are monotonic microseconds of the run's boot; None means open at that side.
    """

    source: str
    reason: str
    from_usec: int | None = None
    to_usec: int | None = None
