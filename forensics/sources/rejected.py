"""Records that speak as a sender that did not write them: a kernel's line in a server's output, PID 1's by another pid.

Nothing of them counts. They are told all the same: who reads the log sees them, and may believe them. What a record
imitates is found by asking the parser of the true sender what it would have made of it.
"""

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from typing import NamedTuple

from forensics.entry import Entry
from forensics.events import Event, Rejected, Unparsed
from forensics.redact import redact
from forensics.sigtrace import UNIT as TRACER_UNIT
from forensics.sources import bench, coredump, heartbeat, kernel, losses, oomkillers, remains, sigtrace, systemd

SOURCE = "rejected"

_KINDS_AT_MOST = 16
_KEPT_CHARACTERS = 400
_HEAD_CHARACTERS = 512
"""The words that tell whose record it would be stand at its beginning."""
_LONGEST = 4096
"""No record of the kernel is longer, hardly one of PID 1: what is longer only quotes one."""

_DMESG = re.compile(r"(?:<\d{1,3}>)?(?:\[ *\d{1,10}\.\d{6}\] )?(?:kernel: )?")
_UNIT = re.compile(r"[^\s:/]{1,250}\.(?:service|scope|slice)\b")
_PID_1 = re.compile(rf"(?:(?:Starting|Started|Stopping|Stopped|Failed to start) )?{_UNIT.pattern}(?:: | - )")
"""PID 1 names the unit first, or right after what became of its job."""


class _Sender(NamedTuple):
    """`believes`: whether an entry is this sender's own; `fields`: what all of his have; `parse`: who reads them."""

    name: str
    why: str
    believes: Callable[[Entry], bool]
    parse: Callable[[Entry], Event | None]
    fields: dict[str, str]

    def imitated(self, entry: Entry, **fields: str) -> Event | None:
        """What the entry would have said, had this sender written it."""
        return self.parse(replace(entry, fields={**entry.fields, **self.fields, **fields}))


_KERNEL = _Sender(
    name="kernel",
    why="only what the kernel itself wrote is believed (_TRANSPORT=kernel, SYSLOG_IDENTIFIER=kernel)",
    believes=lambda entry: entry.from_kernel,
    parse=kernel.parse,
    fields={"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"},
)
_SYSTEMD = _Sender(
    name="systemd",
    why="only PID 1's own records are believed (_PID=1)",
    believes=lambda entry: systemd.parse(entry) is not None,
    parse=systemd.parse,
    fields={"_PID": "1", "_TRANSPORT": "journal"},
)
_LOGIND = _SYSTEMD._replace(
    name="systemd-logind",
    why="only what was written in systemd-logind.service is believed",
    fields={"_SYSTEMD_UNIT": "systemd-logind.service"},
)
_COREDUMP = _Sender(
    name="systemd-coredump",
    why="only what root, or systemd-coredump in its own unit, wrote is believed",
    believes=lambda entry: coredump.parse(entry) is not None,
    parse=coredump.parse,
    fields={"_UID": "0"},
)
_TRACER = _Sender(
    name="inquest-sigtrace",
    why=f"only what root wrote in {TRACER_UNIT} is believed",
    believes=lambda entry: sigtrace.parse(entry) is not None,
    parse=sigtrace.parse,
    fields={"_UID": "0", "_SYSTEMD_UNIT": TRACER_UNIT},
)
_INQUEST = _Sender(
    name="inquest",
    why="only what root wrote, and not the server itself, is believed",
    believes=lambda entry: entry.get("_UID") == "0",
    parse=remains.parse,
    fields={"_UID": "0"},
)
_HEARTBEAT = _INQUEST._replace(
    name="inquest-beat",
    why="only what root wrote in the unit that it speaks of is believed",
    believes=lambda entry: heartbeat.parse(entry) is not None,
    parse=heartbeat.parse,
)
_JOURNALD = _Sender(
    name="systemd-journald",
    why="only journald's own notices are believed (_TRANSPORT=driver)",
    believes=lambda entry: losses.parse(entry) is not None,
    parse=lambda entry: None,
    fields={},
)


def _killer(unit: str) -> _Sender:
    return _Sender(
        name=oomkillers.KILLERS[unit][0],
        why=f"only what was written in {unit} is believed",
        believes=lambda entry: entry.get("_SYSTEMD_UNIT") in oomkillers.KILLERS,
        parse=oomkillers.parse,
        fields={"_SYSTEMD_UNIT": unit},
    )


