"""What followed from the event that began an end: echoes, SGLang's kill of its own tree, systemd's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forensics.events import ChildDied, Event, FatalPythonError, NativeAbort, ServerSignal, Traceback
from forensics.model import Evidence, Role
from forensics.oom import LATE_KERNEL_USEC
from forensics.senders import by_whom

if TYPE_CHECKING:
    from forensics.causality import Ending

_MOST = 12


def aftermath(ending: Ending, initiating: Event) -> tuple[Evidence, ...]:
    """The first dozen, in order, each in its role."""
    after = (event for event in ending.timeline.events if event.usec >= initiating.usec - LATE_KERNEL_USEC)
    found = (_evidence(ending, event) for event in after if event is not initiating)
    return tuple(piece for piece in found if piece is not None)[:_MOST]


def _evidence(ending: Ending, event: Event) -> Evidence | None:
    if isinstance(event, Traceback | ChildDied | FatalPythonError | NativeAbort) and event in ending.failures:
        return Evidence(role=Role.CASCADE, event=event, why="a consequence, not the cause")
    if isinstance(event, ServerSignal) and event.name in ("sigquit-received", "child-failed"):
        return Evidence(role=Role.CASCADE, event=event, why="main was told that a child failed")
    if event is ending.self_kill:
        return Evidence(role=Role.TEARDOWN, event=event, why="SGLang kills its own tree and itself: status 9/KILL")
    if event is ending.fatal_signal:
        sender = by_whom(ending.run, ending.fatal_signal)
        return Evidence(role=Role.TEARDOWN, event=event, why=f"main died of this signal, sent by {sender}")
    if event is ending.main_exit:
        return Evidence(role=Role.TEARDOWN, event=event, why="how the main process ended")
    return None
