"""Whether a server that ran answered, by the heartbeat that asks it from outside. Pure."""

from collections.abc import Iterable

from forensics.events import Answering, Event, NotAnswering


def unanswered(events: Iterable[Event]) -> NotAnswering | None:
    """The silence that still lasted after these facts of one run, in their order; None where it answered last."""
    lasting: NotAnswering | None = None
    for event in events:
        if isinstance(event, NotAnswering):
            lasting = event
        elif isinstance(event, Answering):
            lasting = None
    return lasting


def silence(hang: NotAnswering) -> str:
    """What was seen of it: `no answer to a health check; sglang::schedul was stopped`."""
    met = "no answer to a health check" if hang.probe in ("", "nothing") else f"its health check met {hang.probe}"
    return "; ".join((met, *stuck(hang)))


def stuck(hang: NotAnswering) -> tuple[str, ...]:
    """Who kept it from answering, where that could be seen."""
    stopped = [f"{process.comm} was stopped" for process in hang.processes if process.state in ("T", "t")]
    kernel = [f"{process.comm} waited in the kernel" for process in hang.processes if process.state == "D"]
    return (*dict.fromkeys((*stopped, *kernel)), *(f"{name} had ended" for name in hang.lost))
