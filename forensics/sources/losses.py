"""What journald says that it did not keep: lines over a unit's rate limit, records of the kernel that it missed."""

from typing import NamedTuple

from forensics.entry import Entry
from forensics.events import Gap

JOURNAL_DROPPED = "a596d6fe7bfa4994828e72309e95d61e"
JOURNAL_MISSED = "e9bf28e6e834481bb6f48f548ad13606"


class Loss(NamedTuple):
    """`unit` is empty for records of the kernel. The gap has no beginning: journald tells only when it has passed,
    for a unit with the next line that it accepts of it, perhaps in the unit's next life."""

    unit: str
    gap: Gap


def parse(entry: Entry) -> Loss | None:
    """journald's own word (`_TRANSPORT=driver`, which nobody else can have), or None."""
    if entry.get("_TRANSPORT") != "driver":
        return None
    if entry.get("MESSAGE_ID") == JOURNAL_MISSED:
        return Loss("", Gap(source="kernel", reason=entry.message, to_usec=entry.monotonic_usec))
    if entry.get("MESSAGE_ID") == JOURNAL_DROPPED:
        reason = f"journald's rate limit: {entry.message}"
        return Loss(entry.get("OBJECT_SYSTEMD_UNIT"), Gap(source="server", reason=reason, to_usec=entry.monotonic_usec))
    return None
