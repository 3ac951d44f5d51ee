"""start-timeout: the start took longer than TimeoutStartSec=, and systemd ended it.

Signal:      PID 1's `start operation timed out. Terminating.` (start, start-pre, start-post).
Not this:    a start that had failed before, and only lingered (a port in use); a stop during the start.
Followed by: SIGTERM to a server that is still loading, EOFError of main, Result=timeout.
Needs:       PID 1's records; the server's log tells how far it had come.
To do:       raise timeout_start in the spec, or find out what the start waited for.
"""

from forensics.causality import Ending
from forensics.model import Evidence, Finding, NotThis, Role, Strength


def match(ending: Ending) -> Finding | NotThis | None:
    timed_out = ending.start_timed_out
    if timed_out is None or any(failure.usec < timed_out.usec for failure in ending.failures):
        return None
    return Finding(
        strength=Strength.CONFIRMED,
        summary=f"The start did not finish within its timeout (systemd's state {timed_out.state}); systemd ended it.",
        subclass=timed_out.state,
        evidence=(
            Evidence(role=Role.INITIATING, event=timed_out, why="systemd's patience ended"),
            *ending.aftermath(timed_out),
        ),
        key=(timed_out.state,),
    )
