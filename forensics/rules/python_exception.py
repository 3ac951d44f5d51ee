"""python-exception: an exception that nobody caught ended a process of the server.

Signal:      the traceback of the first process that failed, and an exit that follows from it.
Not this:    tracebacks that were handled or outlived; EOFError and broken pipes of those that lost a peer;
             KeyboardInterrupt and SystemExit at a stop; `Traceback` in a user's prompt.
Followed by: SIGQUIT to main, `kill_process_tree called`, status=9/KILL of main whatever the cause; or exit status 1.
Needs:       the whole of the server's log: a line lost to the rate limit may be the one that began it.
To do:       search SGLang's issues for the exception and its innermost frame. Where the pool of tokens or request slots
             ran out, lower max_running_requests. Where the log was cut, have journald keep all of the unit's lines
             (LogRateLimitIntervalSec=1us).
"""

import re
from dataclasses import replace

from forensics.causality import Ending
from forensics.events import Traceback
from forensics.failure import finding, headline, innermost, search, sentence, who
from forensics.model import Finding, NotThis, Strength

_TOKEN_POOL = re.compile(
    r"(?:Prefill |Decode |^|: )[Oo]ut of memory\. Try to lower your batch size|alloc_req_slots runs out of memory"
    r"|No space left for only one request|memory leak detected",
    re.MULTILINE,
)
_NO_MEMORY = (
    "It speaks of SGLang's own pool of tokens and requests, which was used up or miscounted: not of GPU memory."
)


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if not isinstance(failure, Traceback):
        covered = ending.covers("server")
        return NotThis(why="no exception in the server's log that it did not outlive") if covered else None
    if not failure.exception and not failure.text:
        return _unread(ending, failure)
    place = innermost(failure)
    found = finding(
        ending,
        failure,
        summary=sentence(
            f"An exception ended the {who(failure, ending)}: {headline(failure)}{f' ({place})' if place else ''}"
        ),
        subclass=failure.exception.rsplit(".", 1)[-1].lower(),
    )
    if search(_TOKEN_POOL, failure):
        found = replace(found, subclass="token-pool", notes=(*found.notes, _NO_MEMORY))
    return found


def _unread(ending: Ending, failure: Traceback) -> Finding:
    """SGLang announced an exception, and what it was is lost: a CUDA error as well as any other."""
    found = finding(
        ending,
        failure,
        summary=f"An exception ended the {who(failure, ending)}; what it was is missing from the log.",
        subclass="unread",
        key=("unread",),
    )
    return replace(found, strength=Strength.LIKELY)
