"""The records of the heartbeat beside a server: it runs and does not answer, or answers again (`service.heartbeat`)."""

from collections.abc import Iterator

from forensics.entry import Entry
from forensics.events import Answering, AskedProcess, NotAnswering

SOURCE = "heartbeat"

# The same as service.heartbeat.MESSAGE_ID; nothing here imports the service, and a test holds the two together.
MESSAGE_ID = "9c5e4d5dc849425dae6d158fdd6b91b8"

# Two stacks of some hundred frames; py-spy's answer is bounded where it is asked, too.
_STACKS_CHARACTERS = 48_000
_MOST_PROCESSES = 64
_CMDLINE_CHARACTERS = 200


def parse(entry: Entry) -> NotAnswering | Answering | None:
    """What the heartbeat saw, believed because root wrote it inside the unit that it speaks of (`_UID`, which the
    kernel sets, and `_SYSTEMD_UNIT`, which journald reads from the cgroup); None for the rest."""
    if entry.get("MESSAGE_ID") != MESSAGE_ID or entry.get("_UID") != "0":
        return None
    if not entry.get("INQUEST_UNIT") or entry.get("INQUEST_UNIT") != entry.get("_SYSTEMD_UNIT"):
        return None
    if entry.get("INQUEST_HANG_STATE") == "answering":
        return Answering(record=entry.record(SOURCE))
    stacks = entry.get("INQUEST_HANG_STACKS")
    return NotAnswering(
        record=entry.record(SOURCE),
        since_usec=entry.get_int("INQUEST_HANG_SINCE_USEC") or entry.realtime_usec,
        probe=entry.get("INQUEST_HANG_PROBE"),
        processes=tuple(_processes(entry.get("INQUEST_HANG_PROCESSES"))),
        lost=tuple(filter(None, entry.get("INQUEST_HANG_LOST").splitlines()))[:_MOST_PROCESSES],
        stacks=stacks if len(stacks) <= _STACKS_CHARACTERS else f"{stacks[:_STACKS_CHARACTERS]}\n…",
        on_hang=entry.get("INQUEST_ON_HANG"),
    )


def _processes(text: str) -> Iterator[AskedProcess]:
    """`pid state comm command…`, a line each."""
    for line in text.splitlines()[:_MOST_PROCESSES]:
        pid, _, rest = line.partition(" ")
        state, _, rest = rest.partition(" ")
        comm, _, cmdline = rest.partition(" ")
        if pid.isdecimal() and len(pid) < 12:
            yield AskedProcess(pid=int(pid), state=state, comm=comm, cmdline=cmdline[:_CMDLINE_CHARACTERS])
