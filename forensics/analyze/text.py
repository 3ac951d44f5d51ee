"""Saved text with a header on every line → journal entries, as far as text can tell them.

The fields that come out are what the text claims. Whatever rests on them is `likely` at most: `judging` sees to that
by the entries' `cursor`, which is `file:line` here.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from forensics.analyze import senders
from forensics.analyze.lines import Line
from forensics.analyze.senders import Sent
from forensics.analyze.stamps import Stamp
from forensics.analyze.units import Attribution, Survey, is_forked_child, is_manager
from forensics.entry import Entry
from forensics.sources import coredump, oomkillers, systemd
from forensics.sources.server import SKIPPED

UNDATED = "undated"
"""The `boot_id` of kernel records that have no wall clock: they are joined by what they name, or aligned."""

_BOOT = re.compile(r"-- (?:Boot [0-9a-f]{32}|Reboot) --")
_KERNEL_START = re.compile(r"Linux version \d+\.\d+")
_DUMPED = re.compile(
    r"Process (?P<pid>\d+) \((?P<comm>.*?)\) of user \d+ (?:\(.*\) )?(?:dumped core|terminated abnormally)"
)
_STATUS_NOISE = re.compile(r"(?:-- |Hint: |Warning: )")
_SURVEYED = 20_000
"""Of so many lines every name is gathered; after that only of those that managers and the kernel may have written."""

_HEADER = re.compile(rb".{8,110}?\[\d{1,10}\]: ")
_MOST_HEADERS = 4096
_DAY_USEC = 86_400_000_000
_STEP_USEC = 1


class Clock:
    """The wall clock of one text file, which only goes forward; a line without a stamp takes the last one.

    `boot_id` changes where the text says that another boot begins.
    """

    def __init__(self, reference: datetime) -> None:
        self.now_usec = 0
        self.boot = 0
        self.naive = False
        self.stamped = False
        self._midnight = int(reference.timestamp()) // 86_400 * _DAY_USEC
        self._last_clock = 0

    @property
    def boot_id(self) -> str:
        return f"text-{self.boot}"

    def tick(self, stamp: Stamp | None, step_usec: int = 0) -> int:
        """The line's time in microseconds since the epoch. `step_usec` is what a line without a stamp adds."""
        usec = stamp.realtime_usec if stamp is not None else None
        if usec is None:
            self.now_usec += max(step_usec, _STEP_USEC)
            return self.now_usec
        assert stamp is not None
        if stamp.clock:
            if usec < self._last_clock - _DAY_USEC // 2:
                self._midnight += _DAY_USEC
            self._last_clock = usec
            usec += self._midnight
        self.naive = self.naive or stamp.naive
        self.stamped = True
        # Lines of one second keep their order.
        self.now_usec = usec if usec > self.now_usec else self.now_usec + _STEP_USEC
        return self.now_usec


def survey(lines: Iterable[Line], reference: datetime, indent: int = 0) -> Survey:
    """A first look over a file whose lines have senders."""
    found = Survey()
    for line in lines:
        raw = line.raw
        if line.number > _SURVEYED and b"systemd" not in raw and b"init.scope" not in raw and b"kernel:" not in raw:
            continue
        sent = senders.syslog(line.text[indent:], reference)
        if sent is not None:
            found.look(sent)
    return found


