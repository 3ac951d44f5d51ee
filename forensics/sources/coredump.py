"""systemd-coredump's record of a process that dumped core.

Since systemd 251 the record is written after privileges were dropped, so `_UID` is that of the systemd-coredump user;
`_SYSTEMD_UNIT`, which the kernel's cgroup decides, is what cannot be forged.
"""

from forensics.entry import Entry
from forensics.events import CoreDump, Event

SOURCE = "coredump"
COREDUMP = "fc2e22bc6ee647b6b90729ab34a250b1"

# The stack traces that follow the first line can be very long.
_KEPT_CHARACTERS = 4000


def _from_coredump(entry: Entry) -> bool:
    return entry.get("_SYSTEMD_UNIT").startswith("systemd-coredump@") or entry.get("_UID") == "0"


def parse(entry: Entry) -> Event | None:
    """`Process N (comm) of user U dumped core.` as a fact; None for every other record."""
    if entry.get("MESSAGE_ID") != COREDUMP or not _from_coredump(entry):
        return None
    pid = entry.get_int("COREDUMP_PID")
    signal = entry.get_int("COREDUMP_SIGNAL")
    if pid is None or signal is None:
        return None
    return CoreDump(
        record=entry.record(SOURCE, entry.message[:_KEPT_CHARACTERS]),
        coredump_pid=pid,
        comm=entry.get("COREDUMP_COMM"),
        exe=entry.get("COREDUMP_EXE") or None,
        signal=signal,
        unit=entry.get("COREDUMP_UNIT") or None,
        truncated=entry.get("COREDUMP_TRUNCATED") in ("1", "yes", "true"),
    )
