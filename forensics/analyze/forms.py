"""What a file is, told from its beginning. Pure: bytes in, a name out."""

import json
import re
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from forensics.analyze import senders, shippers, units, wrappings
from forensics.analyze.stamps import Stamp


class Form(StrEnum):
    JOURNAL = "binary journal"
    EXPORT = "journalctl -o export"
    JSON = "journalctl -o json"
    VERBOSE = "journalctl -o verbose"
    DMESG_JSON = "dmesg --json"
    RECORDS = "log records as JSON"
    KERNEL = "kernel log"
    SYSLOG = "journalctl or syslog text"
    SHOW = "systemctl show"
    STATUS = "systemctl status"
    TEXT = "plain log"
    EMPTY = "empty"
    UNKNOWN = "unknown"


class Recognised(NamedTuple):
    """`newest_first` is True for an export that runs backwards in time, `indent` what stands before every line, `first`
    the first stamp that a plain log shows: the lines before it are not older by much. `shipper` matches what a log
    shipper put before the lines of a plain log."""

    form: Form
    newest_first: bool = False
    indent: int = 0
    first: Stamp | None = None
    shipper: re.Pattern[bytes] | None = None


_EXPORT = re.compile(rb"^__REALTIME_TIMESTAMP=\d+$", re.MULTILINE)
_EXPORT_FIELD = re.compile(rb"^[A-Z_][A-Z0-9_]{0,63}=", re.MULTILINE)
_VERBOSE = re.compile(r"\S+ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* \S+ \[s=[0-9a-f]+;i=")
_PROPERTY = re.compile(r"[A-Z][A-Za-z0-9]{1,60}=")
_KNOWN_PROPERTIES = ("Result=", "ExecMainStatus=", "ExecMainCode=", "ActiveState=", "InvocationID=", "NRestarts=",
                     "SubState=", "ExecMainPID=", "MainPID=")  # fmt: skip
_STATUS = re.compile(r"\s*(?:[^\w\s] )?[\w@.\\:-]+\.(?:service|scope)(?: - .*)?$")
_ACTIVE = re.compile(r"\s+Active: \w+ ")
_SAMPLE = 400


def recognise(head: bytes, reference: datetime) -> Recognised:
    """The form of a file whose first bytes these are; `reference` is the file's time."""
    if head.startswith(b"LPKSHHRH"):
        return Recognised(Form.JOURNAL)
    if not head.strip():
        return Recognised(Form.EMPTY)
    text = _decoded(head)
    if text is None:
        return Recognised(Form.UNKNOWN)
    if _EXPORT.search(head) and _EXPORT_FIELD.match(head.lstrip()):
        return Recognised(Form.EXPORT, _export_backwards(head))
    lines = text.splitlines()
    if len(head) > 1 << 16 and len(lines) > 1:
        lines.pop()  # cut short by the size of the head
    lines = [line for line in lines if line.strip() and not line.startswith("-- ")][:_SAMPLE]
    if not lines:
        return Recognised(Form.EMPTY)
    if text.lstrip("\ufeff \t\r\n\x1e").startswith(("{", "[{", "data: {", "[ {", "[\n")) and (form := _json_form(text)):
        shipper = shippers.learned(_record_texts(lines)) if form is Form.RECORDS else None
        return Recognised(form, _backwards([_json_usec(line) for line in lines]), shipper=shipper)
    if any(_VERBOSE.match(line) for line in lines[:3]):
        return Recognised(Form.VERBOSE)
    properties = [line for line in lines if _PROPERTY.match(line)]
    if len(properties) * 2 > len(lines) and sum(line.startswith(_KNOWN_PROPERTIES) for line in lines) >= 2:
        return Recognised(Form.SHOW)
    if any(_STATUS.match(line) for line in lines[:5]) and any(_ACTIVE.match(line) for line in lines[:30]):
        return Recognised(Form.STATUS)
    return _text_form(lines, reference)


