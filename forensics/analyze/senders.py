"""Who wrote a line of saved text: the header that syslog, journalctl's short forms, or dmesg put in front. Pure.

Such a header was put there by the logger, once a line; what stands behind it can be anything, also another header.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from forensics.analyze import stamps
from forensics.analyze.stamps import Stamp

_WITH_PID = re.compile(
    r"(?:(?P<host>[^\s\[\]:]+) )?(?P<ident>[^\s\[\]][^\[\]\n]{0,80}?)\[(?P<pid>\d{1,10})\]: ?(?P<message>.*)", re.DOTALL
)
_WITHOUT_PID = re.compile(r"(?:(?P<host>[^\s\[\]:]+) )?(?P<ident>[\w.@/()+-]{1,80}): ?(?P<message>.*)", re.DOTALL)
_KMSG = re.compile(r"(?P<priority>\d{1,4}),\d+,(?P<usec>\d{1,16}),[^;]{1,80};(?P<message>.*)", re.DOTALL)
_LEVEL = re.compile(r"<\d{1,3}>")
_FACILITY = re.compile(r"[a-z]+ *: ?[a-z]+ *: ")
_MONO = re.compile(r"\[ *(\d{1,10})\.(\d{3,9})\] ?")


@dataclass(frozen=True, slots=True)
class Sent:
    """A line with its header read. `ident` is the sender's name (`kernel`, `systemd`, `python3`), `pid` its pid."""

    stamp: Stamp
    host: str
    ident: str
    pid: int | None
    message: str


def syslog(line: str, reference: datetime) -> Sent | None:
    """`Jan 20 01:12:46 host python3[42]: …` in any of journalctl's short forms, or as syslog wrote it."""
    stamped = stamps.parse(line, reference)
    if stamped is None or stamped[0].form in ("ctime", "clock"):
        return None
    stamp, at = stamped
    rest = line[at:].lstrip(" ")
    found = _WITH_PID.match(rest)
    if found is None or (found["host"] is None and " " in found["ident"]):
        found = _WITHOUT_PID.match(rest)
        if found is None or not _named(found, stamp):
            return None
    message, ident = found["message"], found["ident"].rsplit(" ", 1)[-1]
    if ident == "kernel" and (mono := _MONO.match(message)):
        # rsyslog keeps the kernel's own stamp.
        message = message[mono.end() :]
    pid = found.groupdict().get("pid")
    return Sent(stamp, found["host"] or "", ident, int(pid) if pid else None, message)


def _named(found: re.Match[str], stamp: Stamp) -> bool:
    """Without a pid only the kernel is sure to be a sender, or somebody behind a host's name: `host CRON: …`."""
    if found["ident"] in ("kernel", "systemd"):
        return True
    return found["host"] is not None and stamp.form in ("syslog", "full") and "=" not in found["host"]


def is_kmsg(line: str) -> bool:
    """A record of /dev/kmsg, whoever wrote it."""
    return _KMSG.match(line) is not None


def kernel(line: str, reference: datetime) -> tuple[Stamp | None, str] | None:
    """A line of dmesg in one of its forms, of /dev/kmsg, or of a driver's messages copied without their stamp."""
    if kmsg := _KMSG.match(line):
        # Facility 0 is the kernel's; whoever writes to /dev/kmsg gets another.
        if int(kmsg["priority"]) >> 3:
            return None
        return Stamp("mono", monotonic_usec=int(kmsg["usec"])), kmsg["message"]
    text = line
    if level := _LEVEL.match(text) or _FACILITY.match(text):
        text = text[level.end() :]
    stamped = stamps.parse(text, reference)
    if stamped is None:
        return (None, text) if text.startswith(("NVRM:", "Xid ")) else None
    stamp, at = stamped
    rest = text[at:].lstrip(" ") if stamp.form == "clock" else text[at:]
    if stamp.form in ("mono", "ctime"):
        return stamp, rest
    if stamp.form == "iso" and "," in text[:at]:
        return stamp, rest  # dmesg --time-format=iso writes a comma before the fraction
    if rest.startswith(("NVRM:", "Xid ")):
        return stamp, rest
    return None
