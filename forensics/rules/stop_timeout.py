"""stop-timeout: a stop or restart was asked for, took longer than TimeoutStopSec=, and systemd killed what was left.

Signal:      PID 1's `State 'stop-sigterm' timed out. Killing.` (or Aborting, final-sigterm, stop-post) in a stop job.
Not this:    the same words after main had failed by itself; `Killing process …` as clean-up behind a foreign kill.
Followed by: code=killed, status=9/KILL and Result=timeout; the configuration started next is not to blame.
Needs:       PID 1's records of this unit: they tell the stop, its timeout and the kill.
To do:       raise timeout_stop in the spec to the length of the longest answers, or accept that they are cut. The
             configuration is not to blame.
"""

from forensics import stops
from forensics.causality import Ending
from forensics.events import Event, ServerSignal, StateTimedOut, SystemdKill
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.rules.clean_stop import AS_IT_CAME
from forensics.senders import by_whom

SHUTDOWN_KILL = "shutdown-kill"
"""The subclass of a kill in a shutdown of the host: no crash."""


def match(ending: Ending) -> Finding | NotThis | None:
    stop, timed_out = ending.stop, ending.stop_timed_out
    if stop is None:
        if not ending.covers("systemd"):
            return None
        words = "nobody asked systemd to stop this unit"
        return NotThis(why=words if stops.asked(ending.run, ending.timeline) is None else f"{words} before it failed")
    if timed_out is None:
        return NotThis(why="the stop that was asked for did not run into its timeout")
    if ending.failure is not None or ending.echo is not None:
        return None  # It was dying already when the stop came.
    evidence = []
    if stop is not timed_out:
        evidence.append(Evidence(role=Role.INITIATING, event=stop, why="the stop was asked for"))
    evidence.append(Evidence(role=Role.INITIATING, event=timed_out, why="systemd's patience ended"))
    evidence += [
        Evidence(role=Role.TEARDOWN, event=kill, why="sent by systemd itself")
        for kill in ending.timeline.all(SystemdKill)
    ]
    drain = [signal for signal in ending.timeline.all(ServerSignal) if signal.name == "draining"]
    evidence += [Evidence(role=Role.CONTEXT, event=signal, why="still draining") for signal in drain[-1:]]
    if (sent := ending.fatal_signal) is not None:
        evidence.append(Evidence(role=Role.TEARDOWN, event=sent, why=f"traced: sent by {by_whom(ending.run, sent)}"))
    if ending.main_exit is not None:
        evidence.append(Evidence(role=Role.TEARDOWN, event=ending.main_exit, why="how the main process ended"))
    return Finding(
        strength=Strength.CONFIRMED if ending.failed_as_it_came is None else Strength.LIKELY,
        summary=_summary(ending, stop, timed_out, drain),
        subclass=SHUTDOWN_KILL if stops.host_shutdown(ending.run, ending.timeline) else timed_out.state,
        evidence=tuple(evidence[:12]),
        key=(timed_out.state,),
        notes=() if ending.failed_as_it_came is None else (AS_IT_CAME,),
    )


def _summary(ending: Ending, stop: Event, timed_out: StateTimedOut, drain: list[ServerSignal]) -> str:
    waited = (timed_out.usec - stop.usec) / 1e6
    after = f" after {waited:.0f} s" if waited >= 0.5 else ""
    who = _lingerer(ending)
    last = dict(drain[-1].values).get("remaining") if drain else None
    draining = f" {last} request(s) were still running." if last not in (None, "0") else ""
    ended = f"ended it by {'SIGABRT' if timed_out.action == 'Aborting' else 'SIGKILL'}"
    if timed_out.action == "Skipping SIGKILL":
        ended = "left it running, as SendSIGKILL=no says,"
    if timed_out.state in ("stop-post", "final-sigterm", "final-watchdog") and ending.main_exit is not None:
        return (
            f"The stop ran into its timeout in systemd's state {timed_out.state}{after}: main had ended, "
            f"{who} had not, and systemd {ended.rstrip(',')}."
        )
    shutdown = stops.host_shutdown(ending.run, ending.timeline)
    asked = "The host was shut down" if shutdown else "A stop was asked for"
    return f"{asked}, the server did not end in time, and systemd {ended}{after}.{draining}"


def _lingerer(ending: Ending) -> str:
    kill = next(ending.timeline.all(SystemdKill), None)
    return f"process {kill.target_pid} ({kill.comm})" if kill else "another process of the unit"
