"""What systemd did and why: stops that were asked for, timeouts, steps of the start that failed. Pure."""

from forensics.events import (
    BootEnded,
    Event,
    HostShutdown,
    ProcessExit,
    RestartScheduled,
    ServerSignal,
    ServiceWatchdogTimeout,
    StateTimedOut,
    StopRequested,
    UnitOomKill,
    UnitResult,
    UnitStarted,
    UnitStopped,
    UserspaceOomKill,
)
from forensics.model import Run
from forensics.oom import survived
from forensics.timeline import Timeline

STREAM_SKEW_USEC = 500_000
"""The server's reaction to SIGTERM can stand before `Stopping …`: stdout and PID 1 reach journald by two sockets."""

_STOP_STATES = ("stop", "stop-sigterm", "stop-watchdog", "stop-post", "final-sigterm", "final-watchdog")
_START_STATES = ("start", "start-pre", "start-post")
_START_COMMANDS = ("ExecCondition", "ExecStartPre", "ExecStartPost")
SHUTDOWN_LATE_USEC = 10_000_000
_SHUTDOWN_USEC = 600_000_000
"""From logind's word to the stop of a unit at most: those that stand behind it are stopped first."""
_SAME_STEP_USEC = 500_000
"""PID 1 writes a unit's result and the end of the job that waited for it in one go."""


def main_exit(timeline: Timeline) -> ProcessExit | None:
    return next((event for event in timeline.all(ProcessExit) if event.process == "main"), None)


def start_control_exit(timeline: Timeline) -> ProcessExit | None:
    """A step around the start that failed: ExecStartPre=, ExecStartPost=, ExecCondition=; not what runs at the end."""
    for event in timeline.all(ProcessExit):
        if event.process == "control" and event.exit_status != 0:
            if event.command in _START_COMMANDS:
                return event
            if not event.command and timeline.first(UnitStarted) is None:
                return event  # Saved text does not say which command it was.
    return None


def stop_timed_out(timeline: Timeline) -> StateTimedOut | None:
    ended = ("Killing", "Aborting", "Skipping SIGKILL")
    return next((e for e in timeline.all(StateTimedOut) if e.state in _STOP_STATES and e.action in ended), None)


def start_timed_out(timeline: Timeline) -> StateTimedOut | None:
    return next((event for event in timeline.all(StateTimedOut) if event.state in _START_STATES), None)


def runtime_limit(timeline: Timeline) -> StateTimedOut | None:
    """RuntimeMaxSec= ran out: systemd stops the unit, as it was told to."""
    return next((event for event in timeline.all(StateTimedOut) if event.state == "running"), None)


def host_shutdown(run: Run, timeline: Timeline) -> HostShutdown | None:
    """The host was going down as this unit was stopped; one that was called off long before is none. Without logind,
    PID 1 speaks of it only when the last unit is down, which is the one that had held it up."""
    stopping = timeline.first(StopRequested)
    begun_usec = stopping.usec if stopping is not None else run.ended_usec
    last_usec = run.ended_usec + (SHUTDOWN_LATE_USEC if stopping is not None else 0)
    return next(
        (e for e in timeline.all(HostShutdown) if begun_usec - _SHUTDOWN_USEC <= e.usec <= last_usec),
        None,
    )


def systemd_had_a_reason(run: Run, timeline: Timeline) -> bool:
    """systemd stops a unit of its own accord after a failed start, a start timeout, a watchdog, or an OOM kill. For a
    kill it does so at once: a server that works long after it was left alone."""
    return bool(
        start_timed_out(timeline)
        or timeline.first(ServiceWatchdogTimeout)
        or any(not survived(timeline, notice.usec) for notice in timeline.all(UnitOomKill))
        or any(kill.unit == run.unit for kill in timeline.all(UserspaceOomKill))
        or start_control_exit(timeline)
    )


def asked(run: Run, timeline: Timeline) -> Event | None:
    """The record that says that somebody, or the unit's own limit, asked for the end; whatever happened before it.

    A stop before the unit was up leaves no `Stopping`, only, afterwards, `Stopped` by a stop job; a reboot stops
    everything. `Stopped` alone also ends a stop of a unit that had failed long ago and waited for its restart.
    """
    exit_ = main_exit(timeline)
    for event in timeline.all(StopRequested):
        if exit_ is None or event.usec <= exit_.usec:
            return event
    if limit := runtime_limit(timeline):
        return limit
    result = timeline.first(UnitResult)
    if timeline.first(UnitStarted) is None:
        # systemd's own restart of a failed unit ends in `Stopped` by a restart job too, but says so before.
        by_hand = ("stop",) if timeline.first(RestartScheduled) else ("stop", "restart")
        for stopped in timeline.all(UnitStopped):
            if stopped.job_type in by_hand and (result is None or stopped.usec - result.usec <= _SAME_STEP_USEC):
                return stopped
    ended = timeline.first(BootEnded)
    shutdown = host_shutdown(run, timeline)
    end_usec = exit_.usec if exit_ is not None else run.ended_usec
    if shutdown and (ended is None or ended.orderly) and shutdown.usec <= end_usec:
        return shutdown
    timed_out = stop_timed_out(timeline)
    # By itself this says only that systemd had begun a stop; of its own reasons one may be lost, or be a watchdog's.
    reasons_known = timeline.covers("systemd") or (result is not None and result.unit_result == "timeout")
    if timed_out is None or timed_out.state == "stop-watchdog" or not reasons_known:
        return None
    lived = exit_ is None or exit_.usec >= timed_out.usec
    return timed_out if lived and not systemd_had_a_reason(run, timeline) else None


def moment_is_known(timeline: Timeline, stop: Event) -> bool:
    """Whether the record of a stop stands where it was asked for, and not behind what came of it."""
    return isinstance(stop, StopRequested | HostShutdown) or stop is runtime_limit(timeline)


def teardown_usec(timeline: Timeline, stop: Event) -> int:
    """From when on whatever happens is teardown."""
    if moment_is_known(timeline, stop):
        return stop.usec - STREAM_SKEW_USEC
    # Asked for while the unit was still starting: SGLang's own words, or the deadline, are all there is.
    said = next((signal for signal in timeline.all(ServerSignal) if signal.name == "sigterm-received"), None)
    first_exit = min((event.usec for event in timeline.all(ProcessExit)), default=stop.usec)
    return min(said.usec if said else stop.usec, first_exit, stop.usec) - STREAM_SKEW_USEC