def syslog_entries(
    lines: Iterable[Line], name: str, reference: datetime, attribution: Attribution, clock: Clock, indent: int = 0
) -> Iterator[Entry]:
    """Entries of journalctl's short forms, or of a syslog file. Lines without a header continue the one before."""
    boot_mono: int | None = None
    last: tuple[dict[str, str], int] | None = None
    headers = _Headers(attribution)
    sample: Entry | None = None
    for line in lines:
        if (known := headers.of(line.raw)) is not None:
            usec = clock.tick(known.stamp)
            last = (known.fields, usec)
            gate = SKIPPED.match(line.raw, known.length)
            if gate is not None and not gate["sample"]:
                continue
            message = line.raw[known.length :].decode("utf-8", "replace").replace("\0", "")
            entry = _entry({**known.fields, "MESSAGE": message}, f"{name}:{line.number}", clock, usec)
            if gate is not None:
                sample = entry
                continue
            if sample is not None:
                yield sample
                sample = None
            yield entry
            continue
        if sample is not None:
            yield sample
            sample = None
        text = line.text[indent:]
        if not text.strip():
            continue
        if text.startswith("-- "):
            if _BOOT.match(text):
                clock.boot += 1
            last = None
            continue
        sent = senders.syslog(text, reference)
        if sent is None:
            if last is not None and not _STATUS_NOISE.match(text):
                # journalctl indents the further lines of a message that has several.
                fields, usec = last
                yield _entry({**fields, "MESSAGE": _dedented(text, line)}, f"{name}:{line.number}", clock, usec)
            continue
        if sent.stamp.monotonic_usec is not None:
            if boot_mono is not None and sent.stamp.monotonic_usec < boot_mono - 60_000_000:
                clock.boot += 1
            boot_mono = sent.stamp.monotonic_usec
            usec = sent.stamp.monotonic_usec
        else:
            usec = clock.tick(sent.stamp)
        if sent.ident == "kernel" and _KERNEL_START.match(sent.message) and last is not None:
            clock.boot += 1
        fields = fields_of(sent, attribution)
        if not fields:
            last = None
            continue
        last = (fields, usec) if fields.get("_TRANSPORT") != "kernel" else None
        if sent.stamp.monotonic_usec is None and not indent:
            headers.learn(line.raw, sent, fields)
        yield _entry({**fields, "MESSAGE": sent.message}, f"{name}:{line.number}", clock, usec)
    if sample is not None:
        yield sample


class _Known(NamedTuple):
    stamp: Stamp
    fields: dict[str, str]
    length: int


class _Headers:
    """The headers of programs' lines that were read before: a server writes hundreds of lines in one second."""

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._changes = attribution.changes
        self._known: dict[bytes, _Known] = {}

    def of(self, raw: bytes) -> _Known | None:
        found = _HEADER.match(raw)
        if found is None:
            return None
        if self._changes != self._attribution.changes:
            self._known.clear()
            self._changes = self._attribution.changes
        return self._known.get(found[0])

    def learn(self, raw: bytes, sent: Sent, fields: dict[str, str]) -> None:
        found = _HEADER.match(raw)
        plain = fields.get("_TRANSPORT") == "stdout" and "MESSAGE_ID" not in fields and sent.ident.isascii()
        if found is None or not plain or not found[0].endswith(f"{sent.ident}[{sent.pid}]: ".encode()):
            return
        if sent.ident.startswith("systemd") or len(self._known) >= _MOST_HEADERS:
            self._known.clear()
        if not sent.ident.startswith("systemd"):
            self._known[found[0]] = _Known(sent.stamp, fields, found.end())


def _dedented(text: str, line: Line) -> str:
    # The indentation is as wide as the header; what is deeper belongs to the message.
    header = re.match(r" {15,90}", text)
    return text[header.end() :] if header and header.end() < len(text) and line.raw else text


def _entry(fields: dict[str, str], ref: str, clock: Clock, usec: int) -> Entry:
    return Entry(cursor=ref, boot_id=clock.boot_id, monotonic_usec=usec, realtime_usec=usec, fields=fields)


def fields_of(sent: Sent, attribution: Attribution) -> dict[str, str]:
    """The journal fields that the line would have had, by its sender."""
    if sent.ident == "kernel":
        return {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}
    if is_forked_child(sent):
        about = attribution.manager(sent.message)
        if about is None or not about[1]:
            return {}
        return {
            "MESSAGE_ID": systemd.SPAWN_FAILED,
            "_TRANSPORT": "journal",
            "_COMM": "(systemd)",
            "_PID": str(sent.pid or 0),
            "_SYSTEMD_UNIT": about[0],
            "_SYSTEMD_INVOCATION_ID": about[1],
        }
    if is_manager(sent):
        if not attribution.survey.believes(sent):
            return {}
        about = attribution.manager(sent.message)
        fields = {"_PID": "1", "_TRANSPORT": "journal", "SYSLOG_IDENTIFIER": "systemd"}
        if about is not None:
            fields["UNIT"] = about[0]
            if about[1]:
                fields["INVOCATION_ID"] = about[1]
                if sent.message.startswith("Stopped ") and not attribution.restarts(about[0]):
                    fields["JOB_TYPE"] = "stop"
        return fields
    return _program_fields(sent, attribution)