_BY_ID = {
    **dict.fromkeys((*systemd.BY_ID, systemd.SPAWN_FAILED), _SYSTEMD),
    **dict.fromkeys(sigtrace.MESSAGE_IDS, _TRACER),
    **dict.fromkeys((losses.JOURNAL_DROPPED, losses.JOURNAL_MISSED), _JOURNALD),
    systemd.SHUTDOWN: _LOGIND,
    coredump.COREDUMP: _COREDUMP,
    remains.MESSAGE_ID: _INQUEST,
    heartbeat.MESSAGE_ID: _HEARTBEAT,
    bench.MESSAGE_ID: _INQUEST._replace(parse=bench.parse),
}
_BY_WORD = {
    **dict.fromkeys((row[0] for row in kernel.PATTERNS), _KERNEL),
    "Out of memory": _KERNEL,
    " due to ": _killer("systemd-oomd.service"),
    "sending SIG": _killer("earlyoom.service"),
    "Sending SIG": _killer("nohang.service"),
}


def parse(entry: Entry) -> Rejected | None:
    """What an entry imitates; None for all that imitates nothing, and for what is its sender's own."""
    if entry.from_kernel or entry.from_systemd or entry.get("USER_UNIT"):
        return None  # A user's own manager speaks of the user's units.
    if (sender := _BY_ID.get(entry.get("MESSAGE_ID"))) is not None:
        return None if sender.believes(entry) else _rejected(entry, sender, sender.imitated(entry))
    for sender in _claimed(entry):
        if (event := _in_words(entry, sender)) is not None:
            return _rejected(entry, sender, event)
    return None


def _claimed(entry: Entry) -> Iterator[_Sender]:
    """Whose words an entry without such an id may use."""
    message = entry.message
    # Behind SGLang's own prefix everything is only quoted.
    if len(message) > _LONGEST or (message[:1] == "[" and message[5:6] == "-"):
        return
    if _PID_1.match(message) or (entry.get("UNIT") and entry.get("_TRANSPORT") == "journal"):
        yield _SYSTEMD
    head = message[:_HEAD_CHARACTERS]
    for word, sender in _BY_WORD.items():
        if word in head and not sender.believes(entry):
            yield sender


def _in_words(entry: Entry, sender: _Sender) -> Event | None:
    if sender is not _KERNEL:
        return sender.imitated(entry)
    prefix = _DMESG.match(entry.message)
    event = sender.imitated(entry, MESSAGE=entry.message[prefix.end() if prefix else 0 :].rstrip())
    # In a server's output, words that no kernel is known to use are only words; written to /dev/kmsg they are not.
    return None if isinstance(event, Unparsed) and entry.get("_TRANSPORT") != "kernel" else event


def refused(entry: Entry, event: Event) -> Rejected:
    """A record of Inquest's own steps whose writer turned out to be the server itself."""
    return _rejected(entry, _INQUEST, event)


def tally(kept: list[Rejected], found: Rejected) -> None:
    """Keep the first of each kind, and count the others on it: a server can print a thousand of them a second."""
    for at, one in enumerate(kept):
        if (one.claims, one.imitates) == (found.claims, found.imitates):
            kept[at] = replace(one, count=one.count + found.count)
            return
    if len(kept) < _KINDS_AT_MOST:
        kept.append(found)


def concerns(found: Rejected, unit: str, pids: Container[int]) -> bool:
    """Whether a record from outside a unit is about it: it names the unit, or a process of it; or was written to the
    kernel's log and names nobody."""
    if found.about_unit or found.about_pid is not None:
        return found.about_unit == unit or found.about_pid in pids
    return found.claims == "kernel" and not found.writer_unit


def _rejected(entry: Entry, sender: _Sender, event: Event | None) -> Rejected:
    unit = next(filter(None, map(entry.get, ("UNIT", "COREDUMP_UNIT", "INQUEST_TARGET_UNIT"))), "")
    if not unit and (named := _UNIT.search(entry.message[:_LONGEST])):
        unit = named[0]
    pids = (getattr(event, name, None) for name in ("victim_pid", "oom_victim_pid", "xid_pid", "fault_pid"))
    return Rejected(
        record=entry.record(SOURCE, redact(entry.message[:_LONGEST])[:_KEPT_CHARACTERS]),
        claims=sender.name,
        imitates=event.kind if event is not None else "",
        writer=entry.get("_COMM") or entry.get("SYSLOG_IDENTIFIER"),
        writer_unit=entry.get("_SYSTEMD_UNIT"),
        about_unit=unit,
        about_pid=next((pid for pid in pids if pid is not None), None),
        why=sender.why,
    )
