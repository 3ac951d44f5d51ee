"""Who died first? One reading of a run's end that all rules share: what was asked, what failed, what only echoed it.

Pure functions of (run, timeline). The initiating event is told from the cascade (SIGQUIT to main, EOFError, broken
pipes, SGLang's SIGKILL of its own tree) and from the teardown (whatever happens after a stop was asked for).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from forensics import oom, stops
from forensics.answering import unanswered
from forensics.events import (
    Batch,
    ChildDied,
    ClientKill,
    CoreDump,
    Event,
    FatalPythonError,
    Gap,
    HostMemory,
    NativeAbort,
    ProcessExit,
    Remains,
    Segfault,
    ServerError,
    ServerSignal,
    SignalSent,
    StateTimedOut,
    Traceback,
    UnitOomKill,
    Unparsed,
)
from forensics.fatality import (
    LINGER_USEC,
    NATIVE_SIGNALS,
    PATIENCE_USEC,
    SURVIVAL_USEC,
    Failure,
    end_usec,
    failures,
    is_echo,
    speaks_of_peers,
)
from forensics.model import Evidence, Role, Run
from forensics.oom import LATE_KERNEL_USEC, survived
from forensics.senders import by_whom, fatal_to_main, is_vital, signals_from_outside
from forensics.stops import STREAM_SKEW_USEC
from forensics.timeline import Timeline

__all__ = ["DEADLY", "LATE_KERNEL_USEC", "NATIVE_SIGNALS", "SIGNALS", "STREAM_SKEW_USEC", "Ending", "Failure"]

SIGNALS = NATIVE_SIGNALS | {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 13: "SIGPIPE", 15: "SIGTERM"}
DEADLY = ("SIGKILL", "SIGTERM", "SIGINT", "SIGQUIT", "SIGABRT", "SIGHUP", "SIGSEGV")

_FOREIGN_EXIT_CODES = (-9, -15, -2, -1)
"""Exit codes of children that neither an exception nor native code leads to."""

_ANSWER_USEC = 10_000_000
"""From a signal to main's word on it, or to its end when it has no word: the event loop may be busy with a batch."""

_NOTICED_USEC = 2_000_000
"""Main looks after its children once a second: what another rank says of the loss can stand before main's word."""


