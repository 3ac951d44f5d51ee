"""Who died first? One reading of a run's end that all rules share: what was asked, what failed, what only echoed it.

Pure functions of (run, timeline). The initiating event is told from the cascade (SIGQUIT to main, EOFError, broken
pipes, SGLang's SIGKILL of its own tree) and from the teardown (whatever happens after a stop was asked for).
"""

from dataclasses import dataclass
from functools import cached_property

from forensics import announced, exits, natives, oom, oom_excluded, stops
from forensics.aftermath import aftermath
from forensics.answering import unanswered
from forensics.events import (
    Batch,
    ChildDied,
    ClientKill,
    CoreDump,
    Event,
    Gap,
    ProcessExit,
    Segfault,
    ServerError,
    ServerSignal,
    SignalSent,
    StateTimedOut,
    SystemdKill,
    Traceback,
    UnitOomKill,
    Unparsed,
)
from forensics.exits import SIGNALS
from forensics.fatality import (
    LINGER_USEC,
    NATIVE_SIGNALS,
    PATIENCE_USEC,
    Failure,
    end_usec,
    failures,
    is_echo,
    speaks_of_peers,
)
from forensics.model import Evidence, Run
from forensics.oom import LATE_KERNEL_USEC
from forensics.senders import fatal_to_main, is_vital, signals_from_outside
from forensics.stops import STREAM_SKEW_USEC
from forensics.timeline import Timeline

__all__ = ["DEADLY", "LATE_KERNEL_USEC", "NATIVE_SIGNALS", "SIGNALS", "STREAM_SKEW_USEC", "Ending", "Failure"]

DEADLY = ("SIGKILL", "SIGTERM", "SIGINT", "SIGQUIT", "SIGABRT", "SIGHUP", "SIGSEGV")

_FOREIGN_EXIT_CODES = (-9, -15, -2, -1)
"""Exit codes of children that neither an exception nor native code leads to."""

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
        if self.sigterm is None and not stops.moment_is_known(self.timeline, asked):
            # Asked for at some time before the end: what failed by itself did not fail of that.
            before = max([before, *(failure.usec + 1 for failure in self._failed if not is_echo(failure))])
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
            if kill.signal in DEADLY and self._answered(kill.signal, kill.usec):
                return kill
        return None

    # --- what the signal tracer saw, where it runs -----------------------------------------------------------

    @cached_property
    def outsider(self) -> SignalSent | None:
        """The first traced signal from outside the run that it did not outlive. After SIGTERM it drains, at length."""
        for sent in signals_from_outside(self.run, self.timeline):
            if sent.target_pid == self.run.main_pid:
                ended = sent is self.fatal_signal or self._answered(SIGNALS.get(sent.signal, ""), sent.usec)
            else:
                told = any(failure.usec >= sent.usec and is_echo(failure) for failure in self._failed)
                near = sent.usec >= self.end_usec - LINGER_USEC
                ended = near and (told or is_vital(self.run, sent))
            if ended:
                return sent
        return None

    def _answered(self, signal: str, usec: int) -> bool:
        return announced.answered(self.timeline, self.end_usec, signal, usec)

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
    def crashed_while_stopping(self) -> CoreDump | Segfault | None:
        """A process of ours that crashed after a stop was asked for: told, but not what ended it."""
        stop_usec = self.stop_usec
        ordered = any(kill.signal == "SIGABRT" for kill in self.timeline.all(SystemdKill))
        if stop_usec is None or ordered:
            return None
        crashes: list[CoreDump | Segfault] = [
            *(fault for fault in self.timeline.all(Segfault) if self.run.owns_pid(fault.fault_pid)),
            *(core for core in self.timeline.all(CoreDump) if core.unit == self.run.unit),
        ]
        return next((crash for crash in crashes if crash.usec >= stop_usec), None)

    @cached_property
    def failed_as_it_came(self) -> Event | None:
        """One of these, so shortly before the record of the stop that either may have come first."""
        for event in (self.failed_while_stopping, self.crashed_while_stopping):
            if event is not None and self.stop is not None and event.usec < self.stop.usec:
                return event
        return None

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
        return announced.sigquit(self.timeline, self.end_usec)

    @cached_property
    def self_kill(self) -> ServerSignal | None:
        """SGLang announces (0.5.13 and later) that it now kills its tree and itself."""
        return announced.self_kill(self.timeline, self.end_usec)

    @cached_property
    def sigterm(self) -> ServerSignal | None:
        return announced.sigterm(self.timeline)

    @cached_property
    def interrupted(self) -> Traceback | None:
        """Python's answer to SIGINT in main."""
        return announced.interrupted(self.timeline)

    def _in_teardown(self, event: Event) -> bool:
        for struck in (self.outsider, self.client_kill):
            if struck is not None and struck.target_pid == self.run.main_pid and event.usec >= struck.usec:
                return True
        return self.stop_usec is not None and event.usec >= self.stop_usec

    # --- natives and the kernel's view -----------------------------------------------------------------------

    @cached_property
    def core_dump(self) -> CoreDump | None:
        """A core of a process that the run died of; the record may come minutes after the end."""
        return natives.core_dump(self.run, self.timeline, self.stop_usec)

    @cached_property
    def segfault(self) -> Segfault | None:
        return natives.segfault(self.run, self.timeline, self.stop_usec)

    @cached_property
    def oom_kills(self) -> tuple[oom.Kill, ...]:
        """The kernel's OOM kills of this run's processes."""
        return tuple(oom.kills(self.run, self.timeline))

    @cached_property
    def oom_notice(self) -> UnitOomKill | None:
        """systemd's count of an OOM kill, unless the server worked on after it, or after the kill that it counts."""
        return oom_excluded.notice(self.run, self.timeline, self.oom_kills)

    # --- evidence --------------------------------------------------------------------------------------------

    def aftermath(self, initiating: Event) -> tuple[Evidence, ...]:
        """What followed from the initiating event: echoes, SGLang's kill of its own tree, systemd's record."""
        return aftermath(self, initiating)

    @property
    def exit_words(self) -> str:
        """The main process's end as people say it."""
        return exits.words(self.run)

    def explains_exit(self, failure: Failure) -> bool:
        """Whether the main process's end, as systemd recorded it, is the one that this failure leads to, and when."""
        told = (self.sigquit, self.self_kill)
        return self.end_usec - failure.usec <= PATIENCE_USEC and exits.explained(self.run, failure, told)

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
        """In words, how it is known that this death was not the kernel OOM killer's; None when that is not known."""
        heard = self.covers("kernel")
        return oom_excluded.why(self.run, self.timeline, self.oom_kills, self.first_sign_usec, kernel_heard=heard)

    @cached_property
    def oom_untold(self) -> UnitOomKill | None:
        """systemd's count of an OOM kill that the server did not outlive, without a record of the kernel's."""
        notice = self.oom_notice
        known = notice and any(abs(kill.usec - notice.usec) <= LATE_KERNEL_USEC for kill in self.oom_kills)
        return None if known else notice

    @cached_property
    def oom_unread(self) -> Unparsed | None:
        """A record near the end in which the kernel speaks of an OOM kill in words that nobody here knows."""
        return oom_excluded.unread(self.run, self.timeline, self.first_sign_usec)
