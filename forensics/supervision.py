"""What systemd was told to do when this unit ends or runs out of memory, and what it does next. Pure."""

from forensics import stops
from forensics.events import HostShutdown, RestartScheduled, StartLimitHit, UnitState, UnitStopped
from forensics.model import Run, Supervision
from forensics.timeline import Timeline

_RESTARTS_AFTER = {
    "no": frozenset[str](),
    "on-success": frozenset({"success"}),
    "on-failure": frozenset(
        {"exit-code", "signal", "core-dump", "timeout", "watchdog", "oom-kill", "resources", "protocol"}
    ),
    "on-abnormal": frozenset({"signal", "core-dump", "timeout", "watchdog", "oom-kill", "resources", "protocol"}),
    "on-abort": frozenset({"signal", "core-dump"}),
    "on-watchdog": frozenset({"watchdog"}),
}
"""`Restart=` → the results after which systemd starts the unit again by itself (service_shall_restart in service.c)."""


def supervision(run: Run, timeline: Timeline) -> Supervision:
    """The unit's settings as PID 1 had them while the run lived, and what it does about the end, by its own records
    where it has done it already."""
    state = timeline.last(UnitState)
    policy = state.restart if state else None
    return Supervision(
        oom_policy=state.oom_policy if state else None,
        restart=policy,
        next=_next(run, timeline, policy, state.restart_usec if state else None),
    )


def _next(run: Run, timeline: Timeline, policy: str | None, restart_usec: int | None) -> str:
    if timeline.first(StartLimitHit) is not None:
        return "systemd does not start it again by itself: it was started too often (start limit)."
    scheduled = timeline.last(RestartScheduled)
    if scheduled is not None:
        return f"systemd starts it again by itself: restart number {scheduled.n_restarts} was scheduled."
    if timeline.first(HostShutdown) is not None:
        return "The host was going down; what starts at boot is started then."
    asked = stops.asked(run, timeline)
    if asked is not None and asked is not stops.runtime_limit(timeline):
        jobs = {stopped.job_type for stopped in timeline.all(UnitStopped)}
        if "restart" in jobs:
            return "It was stopped to be started again at once (a restart job)."
        return "It stays down until somebody starts it: systemd restarts nothing that was stopped on request."
    if policy is None or run.result is None:
        return "No restart was scheduled up to now, and the unit's Restart= was not read."
    if policy != "always" and run.result not in _RESTARTS_AFTER.get(policy, frozenset()):
        return f"Restart={policy}: it stays down until somebody starts it."
    after = f" {restart_usec / 1e6:g} s after the end" if restart_usec is not None else ""
    return f"Restart={policy}: systemd starts it again by itself{after}, unless its exit status is exempt."
