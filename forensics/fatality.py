"""Which of the server's own failures it did not outlive. Pure functions of (run, timeline).

What a server prints proves little by itself: tracebacks are handled, prompts quote errors, side threads die. A line
is a failure here only when its writer could have said it, no work went on after it, and the end came when it should.
"""

import re
from collections.abc import Iterator

from forensics.events import (
    Batch,
    ChildDied,
    Event,
    FatalPythonError,
    LogStats,
    Milestone,
    NativeAbort,
    ProcessExit,
    ServerArgs,
    ServerError,
    ServerSignal,
    Traceback,
)
from forensics.model import Run
from forensics.timeline import Timeline

Failure = Traceback | FatalPythonError | NativeAbort | ChildDied | ServerError

NATIVE_SIGNALS = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 31: "SIGSYS"}

SURVIVAL_USEC = 2_000_000
"""A process that still works so long after an exception has outlived it. Death by exception takes milliseconds."""

LINGER_USEC = 120_000_000
"""After the death of one child the others can work on for so long: main waits for stacks and core dumps first."""

PATIENCE_USEC = 150_000_000
"""From a failure to main's end at most: 5 s of rest, stacks, 60 s for core dumps, 60 s for reaping the children."""

_UNCAUGHT_USEC = 75_000_000
"""From an exception that nobody caught to the end of its process: it waits for its children."""

_STREAM_LATE_USEC = 1_000_000
"""Last words on stdout may reach journald after PID 1's record of the exit."""

_SILENT_USEC = 10_000_000
_HANGING_USEC = 900_000_000
"""A main process whose exception nobody caught can wait for so long for children that do not end."""
_TOLD_USEC = 30_000_000
_USAGE_USEC = 10_000_000

_ENDING_HEADERS = ("Scheduler hit", "TpModelWorkerClient hit", "DetokenizerManager hit", "DataParallelController hit")
_MAINS_HEADERS = ("TokenizerManager hit", "Initialization failed")
_SPARED_HEADERS = (
    "--- Logging error",
    "Exception ignored",
    "Exception in thread",
    "ERROR: ",
    "INFO: ",
    "Task exception",
    "Error in ",
)
_ASKED_FOR = ("KeyboardInterrupt", "SystemExit", "CancelledError")
_ECHO_TYPES = (
    "EOFError",
    "BrokenPipeError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
)
_ECHO_TEXT = re.compile(
    r"scheduler died during initialization|Connection closed by (?:remote )?peer|[Bb]roken pipe|remote process exited"
    r"|Connection reset by peer|recvValue failed|failed to recv, got 0 bytes|Socket (?:recv|send) failed"
    r"|could finish the model loading, but there are other ranks|^Server process exited with code -?\d"
)
_PEER_TEXT = re.compile(r"NCCL|nccl|[Gg]loo|TCPStore|DistBackendError|DistNetworkError|ZMQError|zmq|socket|peer")
_FAILING_ERRORS = (
    "scheduler-watchdog", "nccl-timeout", "nccl-heartbeat", "process-group-watchdog", "usage-error", "device-assert",
    "address-in-use", "glibc-abort", "c-assert", "llvm-error", "foreign-error", "gpu-memory-fault", "caught-signal",
    "failed-check",
)  # fmt: skip
_NEVER_MAINS = ("scheduler-watchdog", "nccl-timeout", "nccl-heartbeat", "process-group-watchdog", "device-assert",
                "gpu-memory-fault")  # fmt: skip
"""Said by main, which has no GPU, these are somebody's prompt."""

_ABORTS = ("glibc-abort", "c-assert", "llvm-error", "caught-signal", "failed-check")

_CHILDREN = ("scheduler", "detokenizer", "controller", "tokenizer")


def is_echo(failure: Failure) -> bool:
    """Whether a failure only says that somebody else is gone."""
    if isinstance(failure, ChildDied):
        return True
    if isinstance(failure, Traceback):
        kind = failure.exception.rsplit(".", 1)[-1]
        return kind in _ECHO_TYPES or _ECHO_TEXT.search(failure.text) is not None
    if isinstance(failure, ServerError):
        return failure.name == "foreign-error" and _ECHO_TEXT.search(failure.record.message) is not None
    return False


