"""nccl-error: communication between ranks failed, or a peer was lost.

Signal:      `NCCL error`, `ncclSystemError`, a collective that timed out, in the failure that began it.
Not this:    the echo of another rank's death, of a CUDA error that the NCCL watchdog thread merely saw, or of an OOM.
Followed by: `terminate called after throwing an instance of 'c10::DistBackendError'`, SIGABRT, self-SIGKILL.
"""

import re

from forensics.causality import Ending
from forensics.events import ServerError
from forensics.failure import finding, headline, search_machine
from forensics.model import Finding, NotThis

PATTERN = re.compile(
    r"NCCL error|nccl(?:UnhandledCuda|System|Internal|Remote)Error|ncclInvalidUsage|DistBackendError|NCCL WARN"
    r"|collective operation timeout"
)


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if failure is None:
        return None
    timed_out = isinstance(failure, ServerError) and failure.name == "nccl-timeout"
    if not timed_out and search_machine(PATTERN, failure) is None:
        return NotThis(why="no NCCL error in the failure that began it")
    what = "A collective operation timed out" if timed_out else "Communication between ranks failed"
    return finding(
        ending,
        failure,
        summary=f"{what}: {headline(failure)}.",
        subclass="collective-timeout" if timed_out else "communication",
        key=("nccl", headline(failure, 80)),
    )