@dataclass(frozen=True)
class Ending:
    """How a run came to its end."""

    run: Run
    timeline: Timeline

    # --- what systemd and the administrator did --------------------------------------------------------------

    @cached_property
    def main_exit(self) -> ProcessExit | None:
        return stops.main_exit(self.timeline)

    @cached_property
    def end_usec(self) -> int:
        """When main ended, or else when the unit came to rest."""
        return end_usec(self.run, self.timeline)

    @cached_property
    def start_step_failed(self) -> ProcessExit | None:
        """The exit of an ExecStartPre=, ExecStartPost= or ExecCondition= that failed."""
        return stops.start_control_exit(self.timeline)

    @cached_property
    def stop(self) -> Event | None:
        """Somebody asked for the stop of a server that was well: the record that says so."""
        asked = stops.asked(self.run, self.timeline)
        if asked is None:
            return None
        before = stops.teardown_usec(self.timeline, asked)
        return None if any(failure.usec < before for failure in self._failed) else asked

    @cached_property
    def stop_usec(self) -> int | None:
        """From when on whatever happens is teardown."""
        return None if self.stop is None else stops.teardown_usec(self.timeline, self.stop)

    @cached_property
    def stop_timed_out(self) -> StateTimedOut | None:
        return stops.stop_timed_out(self.timeline)

    @cached_property
    def start_timed_out(self) -> StateTimedOut | None:
        return stops.start_timed_out(self.timeline)

    @cached_property
    def systemd_had_a_reason(self) -> bool:
        return stops.systemd_had_a_reason(self.run, self.timeline)

    @cached_property
    def client_kill(self) -> ClientKill | None:
        """The `systemctl kill` that the run did not outlive."""
        for kill in self.timeline.all(ClientKill):
            if kill.signal in DEADLY and self._answered(kill):
                return kill
        return None

    # --- what the signal tracer saw, where it runs -----------------------------------------------------------

    @cached_property
    def outsider(self) -> SignalSent | None:
        """The first traced signal from outside the run that it did not outlive. After SIGTERM it drains, at length."""
        for sent in signals_from_outside(self.run, self.timeline):
            if sent.target_pid == self.run.main_pid:
                ended = sent is self.fatal_signal or self._answered(sent)
            else:
                told = any(failure.usec >= sent.usec and is_echo(failure) for failure in self._failed)
                near = sent.usec >= self.end_usec - LINGER_USEC
                ended = near and (told or is_vital(self.run, sent))
            if ended:
                return sent
        return None

    def _answered(self, sent: SignalSent | ClientKill) -> bool:
        """Whether main reacted to a signal that did not end it at once: it said so, or it was gone soon after."""
        name = sent.signal if isinstance(sent, ClientKill) else SIGNALS.get(sent.signal, "")
        said = {"SIGTERM": self.sigterm, "SIGQUIT": self.sigquit, "SIGINT": self.interrupted}.get(name)
        if said is not None and 0 <= said.usec - sent.usec + STREAM_SKEW_USEC <= _ANSWER_USEC:
            return True
        worked = self.timeline.first(Batch, after=sent.usec + SURVIVAL_USEC)
        return worked is None and 0 <= self.end_usec - sent.usec + STREAM_SKEW_USEC <= _ANSWER_USEC

    @cached_property
    def fatal_signal(self) -> SignalSent | None:
        """The traced signal that main died of, whoever sent it."""
        return fatal_to_main(self.run, self.timeline)

    # --- what the server said --------------------------------------------------------------------------------

    @cached_property
    def _failed(self) -> tuple[Failure, ...]:
        return tuple(failures(self.run, self.timeline))

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Failures of the server that it did not outlive, before any stop was asked for, in order."""
        return tuple(event for event in self._failed if not self._in_teardown(event))

    @cached_property
    def failure(self) -> Failure | None:
        """The failure that began it: the first that is not the echo of another; else None."""
        first = next((failure for failure in self.failures if not is_echo(failure)), None)
        struck = self._struck_child
        if first is None or struck is None or first.record.pid == struck.child_pid:
            return first
        # A rank that was killed cannot speak; what the others say of its loss is no failure of theirs.
        lost = first.usec >= struck.usec or (first.usec >= struck.usec - _NOTICED_USEC and speaks_of_peers(first))
        return None if lost else first

    @cached_property
    def _struck_child(self) -> ChildDied | None:
        """Main's word on a child that was killed, from before main itself killed any."""
        killed_usec = self.self_kill.usec if self.self_kill else self.end_usec
        return next(
            (
                failure
                for failure in self.failures
                if isinstance(failure, ChildDied)
                and failure.exit_code in _FOREIGN_EXIT_CODES
                and failure.usec <= killed_usec
            ),
            None,
        )

    @cached_property
    def failed_while_stopping(self) -> Failure | None:
        """A failure of its own after a stop was asked for: told, but not what ended it."""
        if self.stop_usec is None:
            return None
        return next((f for f in self._failed if self._in_teardown(f) and not is_echo(f)), None)

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
    def unhealthy(self) -> bool:
        """Whether it did not answer any more, or its health check had failed and no work followed: then it had not
        been well."""
        if unanswered(self.timeline.events) is not None:
            return True
        failed = (e for e in self.timeline.all(ServerError) if e.name == "health-check-failed")
        last = max(failed, key=lambda event: event.usec, default=None)
        return last is not None and self.timeline.first(Batch, after=last.usec) is None

    @cached_property
    def first_sign_usec(self) -> int:
        """The first sign of the end."""
        return min(self.failures[0].usec if self.failures else self.end_usec, self.end_usec)

    @cached_property
    def sigquit(self) -> ServerSignal | None:
        """Main was told, or told itself, that a child failed."""
        return self._signal("sigquit-received", "child-failed")

    @cached_property
    def self_kill(self) -> ServerSignal | None:
        """SGLang announces (0.5.13 and later) that it now kills its tree and itself."""
        announced = (s for s in self._signals("kill-process-tree") if dict(s.values).get("include_parent") == "True")
        return next(announced, None)

    @cached_property
    def sigterm(self) -> ServerSignal | None:
        return next((s for s in self.timeline.all(ServerSignal) if s.name == "sigterm-received"), None)

    @cached_property
    def interrupted(self) -> Traceback | None:
        """Python's answer to SIGINT in main."""
        return next((t for t in self.timeline.all(Traceback) if t.exception == "KeyboardInterrupt"), None)

    def _signal(self, *names: str) -> ServerSignal | None:
        return next(self._signals(*names), None)

    def _signals(self, *names: str) -> Iterator[ServerSignal]:
        """Announcements that the end soon followed: a prompt can quote one at any time."""
        for signal in self.timeline.all(ServerSignal):
            if signal.name in names and self.end_usec - signal.usec <= PATIENCE_USEC:
                yield signal

    def _in_teardown(self, event: Event) -> bool:
        for struck in (self.outsider, self.client_kill):
            if struck is not None and struck.target_pid == self.run.main_pid and event.usec >= struck.usec:
                return True
        return self.stop_usec is not None and event.usec >= self.stop_usec

    # --- natives and the kernel's view -----------------------------------------------------------------------

    @cached_property
    def core_dump(self) -> CoreDump | None:
        """A core of a process that the run died of; the record may come minutes after the end."""
        cores = (c for c in self.timeline.all(CoreDump) if c.unit == self.run.unit or self.run.owns_pid(c.coredump_pid))
        return next((c for c in cores if self._fell_with(c, c.coredump_pid, c.comm)), None)

    @cached_property
    def segfault(self) -> Segfault | None:
        faults = (fault for fault in self.timeline.all(Segfault) if self.run.owns_pid(fault.fault_pid))
        return next((fault for fault in faults if self._fell_with(fault, fault.fault_pid, fault.comm)), None)

    def _fell_with(self, event: Event, pid: int, comm: str) -> bool:
        """Whether a process that crashed took the run with it: main, or a child without which nothing works on."""
        if pid == self.run.main_pid:
            return self.run.exit_code != "exited"
        if self.stop_usec is not None and event.usec >= self.stop_usec:
            return False
        known = comm.startswith("sglang::") or self.run.pids.get(pid, "") in ("scheduler", "detokenizer", "controller",
                                                                              "tokenizer", "child")  # fmt: skip
        told = any(died.child_pid == pid for died in self.timeline.all(ChildDied))
        return (known or told) and not survived(self.timeline, event.usec)

    @cached_property
    def oom_kills(self) -> tuple[oom.Kill, ...]:
        """The kernel's OOM kills of this run's processes."""
        return tuple(oom.kills(self.run, self.timeline))

    @cached_property
    def oom_notice(self) -> UnitOomKill | None:
        """systemd's count of an OOM kill, unless the server worked on after it, or after the kill that it counts."""
        over = [kill.usec for kill in self.oom_kills if kill.outlived(self.run, self.timeline)]
        for notice in self.timeline.all(UnitOomKill):
            counted = any(abs(notice.usec - usec) <= LATE_KERNEL_USEC for usec in over)
            if not counted and not survived(self.timeline, notice.usec):
                return notice
        return None

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
        """Whether the main process's end, as systemd recorded it, is the one that this failure leads to, and when."""
        code, status = self.run.exit_code, self.run.exit_status
        if code is None or self.end_usec - failure.usec > PATIENCE_USEC:
            return False
        if code == "exited":
            return status != 0
        if status == 9:
            told = (self.sigquit, self.self_kill)
            return any(signal is not None and signal.usec >= failure.usec - STREAM_SKEW_USEC for signal in told)
        return status in NATIVE_SIGNALS and isinstance(failure, FatalPythonError | NativeAbort | ServerError)

    # --- absence, where it is evidence -----------------------------------------------------------------------

    def lost(self, source: str) -> tuple[Gap, ...]:
        """The gaps of a source that may hide what ended the run: not those that were over minutes before."""
        since, until = self.first_sign_usec - PATIENCE_USEC, self.run.ended_usec + LATE_KERNEL_USEC
        return tuple(
            gap
            for gap in self.timeline.gaps
            if gap.source == source
            and (gap.to_usec is None or gap.to_usec >= since)
            and (gap.from_usec is None or gap.from_usec <= until)
        )

    def covers(self, source: str) -> bool:
        """Whether silence of the source says something of the end."""
        return source in self.timeline.sources and not self.lost(source)

    def why_not_covered(self, source: str) -> str:
        """In words, why silence of this source proves nothing."""
        return "; ".join(dict.fromkeys(gap.reason for gap in self.lost(source))) or f"{source} was not read"

    @cached_property
    def no_oom(self) -> str | None:
        """In words, how it is known that this death was not the kernel OOM killer's; None when that is not known.

        Three witnesses, any of which suffices: the kernel log read without a gap; the unit's own memory.events,
        read after the death and before the cgroup was gone; the host-wide counter of /proc/vmstat, before and after.
        """
        outlived = [kill for kill in self.oom_kills if kill.outlived(self.run, self.timeline)]
        if len(outlived) < len(self.oom_kills) or self.oom_notice:
            return None
        remains = self.timeline.last(Remains)
        if remains and remains.memory and (remains.memory.oom_kill or 0) > len(outlived):
            return None
        unread = self.oom_unread
        if self.covers("kernel") and unread is None:
            if outlived:
                return "the kernel's OOM kills in this unit were long before, and the server worked on after them"
            whole = (
                "completely" if self.timeline.covers("kernel") else "completely up to the end, from minutes before it"
            )
            return f"no kernel OOM record names a process or cgroup of this run; the kernel log was read {whole}"
        if remains and remains.memory and remains.memory.oom_kill == 0:
            return "the unit's memory.events counted no OOM kill (oom_kill 0, read after the death)"
        before = self.timeline.last(HostMemory, before=self.first_sign_usec)
        after = self.timeline.first(HostMemory, after=self.run.ended_usec)
        counted = (before.vmstat_oom_kill, after.vmstat_oom_kill) if before and after else (None, None)
        if counted[0] is not None and counted[0] == counted[1]:
            return "the kernel's counter of OOM kills (oom_kill in /proc/vmstat) did not move over the death"
        return None

    @cached_property
    def oom_unread(self) -> Unparsed | None:
        """A record near the end in which the kernel speaks of an OOM kill in words that nobody here knows."""
        return next(
            (
                event
                for event in self.timeline.all(Unparsed)
                if event.about == "oom"
                and self.first_sign_usec - LINGER_USEC <= event.usec <= self.run.ended_usec + LATE_KERNEL_USEC
            ),
            None,
        )
