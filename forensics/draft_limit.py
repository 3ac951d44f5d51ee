"""A draft model that knows fewer positions than the target's context has: what that has to do with a death. Pure.

SGLang refuses such a pair at start, or, when it was told to go on all the same, warns and serves: a request that grows
beyond the draft's last position then reads outside its tables.
"""

import re

from forensics.causality import Ending
from forensics.events import Milestone, ServerError
from forensics.failure import said
from forensics.sources.sglang_lines import ERRORS

_BEYOND = re.compile(
    r"out of (?:bounds|range)|device-side assert|illegal memory access|[Rr]otary|position|context_length"
)
_ROW = next(row for row in ERRORS if row.name == "draft-limit")


def draft_limit(ending: Ending) -> str | None:
    """A sentence with both numbers, where the failure is of the kind that this leads to."""
    words = said(ending.failure)
    if (refused := _ROW.pattern.search(words)) is not None:
        return _sentence(**refused.groupdict())
    asserted = [event for event in ending.failures if isinstance(event, ServerError) and event.name == "device-assert"]
    if not asserted and _BEYOND.search(words) is None:
        return None
    ready = next((step.usec for step in ending.timeline.all(Milestone) if step.name == "ready"), ending.end_usec)
    for warned in ending.timeline.all(ServerError):
        # Said at the start; what a server that serves prints can be somebody's prompt.
        if warned.name == _ROW.name and warned.usec <= ready:
            return _sentence(**dict(warned.values))
    return None


def _sentence(context_length: str, draft_limit: str) -> str:
    return (
        f"Draft limit: the draft model knows positions up to {draft_limit}, the target's context has {context_length}. "
        f"Set context_length to {draft_limit} at most, or use a draft model that was made for this context."
    )
