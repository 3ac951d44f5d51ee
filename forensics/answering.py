"""Whether a server that ran answered, by the heartbeat that asks it from outside. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from forensics.events import Answering, Batch, Event, NotAnswering
from forensics.model import RunRecord


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


def is_check(batch: Batch) -> bool:
    """Whether this batch was a health check's own: one token of a prompt that nobody had before, while nothing ran.

    `/health_generate` makes SGLang answer one token, after this one line and with no decode step.
    """
    alone = {"new-seq": "1", "new-token": "1", "cached-token": "0", "running-req": "0", "queue-req": "0"}
    return batch.phase == "prefill" and alone.items() <= dict(batch.values).items()


class Heard(NamedTuple):
    """One word of the heartbeat, as those are told who listen: `kind` is `hang` or `answering`, `at_usec` when the
    server was last seen to answer, or when it answered again. The `details` of a hang are `said` (what was seen, in
    words), `lost` (processes that had ended), `on_hang` (`restart` where systemd is to end it) and `stacks` (whether
    there are any; they stand in the run's timeline)."""

    kind: str
    at_usec: int
    details: dict[str, Any]


def untold(record: RunRecord) -> list[Heard]:
    """What the heartbeat said of this run that was not passed on yet, in order."""
    words = [event for event in record.events if isinstance(event, NotAnswering | Answering)]
    return [_heard(event) for event in words[record.silences_told :]]


def _heard(event: NotAnswering | Answering) -> Heard:
    if isinstance(event, Answering):
        return Heard("answering", event.record.realtime_usec, {})
    details = {
        "said": silence(event),
        "lost": list(event.lost),
        "on_hang": event.on_hang,
        "stacks": not event.stacks.startswith("no stack"),
    }
    return Heard("hang", event.since_usec, details)
