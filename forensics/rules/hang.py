"""hang: it was alive and did nothing; SGLang's own watchdog or systemd's ended it.

Signal:      PID 1's `Watchdog timeout (limit …)!` or `Watchdog request (…)!`, the latter asked for by the unit's own
             heartbeat; or `Scheduler watchdog timeout (… self.soft=False)`.
Not this:    a soft watchdog (it only logs); py-spy missing; a slow step that the server outlived.
Followed by: SIGABRT to every process of the unit with core dumps, or SIGQUIT to main and SGLang's own SIGKILL.
Needs:       PID 1's records, or the server's log with the watchdog's line; the stacks of that moment stand in the log.
             The heartbeat's record, which has the stacks too. The kernel's log, to tell a GPU that failed from a
             scheduler that stood.
To do:       look for the line on which the scheduler stood in the stacks (py-spy, faulthandler) of its log. Without
             them: install py-spy where SGLang runs, or `py-spy dump` each scheduler the next time, before it is
             restarted.
"""

from dataclasses import replace

from forensics.answering import silence, stuck, unanswered
from forensics.causality import Ending
from forensics.events import ServerError, ServiceWatchdogTimeout
from forensics.failure import finding
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.rules import gpu_fault


def match(ending: Ending) -> Finding | NotThis | None:
    if service := ending.timeline.first(ServiceWatchdogTimeout):
        if (
            ending.failure is not None
            and not isinstance(ending.failure, ServerError)
            and ending.failure.usec < service.usec
        ):
            return None
        return _by_systemd(ending, service)
    failure = ending.failure
    if isinstance(failure, ServerError) and failure.name in ("scheduler-watchdog", "nccl-heartbeat"):
        seconds = dict(failure.values).get("seconds", "?").removesuffix(".0")
        what = "scheduler" if failure.name == "scheduler-watchdog" else "NCCL watchdog"
        found = finding(
            ending,
            failure,
            summary=f"The {what} made no progress for {seconds} s, and SGLang's watchdog ended the server.",
            subclass=failure.name,
            key=(failure.name,),
        )
        # A GPU that failed leaves whoever waits for it hanging.
        return replace(found, strength=Strength.LIKELY) if gpu_fault.names_us(ending) else found
    return NotThis(why="neither systemd's nor SGLang's watchdog fired") if ending.covers("systemd") else None


def _by_systemd(ending: Ending, service: ServiceWatchdogTimeout) -> Finding:
    """systemd's watchdog ended it; the heartbeat, which feeds it, may have said why it did so no longer."""
    hang = unanswered(event for event in ending.timeline.events if event.usec <= service.usec)
    why = "systemd's WatchdogSec= ran out" if service.limit else "its heartbeat gave it up, and systemd ends it"
    evidence = [Evidence(role=Role.INITIATING, event=service, why=why)]
    if hang is not None:
        asked = Evidence(role=Role.INITIATING, event=hang, why="asked from outside, it did not answer")
        evidence.insert(0, asked)
        seconds = max(0.0, (service.record.realtime_usec - hang.since_usec) / 1e6)
        summary = f"It did not answer for {seconds:.0f} s ({silence(hang)}), and systemd's watchdog ended it."
    elif service.limit:
        summary = f"The unit gave no sign of life for {service.limit}, and systemd's watchdog ended it."
    else:
        summary = "Its heartbeat gave it up as hanging, and systemd's watchdog ended it."
    return Finding(
        strength=Strength.CONFIRMED,
        summary=summary,
        subclass="service-watchdog",
        evidence=(*evidence, *ending.aftermath(service)),
        key=("service-watchdog", *(stuck(hang) if hang else ())),
    )