def _text_form(lines: list[str], reference: datetime) -> Recognised:
    indent = min(len(line) - len(line.lstrip(" ")) for line in lines)
    lines = [line[indent:] for line in lines]
    headed = [line for line in lines if line[:1] not in " \t"]
    sent = [found for line in headed if (found := senders.syslog(line, reference))]
    with_sender = sum(each.pid is not None or each.ident == "kernel" for each in sent)
    of_kernel = [record for line in headed if (record := senders.kernel(line, reference))]
    if with_sender * 2 > len(headed):
        return Recognised(Form.SYSLOG, _backwards([_usec(each.stamp) for each in sent]), indent)
    kmsg = sum(senders.is_kmsg(line) for line in headed)
    if (
        kmsg * 2 > len(headed)
        or len(of_kernel) * 2 > len(headed)
        or (len(of_kernel) * 2 == len(headed) and not _server_like(lines))
    ):
        return Recognised(Form.KERNEL, _backwards([_usec(stamp) for stamp, _ in of_kernel if stamp]), indent)
    wrapped = [wrappings.unwrap(line, reference) for line in lines]
    said = [(" " * indent + line, each.text) for line, each in zip(lines, wrapped, strict=True) if each.text.strip()]
    shipper = None
    if shippers.learned([own for _, own in said]):
        shipper = shippers.learned([line for line, _ in said])
    elif indent:
        shipper = re.compile(rb" {%d}" % indent)
    if shipper is not None:
        own = [shippers.without(shipper, line.encode()).decode() for line, _ in said]
        wrapped = [wrappings.unwrap(line, reference) for line in own]
    known = [each.stamp for each in wrapped if each.stamp and not each.stamp.clock]
    newest_first = _backwards([_usec(stamp) for stamp in known])
    return Recognised(Form.TEXT, newest_first, indent, known[0] if known else None, shipper)


def _server_like(lines: list[str]) -> bool:
    return any(units.server_like(line) or line.startswith(("INFO", "ERROR", "WARNING")) for line in lines)


def _usec(stamp: Stamp) -> int | None:
    return stamp.monotonic_usec if stamp.realtime_usec is None else stamp.realtime_usec


def _backwards(usecs: list[int | None]) -> bool:
    """Whether stamps fall: newest first. Lines of one moment say nothing, and clocks may step a little."""
    known = [usec for usec in usecs if usec is not None]
    falls = sum(later < earlier for earlier, later in pairwise(known))
    rises = sum(later > earlier for earlier, later in pairwise(known))
    return falls >= 3 and falls > 4 * rises


def _export_backwards(head: bytes) -> bool:
    return _backwards([int(match[0].partition(b"=")[2]) for match in list(_EXPORT.finditer(head))[:_SAMPLE]])


def _decoded(head: bytes) -> str | None:
    """The text; None when this is no text."""
    for bom, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if head.startswith(bom):
            return head[2:].decode(encoding, "ignore")
    text = head.decode("utf-8", "replace").lstrip("\ufeff")
    # Latin-1 text has some bytes that are no UTF-8; a picture or a core has little else.
    odd = sum(1 for char in text if char == "\ufffd" or (char < " " and char not in "\t\n\r\x1b\x0c\x1e\x08"))
    return text if odd * 10 < len(text) * 3 else None


def _json_form(text: str) -> Form | None:
    first = text.lstrip("\ufeff \t\r\n\x1e").removeprefix("data: ")
    if re.match(r'\{\s*"dmesg"\s*:', first):
        return Form.DMESG_JSON
    try:
        record, _ = json.JSONDecoder().raw_decode(first.lstrip("[ \r\n\t"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if "__REALTIME_TIMESTAMP" in record:
        return Form.JSON
    return Form.RECORDS if wrappings.record_of(record) is not None else None


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line.strip().removeprefix("data: ").rstrip(","))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _record_texts(lines: list[str]) -> list[str]:
    records = (record for line in lines if (record := _record(line)) is not None)
    return [found.text for record in records if (found := wrappings.record_of(record)) and found.text.strip()]


def _json_usec(line: str) -> int | None:
    if (record := _record(line)) is None:
        return None
    stamp = record.get("__REALTIME_TIMESTAMP")
    if isinstance(stamp, str) and stamp.isdecimal() and len(stamp) < 20:
        return int(stamp)
    found = wrappings.record_of(record)
    return found.stamp.realtime_usec if found and found.stamp else None
