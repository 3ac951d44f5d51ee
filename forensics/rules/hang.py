"""hang: it was alive and did nothing; SGLang's own watchdog or systemd's ended it.

Signal:      PID 1's `Watchdog timeout (limit …)!`, or `Scheduler watchdog timeout (… self.soft=False)`.
Not this:    a soft watchdog (it only logs); py-spy missing; a slow step that the server outlived.
Followed by: SIGABRT to every process of the unit with core dumps, or SIGQUIT to main and SGLang's own SIGKILL.
Needs:       PID 1's records, or the server's log with the watchdog's line; the stacks of that moment stand in the log.
             The kernel's log, to tell a GPU that failed from a scheduler that stood.
To do:       look for the line on which the scheduler stood in the stacks (py-spy, faulthandler) of its log.
"""

from dataclasses import replace

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
        return Finding(
            strength=Strength.CONFIRMED,
            summary=f"The unit gave no sign of life for {service.limit}, and systemd's watchdog ended it.",
            subclass="service-watchdog",
            evidence=(
                Evidence(role=Role.INITIATING, event=service, why="systemd's WatchdogSec= ran out"),
                *ending.aftermath(service),
            ),
            key=("service-watchdog",),
        )
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
