"""silent-exit: the main process ended with an exit status and nothing in its log says why.

Signal:      code=exited with a status other than 0, no failure in the log, no stop, no exec failure.
Not this:    a traceback or usage error that explains the status; a log that was rate-limited or lost (then said so).
Followed by: nothing. The status is all there is.
"""

from forensics.causality import Ending
from forensics.model import Evidence, Finding, NotThis, Role, Strength


def match(ending: Ending) -> Finding | NotThis | None:
    run = ending.run
    if run.exit_code != "exited" or run.exit_status in (0, None) or ending.stop is not None:
        return None
    if ending.failure is not None or ending.echo is not None or ending.main_exit is None:
        return None
    lost = [gap.reason for gap in ending.timeline.gaps if gap.source == "server"]
    because = f"part of its log is missing ({'; '.join(dict.fromkeys(lost))})" if lost else "its log does not say why"
    return Finding(
        strength=Strength.LIKELY,
        summary=f"The main process exited with status {run.exit_status} and {because}.",
        subclass=f"status-{run.exit_status}",
        evidence=(Evidence(role=Role.INITIATING, event=ending.main_exit, why="systemd's record of the exit"),),
        key=(str(run.exit_status),),
        awaits=("kernel", "coredump"),
    )
