"""What SGLang itself said about signals: received, passed on, or about to be sent; and how it answers them. Pure.

A prompt can quote an announcement at any time: of those that lead to an end at once only the ones near the end count.
"""

from collections.abc import Iterator

from forensics.events import Batch, ServerSignal, Traceback
from forensics.fatality import PATIENCE_USEC, SURVIVAL_USEC
from forensics.stops import STREAM_SKEW_USEC
from forensics.timeline import Timeline

_ANSWER_USEC = 10_000_000
"""From a signal to main's word on it, or to its end when it has no word: the event loop may be busy with a batch."""


def sigquit(timeline: Timeline, end_usec: int) -> ServerSignal | None:
    """Main was told, or told itself, that a child failed."""
    return next(_near(timeline, end_usec, "sigquit-received", "child-failed"), None)


def self_kill(timeline: Timeline, end_usec: int) -> ServerSignal | None:
    """SGLang announces (0.5.13 and later) that it now kills its tree and itself."""
    announced = _near(timeline, end_usec, "kill-process-tree")
    return next((one for one in announced if dict(one.values).get("include_parent") == "True"), None)


def sigterm(timeline: Timeline) -> ServerSignal | None:
    """Main received SIGTERM: it drains after that, at length."""
    return next((one for one in timeline.all(ServerSignal) if one.name == "sigterm-received"), None)


def interrupted(timeline: Timeline) -> Traceback | None:
    """Python's answer to SIGINT in main."""
    return next((one for one in timeline.all(Traceback) if one.exception == "KeyboardInterrupt"), None)


def answered(timeline: Timeline, end_usec: int, signal: str, usec: int) -> bool:
    """Whether main reacted to a signal that did not end it at once: it said so, or it was gone soon after."""
    said = {
        "SIGTERM": sigterm(timeline),
        "SIGQUIT": sigquit(timeline, end_usec),
        "SIGINT": interrupted(timeline),
    }.get(signal)
    if said is not None and 0 <= said.usec - usec + STREAM_SKEW_USEC <= _ANSWER_USEC:
        return True
    worked = timeline.first(Batch, after=usec + SURVIVAL_USEC)
    return worked is None and 0 <= end_usec - usec + STREAM_SKEW_USEC <= _ANSWER_USEC


def _near(timeline: Timeline, end_usec: int, *names: str) -> Iterator[ServerSignal]:
    for one in timeline.all(ServerSignal):
        if one.name in names and end_usec - one.usec <= PATIENCE_USEC:
            yield one
