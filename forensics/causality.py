"""Who died first? One reading of a run's end that all rules share: what was asked, what failed, what only echoed it.

Pure functions of (run, timeline). The initiating event is told from the cascade (SIGQUIT to main, EOFError, broken
pipes, SGLang's SIGKILL of its own tree) and from the teardown (whatever happens after a stop was asked for).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from forensics.events import (
    Batch,
    BootEnded,
    ChildDied,
    CoreDump,
    Event,
    FatalPythonError,
    HostMemory,
    HostShutdown,
    Milestone,
    NativeAbort,
    OomKill,
    OomVictim,
    ProcessExit,
    Remains,
    Segfault,
    ServerError,
    ServerSignal,
    ServiceWatchdogTimeout,
    SignalSent,
    StateTimedOut,
    StopRequested,
    Traceback,
    UnitOomKill,
    UnitStopped,
)
from forensics.model import Evidence, Role, Run
from forensics.senders import Origin, by_whom, fatal_to_main, origin, signals_to
from forensics.timeline import Timeline

Failure = Traceback | FatalPythonError | NativeAbort | ChildDied | ServerError

STREAM_SKEW_USEC = 500_000
"""The server's reaction to SIGTERM can stand before `Stopping …`: stdout and PID 1 reach journald by two sockets."""

SURVIVAL_USEC = 2_000_000
"""A process that still works so long after an exception has outlived it. Death by exception takes milliseconds."""

LINGER_USEC = 120_000_000
"""After the death of one child the others can work on for so long: main waits for stacks and core dumps first."""

LATE_KERNEL_USEC = 1_500_000
"""The kernel's clock lags behind and its records arrive late: a record may seem to follow the death it caused."""

NATIVE_SIGNALS = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 31: "SIGSYS"}
SIGNALS = NATIVE_SIGNALS | {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 13: "SIGPIPE", 15: "SIGTERM"}

_STOP_STATES = ("stop", "stop-sigterm", "stop-watchdog", "stop-post", "final-sigterm", "final-watchdog")
_START_STATES = ("start", "start-pre", "start-post")
_ENDING_HEADERS = ("Scheduler hit", "TpModelWorkerClient hit", "DetokenizerManager hit", "DataParallelController hit")
_SPARED_HEADERS = ("Exception ignored", "Exception in thread", "ERROR: ", "INFO: ", "Task exception", "Error in ")
_ASKED_FOR = ("KeyboardInterrupt", "SystemExit", "asyncio.exceptions.CancelledError", "CancelledError")
_ECHO_TYPES = (
    "EOFError",
    "BrokenPipeError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
)
_ECHO_TEXT = re.compile(
    r"scheduler died during initialization|Connection closed by peer|[Bb]roken pipe|remote process exited"
    r"|Connection reset by peer|recvValue failed|failed to recv, got 0 bytes"
)
_FAILING_ERRORS = ("scheduler-watchdog", "nccl-timeout", "nccl-heartbeat", "process-group-watchdog", "usage-error",
                   "device-assert", "address-in-use", "glibc-abort", "c-assert", "llvm-error", "foreign-error")  # fmt: skip


def is_echo(failure: Failure) -> bool:
    """Whether a failure only says that somebody else is gone."""
    if isinstance(failure, ChildDied):
        return True
    if isinstance(failure, Traceback):
        kind = failure.exception.rsplit(".", 1)[-1]
        return kind in _ECHO_TYPES or _ECHO_TEXT.search(failure.text) is not None
    return False


