"""nccl-error: communication between ranks failed, or a peer was lost.

Signal:      `NCCL error`, `ncclSystemError`, a collective that timed out, in the failure that began it.
Not this:    the echo of another rank's death, of a CUDA error that the NCCL watchdog thread merely saw, or of an OOM.
Followed by: `terminate called after throwing an instance of 'c10::DistBackendError'`, SIGABRT, self-SIGKILL.
Needs:       the log of every rank: the rank that failed first is the one to look at, and its echo comes from the
             others.
To do:       run once with NCCL_DEBUG=INFO in [env]: NCCL then says which link or call failed. After a collective that
             timed out, look for the rank that did not come to it. Nodes that did not meet: each needs the same
             dist_init_addr and has to reach it. A full /dev/shm: give it more room (`df -h /dev/shm`; for a container
             --shm-size or --ipc=host).
"""

import re

from forensics.causality import Ending, Failure
from forensics.events import ServerError, Traceback
from forensics.failure import WHOLE, finding, headline, machine_words, search_machine, sentence
from forensics.model import Finding, NotThis

PATTERN = re.compile(
    r"NCCL error|nccl(?:UnhandledCuda|System|Internal|Remote)Error|ncclInvalidUsage|DistBackendError|NCCL WARN"
    r"|MSCCL\+\+ \w+ failed with error code"
    r"|collective operation timeout"
)
_RENDEZVOUS = re.compile(
    r"wait timeout after \d+ms|[Tt]imed out after \d+ seconds waiting for clients|client socket has timed out after"
)
_EXPERTS = re.compile(r"DeepEP(?: error:)? timeout|nvshmem\w* .{0,80}(?:failed|error)", re.IGNORECASE)
_SHARED_MEMORY = re.compile(r"/dev/shm|shared memory segment|posix_fallocate")  # noqa: S108 - a word in a log


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if failure is None:
        return _peer_lost(ending)
    if search_machine(_RENDEZVOUS, failure):
        return finding(
            ending,
            failure,
            summary=sentence(f"A rank waited for others that did not come: {headline(failure)}"),
            subclass="rendezvous",
            key=("nccl", "rendezvous"),
        )
    timed_out = isinstance(failure, ServerError) and failure.name == "nccl-timeout"
    timed_out = timed_out or search_machine(_EXPERTS, failure) is not None
    if not timed_out and search_machine(PATTERN, failure) is None:
        return NotThis(why="no NCCL error in the failure that began it")
    what = "A collective operation timed out" if timed_out else "Communication between ranks failed"
    return finding(
        ending,
        failure,
        summary=sentence(f"{what}: {headline(failure)}{_last_error(failure)}"),
        subclass=_subclass(failure, timed_out=timed_out),
        key=("nccl", headline(failure, WHOLE)),
    )


def _subclass(failure: Failure, *, timed_out: bool) -> str:
    if timed_out:
        return "collective-timeout"
    return "shared-memory" if search_machine(_SHARED_MEMORY, failure) else "communication"


def _last_error(failure: Failure) -> str:
    """NCCL's own last word, which is more telling than the name of the error."""
    lines = machine_words(failure).splitlines()
    told = [line.strip() for at, line in enumerate(lines) if at and lines[at - 1].startswith("Last error")]
    return f" ({told[0]})" if told and told[0] else ""


def _peer_lost(ending: Ending) -> Finding | None:
    """All that was said is that a peer is gone, and NCCL said it: why the peer went is in its own log. A child that was
    seen to die here is a better answer."""
    echo = ending.echo
    if not isinstance(echo, ServerError | Traceback) or search_machine(PATTERN, echo) is None:
        return None
    if any(seen is not None for seen in (ending.child_died, ending.core_dump, ending.segfault, ending.outsider)):
        return None
    return finding(
        ending,
        echo,
        summary=f"A peer was lost: {headline(echo)}{_last_error(echo)}. Why it went is in that peer's log, not here.",
        subclass="peer-lost",
        key=("nccl", "peer-lost"),
    )