def speaks_of_peers(failure: Failure) -> bool:
    """Whether a failure is of the kind that the loss of another rank brings about."""
    if isinstance(failure, Traceback):
        return is_echo(failure) or _PEER_TEXT.search(f"{failure.exception}: {failure.text}") is not None
    if isinstance(failure, NativeAbort):
        return _PEER_TEXT.search(f"{failure.exception}: {failure.what}") is not None
    return isinstance(failure, ServerError) and failure.name.startswith("nccl")


def end_usec(run: Run, timeline: Timeline) -> int:
    """When main ended, or else when the unit came to rest."""
    exit_ = next((event for event in timeline.all(ProcessExit) if event.process == "main"), None)
    return exit_.usec if exit_ is not None else run.ended_usec


def outlived(run: Run, timeline: Timeline, event: Event, after_usec: int = SURVIVAL_USEC) -> bool:
    """Whether work went on after the event in the process that it befell; anywhere, for one whose part is unknown."""
    pid = event.record.pid
    role = run.pids.get(pid, "") if pid is not None else ""
    role = role or (event.process if isinstance(event, Traceback) else "")
    needed = pid is not None and (pid == run.main_pid or role in (*_CHILDREN, "main", "child"))
    for later in timeline.events:
        works = isinstance(later, Batch) or (isinstance(later, Milestone) and later.name in ("ready", "kv-cache"))
        if not works or later.usec <= event.usec + after_usec:
            continue
        # Batches are logged by schedulers, which die with main: they speak for main's life too.
        if not needed or later.record.pid in (None, pid) or pid == run.main_pid:
            return True
        # Of several ranks one writes them; none works on for long without the others.
        if later.usec > event.usec + LINGER_USEC:
            return True
    return False


def failures(run: Run, timeline: Timeline) -> Iterator[Failure]:
    """In order, whether or not a stop had been asked for before."""
    fatal = _Fatal(run, timeline)
    for event in timeline.events:
        if event.usec > fatal.end_usec + _STREAM_LATE_USEC:
            break  # Whoever still wrote had lost main.
        if isinstance(event, Traceback):
            if fatal.traceback(event):
                yield event
        elif isinstance(event, ChildDied):
            if fatal.child_death(event):
                yield event
        elif isinstance(event, FatalPythonError | NativeAbort):
            if fatal.native(event):
                yield event
        elif isinstance(event, ServerError) and event.name in _FAILING_ERRORS and fatal.error(event):
            yield event


