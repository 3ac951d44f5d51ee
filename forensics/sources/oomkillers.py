"""Processes that kill for want of memory before the kernel must: systemd-oomd, earlyoom, nohang.

Each is believed by the unit that it runs in (`_SYSTEMD_UNIT`), which it cannot choose. Wordings: systemd 247 to 258,
earlyoom 1.0 to 1.8, nohang 0.1 to 0.2.
"""

import re

from forensics.entry import Entry
from forensics.events import Event, UserspaceOomKill

SOURCE = "oomkillers"

# unit -> (tool, what it says at a kill)
KILLERS: dict[str, tuple[str, tuple[re.Pattern[str], ...]]] = {
    "systemd-oomd.service": (
        "systemd-oomd",
        (re.compile(r"Killed (?P<cgroup>/.+?) due to (?:memory|swap) .*"),),
    ),
    "earlyoom.service": (
        "earlyoom",
        (
            re.compile(r'sending SIG\w+ to process (?P<pid>\d{1,10})(?: uid \d+)? "(?P<comm>.*?)": .*'),
            re.compile(r"Killing process '?(?P<comm>.*?)'? with signal '?\w+'?, pid: (?P<pid>\d{1,10}),.*"),
            re.compile(r"Killing process (?P<pid>\d{1,10}) (?P<comm>.*)"),
        ),
    ),
    # nohang names the victim several lines earlier, in a table.
    "nohang.service": ("nohang", (re.compile(r"\s*Sending SIG(?:TERM|KILL) to the victim.*"),)),
    "nohang-desktop.service": ("nohang", (re.compile(r"\s*Sending SIG(?:TERM|KILL) to the victim.*"),)),
}

_LONGEST = 4096


def parse(entry: Entry) -> Event | None:
    """A kill or a signal that one of these tools says it sent, or None."""
    tool, patterns = KILLERS.get(entry.get("_SYSTEMD_UNIT"), ("", ()))
    for pattern in patterns:
        if found := pattern.fullmatch(entry.message[:_LONGEST]):
            at = found.groupdict()
            cgroup = at.get("cgroup")
            return UserspaceOomKill(
                record=entry.record(SOURCE),
                tool=tool,
                victim_pid=int(at["pid"]) if at.get("pid") else None,
                comm=at.get("comm"),
                cgroup=cgroup,
                unit=_unit(cgroup),
            )
    return None


def _unit(cgroup: str | None) -> str | None:
    """The innermost service or scope of a cgroup's path."""
    parts = cgroup.split("/") if cgroup else []
    return next((part for part in reversed(parts) if part.endswith((".service", ".scope"))), None)