ROLE = "ROLE"
"""Not a field of any journal: what the process is, by its words."""


def _program_fields(sent: Sent, attribution: Attribution) -> dict[str, str]:
    unit = attribution.program(sent.ident, sent.pid, sent.message)
    fields = {"SYSLOG_IDENTIFIER": sent.ident, "_TRANSPORT": "stdout"}
    if sent.pid is not None:
        fields["_PID"] = str(sent.pid)
    if unit is None:
        return fields
    fields["_SYSTEMD_UNIT"] = unit
    if unit == "systemd-logind.service" and "system will" in sent.message:
        fields["MESSAGE_ID"] = systemd.SHUTDOWN
    elif sent.ident == "systemd-coredump" and (dumped := _DUMPED.match(sent.message)):
        fields |= {
            "MESSAGE_ID": coredump.COREDUMP,
            "_SYSTEMD_UNIT": "systemd-coredump@0.service",
            "COREDUMP_PID": dumped["pid"],
            "COREDUMP_COMM": dumped["comm"],
            # The text does not name the signal; systemd's own record of the exit does.
            "COREDUMP_SIGNAL": "0",
            "COREDUMP_UNIT": attribution.unit_of_pid(int(dumped["pid"])) or "",
        }
    elif unit not in oomkillers.KILLERS:
        fields["_SYSTEMD_INVOCATION_ID"] = attribution.life_of(unit)
        fields[ROLE] = attribution.survey.speakers.role(sent.pid)
    return fields


def kernel_entries(
    lines: Iterable[Line], name: str, reference: datetime, clock: Clock, indent: int = 0
) -> Iterator[Entry]:
    """Entries of a kernel log. Lines that have only the time since boot come out `UNDATED`."""
    last_mono = 0
    held: tuple[str, str, int, str] | None = None
    for line in lines:
        text = line.text[indent:].rstrip()
        if not text or text.startswith("-- "):
            continue
        found = senders.kernel(text, reference)
        if found is None:
            sent = senders.syslog(text, reference)
            if sent is not None and sent.ident == "kernel":
                found = sent.stamp, sent.message
        if found is None:
            if held is not None and text[:1] in " \t":
                # The driver breaks some of its messages over several lines.
                ref, message, usec, boot_id = held
                held = (ref, f"{message} {text.strip().removeprefix('NVRM: ')}", usec, boot_id)
            continue
        stamp, message = found
        if stamp is not None and stamp.monotonic_usec is not None:
            last_mono = usec = stamp.monotonic_usec
            boot_id = UNDATED
        elif stamp is None and not clock.stamped:
            last_mono = usec = last_mono + _STEP_USEC
            boot_id = UNDATED
        else:
            usec, boot_id = clock.tick(stamp, _STEP_USEC), clock.boot_id
        if held is not None:
            yield _kernel_entry(*held)
        held = (f"{name}:{line.number}", _xid_copied(message), usec, boot_id)
    if held is not None:
        yield _kernel_entry(*held)


def _kernel_entry(ref: str, message: str, usec: int, boot_id: str) -> Entry:
    fields = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": message}
    return Entry(cursor=ref, boot_id=boot_id, monotonic_usec=usec, realtime_usec=usec, fields=fields)


def _xid_copied(message: str) -> str:
    """`Xid 31 PCI:0000:f0:00 pid=190771 …`, as people copy it, in the driver's own form."""
    if not message.startswith("Xid"):
        return message
    found = re.match(r"Xid:? (\d+),? \(?PCI:([0-9A-Fa-f:.]+)\)?[: ]+(?:pid='?(\w+)'?)?(.*)", message)
    if found is None:
        return message
    pid = f", pid={found[3]}" if found[3] else ""
    return f"NVRM: Xid (PCI:{found[2]}): {found[1]}{pid}, {found[4].strip()}"