class _Fatal:
    def __init__(self, run: Run, timeline: Timeline) -> None:
        self.run, self.timeline = run, timeline
        self.end_usec = end_usec(run, timeline)
        stats = timeline.first(LogStats)
        self.last_line_usec = stats.last_usec if stats else self.end_usec

    def child_death(self, died: ChildDied) -> bool:
        """Main may quote a prompt that says so: then the child worked on."""
        if self.end_usec - died.usec > PATIENCE_USEC or outlived(self.run, self.timeline, died, LINGER_USEC):
            return False
        lines = (batch for batch in self.timeline.all(Batch) if batch.usec > died.usec + SURVIVAL_USEC)
        return died.child_pid is None or not any(batch.record.pid == died.child_pid for batch in lines)

    def traceback(self, traceback: Traceback) -> bool:
        run, pid = self.run, traceback.record.pid
        if traceback.exception.rsplit(".", 1)[-1] in _ASKED_FOR or outlived(run, self.timeline, traceback):
            return False
        if traceback.header.startswith(_ENDING_HEADERS):
            # Said by main of itself, this is a prompt in main's request log: schedulers are processes of their own.
            return pid is None or pid != run.main_pid
        if traceback.header.startswith(_MAINS_HEADERS):
            return pid is None or run.main_pid in (None, pid)
        if traceback.header.startswith(_SPARED_HEADERS) or not self._ends_its_process(traceback):
            return False
        if traceback.process in ("main", ""):
            # An uncaught exception ends Python with status 1, and nothing of that process follows it.
            # uvicorn prints one that came while it started, and leaves with 3.
            statuses = (None, 3) if traceback.header.startswith("ERROR") else (None, 1)
            return run.exit_code in (None, "exited") and run.exit_status in statuses
        # A child that raised leaves with a status, never by a signal.
        died = self.timeline.first(ChildDied, after=traceback.usec)
        return died is None or died.exit_code is None or died.exit_code >= 0

    def _ends_its_process(self, traceback: Traceback) -> bool:
        """The end came soon, or a sign of it; of main, at least nobody wrote a line any more: else it was handled."""
        waited = self.end_usec - traceback.usec
        if waited <= _UNCAUGHT_USEC or self._sign_after(traceback):
            return True
        silent = self.last_line_usec - traceback.usec <= _SILENT_USEC and waited <= _HANGING_USEC
        return silent and traceback.process in ("main", "")

    def _sign_after(self, event: Event) -> bool:
        """Whether main soon spoke of a child's death, or was told of one."""
        signs = ("sigquit-received", "child-failed")
        return any(
            0 <= later.usec - event.usec <= _UNCAUGHT_USEC
            and (isinstance(later, ChildDied) or (isinstance(later, ServerSignal) and later.name in signs))
            for later in self.timeline.events
        )

    def native(self, event: FatalPythonError | NativeAbort) -> bool:
        run, pid = self.run, event.record.pid
        if outlived(run, self.timeline, event):
            return False
        if pid is not None and pid == run.main_pid:
            return self._main_may_have_crashed()
        role = run.pids.get(pid, "") if pid is not None else "unknown"
        return role in (*_CHILDREN, "unknown") or self.end_usec - event.usec <= _USAGE_USEC

    def _main_may_have_crashed(self) -> bool:
        code, status = self.run.exit_code, self.run.exit_status
        if code is None:
            return self.run.result != "success"
        return code != "exited" and status in NATIVE_SIGNALS

    def error(self, error: ServerError) -> bool:
        run, pid = self.run, error.record.pid
        if dict(error.values).get("soft") == "True":
            return False
        if outlived(run, self.timeline, error) and not (error.name == "scheduler-watchdog" and self._told_main(error)):
            return False
        mains = pid is not None and pid == run.main_pid
        if error.name in _NEVER_MAINS and (mains or not self._took_effect(error)):
            return False
        if error.name in _ABORTS and mains:
            return self._main_may_have_crashed()
        if error.name == "usage-error":
            status = run.exit_code in (None, "exited") and run.exit_status in (None, 2)
            return status and self.end_usec - error.usec <= _USAGE_USEC and not self._started(error)
        return error.name != "address-in-use" or not self._opened(error)

    def _took_effect(self, error: ServerError) -> bool:
        """Whether the end came in due time, or its process spoke of its own death: each of these leads to that."""
        if self.end_usec - error.usec <= PATIENCE_USEC:
            return True
        ends = (
            event for event in self.timeline.events if isinstance(event, FatalPythonError | NativeAbort | Traceback)
        )
        return any(
            event.record.pid == error.record.pid and 0 <= event.usec - error.usec <= PATIENCE_USEC for event in ends
        )

    def _told_main(self, error: ServerError) -> bool:
        """Whether SIGQUIT reached main soon after, for nothing else, and the end followed, even if work had resumed."""
        for event in self.timeline.events:
            if not 0 <= event.usec - error.usec <= _TOLD_USEC:
                continue
            if isinstance(event, Traceback) and event.header.startswith(_ENDING_HEADERS):
                return False
            if isinstance(event, ServerSignal) and event.name in ("sigquit-received", "child-failed"):
                return self.end_usec - error.usec <= PATIENCE_USEC
        return False

    def _started(self, event: Event) -> bool:
        """Whether the arguments had been accepted before."""
        return any(isinstance(e, ServerArgs | Milestone) and e.usec <= event.usec for e in self.timeline.events)

    def _opened(self, event: Event) -> bool:
        """Whether the server had its port before."""
        opened = ("uvicorn-running", "ready")
        return any(m.name in opened and m.usec <= event.usec for m in self.timeline.all(Milestone))