@dataclass(frozen=True)
class Ending:
    """How a run came to its end."""

    run: Run
    timeline: Timeline

    # --- what systemd and the administrator did --------------------------------------------------------------

    @cached_property
    def main_exit(self) -> ProcessExit | None:
        return next((e for e in self.timeline.all(ProcessExit) if e.process == "main"), None)

    @cached_property
    def control_exit(self) -> ProcessExit | None:
        return next((e for e in self.timeline.all(ProcessExit) if e.process == "control" and e.exit_status != 0), None)

    @cached_property
    def stop(self) -> Event | None:
        """Somebody asked for the stop: the record that says so. A stop before the unit was up leaves no `Stopping`,
        only, afterwards, `Stopped` by a stop job; a reboot stops everything."""
        if asked := self.timeline.first(StopRequested):
            return asked
        if stopped := next((e for e in self.timeline.all(UnitStopped) if e.job_type == "stop"), None):
            return stopped
        ended = self.timeline.first(BootEnded)
        if (shutdown := self.timeline.first(HostShutdown)) and (ended is None or ended.orderly):
            return shutdown
        if (timed_out := self.stop_timed_out) and self._main_lived_at(timed_out) and not self._systemd_had_a_reason:
            return timed_out
        return None

    @cached_property
    def stop_usec(self) -> int | None:
        """From when on whatever happens is teardown."""
        if self.stop is None:
            return None
        if isinstance(self.stop, StopRequested | HostShutdown):
            return self.stop.usec - STREAM_SKEW_USEC
        # Asked for while the unit was still starting: SGLang's own words, or the deadline, are all there is.
        said = next((s for s in self.timeline.all(ServerSignal) if s.name == "sigterm-received"), None)
        first_exit = min((e.usec for e in self.timeline.all(ProcessExit)), default=self.stop.usec)
        return min(said.usec if said else self.stop.usec, first_exit, self.stop.usec) - STREAM_SKEW_USEC

    @cached_property
    def stop_timed_out(self) -> StateTimedOut | None:
        return next(
            (
                e
                for e in self.timeline.all(StateTimedOut)
                if e.state in _STOP_STATES and e.action in ("Killing", "Aborting")
            ),
            None,
        )

    @cached_property
    def start_timed_out(self) -> StateTimedOut | None:
        return next((e for e in self.timeline.all(StateTimedOut) if e.state in _START_STATES), None)

    def _main_lived_at(self, event: Event) -> bool:
        return self.main_exit is None or self.main_exit.usec >= event.usec

    @property
    def _systemd_had_a_reason(self) -> bool:
        """systemd stops a unit of its own accord after a start timeout, a watchdog, or an OOM kill."""
        return bool(
            self.start_timed_out
            or self.timeline.first(ServiceWatchdogTimeout)
            or self.timeline.first(UnitOomKill)
            or self.control_exit
        )

    # --- what the signal tracer saw, where it runs -----------------------------------------------------------

    @cached_property
    def outsider(self) -> SignalSent | None:
        """The first traced signal from outside the run that it did not outlive. SIGTERM has it drain, at length."""
        for sent in signals_to(self.run, self.timeline):
            if sent.usec > self.run.ended_usec or origin(self.run, sent) not in (Origin.OUTSIDE, Origin.UNKNOWN):
                continue
            drains = self.sigterm is not None and self.sigterm.usec >= sent.usec - STREAM_SKEW_USEC
            if drains or not self._worked_after(sent.usec + LINGER_USEC):
                return sent
        return None

    @cached_property
    def fatal_signal(self) -> SignalSent | None:
        """The traced signal that main died of, whoever sent it."""
        return fatal_to_main(self.run, self.timeline)

    def _worked_after(self, usec: int) -> bool:
        return self.timeline.first(Batch, after=usec) is not None

    # --- what the server said --------------------------------------------------------------------------------

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Failures of the server that it did not outlive, before any stop was asked for, in order."""
        return tuple(event for event in self._all_failures() if not self._in_teardown(event))

    @cached_property
    def failure(self) -> Failure | None:
        """The failure that began it: the first that is not the echo of another; else None."""
        return next((failure for failure in self.failures if not is_echo(failure)), None)

    @cached_property
    def echo(self) -> Failure | None:
        """The first sign that a process had gone without a word."""
        return next((failure for failure in self.failures if is_echo(failure)), None)

    @cached_property
    def child_died(self) -> ChildDied | None:
        """Main's word on a child's exit status, the most telling one if there are several."""
        died = [failure for failure in self.failures if isinstance(failure, ChildDied)]
        return next((event for event in died if event.exit_code is not None), died[0] if died else None)

    @cached_property
    def sigquit(self) -> ServerSignal | None:
        """Main was told, or told itself, that a child failed."""
        return self._signal("sigquit-received", "child-failed")

    @cached_property
    def self_kill(self) -> ServerSignal | None:
        """SGLang announces (0.5.13 and later) that it now kills its tree and itself."""
        return next(
            (
                signal
                for signal in self.timeline.all(ServerSignal)
                if signal.name == "kill-process-tree" and dict(signal.values).get("include_parent") == "True"
            ),
            None,
        )

    @cached_property
    def sigterm(self) -> ServerSignal | None:
        return self._signal("sigterm-received")

    @cached_property
    def interrupted(self) -> Traceback | None:
        """Python's answer to SIGINT in main."""
        return next((t for t in self.timeline.all(Traceback) if t.exception == "KeyboardInterrupt"), None)

    def _signal(self, *names: str) -> ServerSignal | None:
        return next((signal for signal in self.timeline.all(ServerSignal) if signal.name in names), None)

    def _all_failures(self) -> Iterator[Failure]:
        for event in self.timeline.events:
            if isinstance(event, Traceback):
                if self._fatal_traceback(event):
                    yield event
            elif isinstance(event, ChildDied):
                if not self.outlived(event, LINGER_USEC):
                    yield event
            elif isinstance(event, FatalPythonError | NativeAbort):
                if not self.outlived(event):
                    yield event
            elif isinstance(event, ServerError) and event.name in _FAILING_ERRORS and self._fatal_error(event):
                yield event

    def _fatal_error(self, error: ServerError) -> bool:
        if dict(error.values).get("soft") == "True" or self.outlived(error):
            return False
        if error.name == "usage-error":
            return self.run.exit_code in (None, "exited") and self.run.exit_status in (None, 2)
        return True

    def _fatal_traceback(self, traceback: Traceback) -> bool:
        if traceback.exception.rsplit(".", 1)[-1] in _ASKED_FOR or traceback.exception in _ASKED_FOR:
            return False
        if self.outlived(traceback):
            return False
        if traceback.header.startswith(_ENDING_HEADERS):
            # Said by main of itself, this is a prompt in main's request log: schedulers are processes of their own.
            return traceback.record.pid is None or traceback.record.pid != self.run.main_pid
        if traceback.header.startswith(("TokenizerManager hit", "Initialization failed")):
            return True
        if traceback.header.startswith(_SPARED_HEADERS):
            return False
        if traceback.process in ("main", ""):
            # An uncaught exception ends Python with status 1, and nothing of that process follows it.
            return self.run.exit_code in (None, "exited") and self.run.exit_status in (None, 1)
        return True

    def outlived(self, event: Event, after_usec: int = SURVIVAL_USEC) -> bool:
        """Whether work went on after the event in the process that it befell (or, without a pid, anywhere)."""
        pid = event.record.pid
        for later in self.timeline.events:
            works = isinstance(later, Batch) or (isinstance(later, Milestone) and later.name in ("ready", "kv-cache"))
            if not works or later.usec <= event.usec + after_usec:
                continue
            # Batches are logged by schedulers, which die with main: they speak for main's life too.
            if pid is None or later.record.pid in (None, pid) or pid == self.run.main_pid:
                return True
        return False

    def _in_teardown(self, event: Event) -> bool:
        struck = self.outsider
        if struck is not None and struck.target_pid == self.run.main_pid and event.usec >= struck.usec:
            return True
        return self.stop_usec is not None and event.usec >= self.stop_usec

    # --- natives and the kernel's view -----------------------------------------------------------------------

    @cached_property
    def core_dump(self) -> CoreDump | None:
        return next(
            (
                core
                for core in self.timeline.all(CoreDump)
                if core.unit == self.run.unit or self.run.owns_pid(core.coredump_pid)
            ),
            None,
        )

    @cached_property
    def segfault(self) -> Segfault | None:
        return next((fault for fault in self.timeline.all(Segfault) if self.run.owns_pid(fault.fault_pid)), None)

    def oom_kills(self) -> Iterator[OomKill | OomVictim]:
        """The kernel's records that name a cgroup or a process of ours, up to this run's end."""
        last = self.run.ended_usec + LATE_KERNEL_USEC
        named = {kill.oom_victim_pid for kill in self.timeline.all(OomKill)}
        for event in self.timeline.events:
            if event.usec > last:
                break
            if isinstance(event, OomKill):
                if self.run.owns_cgroup(event.task_memcg) or (
                    event.task_memcg is None and self.run.owns_pid(event.oom_victim_pid)
                ):
                    yield event
            elif isinstance(event, OomVictim) and event.victim_pid not in named and self.run.owns_pid(event.victim_pid):
                yield event

    # --- evidence --------------------------------------------------------------------------------------------

    def aftermath(self, initiating: Event) -> tuple[Evidence, ...]:
        """What followed from the initiating event: echoes, SGLang's kill of its own tree, systemd's record."""
        found: list[Evidence] = []
        for event in self.timeline.events:
            if event is initiating or event.usec < initiating.usec - LATE_KERNEL_USEC:
                continue
            if isinstance(event, Traceback | ChildDied | FatalPythonError | NativeAbort) and event in self.failures:
                found.append(Evidence(role=Role.CASCADE, event=event, why="a consequence, not the cause"))
            elif isinstance(event, ServerSignal) and event.name in ("sigquit-received", "child-failed"):
                found.append(Evidence(role=Role.CASCADE, event=event, why="main was told that a child failed"))
            elif event is self.self_kill:
                found.append(
                    Evidence(role=Role.TEARDOWN, event=event, why="SGLang kills its own tree and itself: status 9/KILL")
                )
            elif event is self.fatal_signal:
                sender = by_whom(self.run, self.fatal_signal)
                found.append(
                    Evidence(role=Role.TEARDOWN, event=event, why=f"main died of this signal, sent by {sender}")
                )
            elif event is self.main_exit:
                found.append(Evidence(role=Role.TEARDOWN, event=event, why="how the main process ended"))
        return tuple(found[:12])

    @property
    def exit_words(self) -> str:
        """The main process's end as people say it."""
        code, status = self.run.exit_code, self.run.exit_status
        if code is None:
            return f"Result={self.run.result}" if self.run.result else "an end that systemd did not record"
        if code == "exited":
            return f"exit status {status}"
        name = SIGNALS.get(status or 0, f"signal {status}")
        return f"{name}{' with a core dump' if code == 'dumped' else ''}"

    def explains_exit(self, failure: Failure) -> bool:
        """Whether the main process's end, as systemd recorded it, is the one that this failure leads to."""
        code, status = self.run.exit_code, self.run.exit_status
        if code is None:
            return False
        if code == "exited":
            return status != 0
        if status == 9:
            told = (self.sigquit, self.self_kill)
            return any(signal is not None and signal.usec >= failure.usec - STREAM_SKEW_USEC for signal in told)
        return status in NATIVE_SIGNALS and isinstance(failure, FatalPythonError | NativeAbort | ServerError)

    # --- absence, where it is evidence -----------------------------------------------------------------------

    @cached_property
    def no_oom(self) -> str | None:
        """In words, how it is known that no kernel OOM killer was at work; None when that is not known.

        Three witnesses, any of which suffices: the kernel log read without a gap; the unit's own memory.events,
        read after the death and before the cgroup was gone; the host-wide counter of /proc/vmstat, before and after.
        """
        if any(self.oom_kills()) or self.timeline.first(UnitOomKill):
            return None
        if self.timeline.covers("kernel"):
            return "no kernel OOM record names a process or cgroup of this run; the kernel log was read completely"
        remains = self.timeline.last(Remains)
        if remains and remains.memory and remains.memory.oom_kill == 0:
            return "the unit's memory.events counted no OOM kill (oom_kill 0, read after the death)"
        first_sign = self.failures[0].usec if self.failures else self.run.ended_usec
        died = min(first_sign, self.main_exit.usec if self.main_exit else self.run.ended_usec)
        before = self.timeline.last(HostMemory, before=died)
        after = self.timeline.first(HostMemory, after=self.run.ended_usec)
        counted = (before.vmstat_oom_kill, after.vmstat_oom_kill) if before and after else (None, None)
        if counted[0] is not None and counted[0] == counted[1]:
            return "the kernel's counter of OOM kills (oom_kill in /proc/vmstat) did not move over the death"
        return None
