"""What container runtimes, log shippers and other loggers put around a server's own line. Pure.

Known forms only: what else stands before every line of a file is learned from it (`shippers`).

docker's json-file records, `docker logs -t`, the CRI form of Kubernetes, compose and pod prefixes, and the prefix
that vLLM puts before every line of a record, tracebacks included.
"""

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from forensics.analyze import shippers, stamps
from forensics.analyze.stamps import Stamp

_CRI = re.compile(r"(?P<stream>stdout|stderr) (?P<flag>[PF])(?::\S*)? (?P<text>.*)", re.DOTALL)
_POD = re.compile(r"\[pod/[\w.-]+/[\w.-]+\] ")
_COMPOSE = re.compile(r"(?:\x1b\[[\d;]*m)*(?P<name>[\w.-]{1,80}) +\| ?(?:\x1b\[0m ?)?")
_VLLM = re.compile(
    r"(?:\((?P<role>[A-Za-z]\w*)(?: rank=\d+)?(?: pid=(?P<pid>\d{1,10})(?:, ip=[\w.:]+)?)?\) ?)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<M>\d\d)-(?P<D>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d) "
    r"\[?[\w./-]+:\d+\] ?)?"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_SGLANG = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?: [A-Z_]+\d+)*\] ")
_TEXT_KEYS = ("log", "message", "msg", "MESSAGE", "textPayload", "line", "text", "body")
_TIME_KEYS = ("time", "timestamp", "ts", "@timestamp", "receiveTimestamp", "date")
_DISTANT = 1 << 62


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The server's own line. `partial` is True where the runtime split a long line: the next one continues it.

    `logged` is a stamp that the server itself wrote inside; `prefixed` says that a logger's prefix was taken off.
    """

    text: str
    stamp: Stamp | None = None
    partial: bool = False
    role: str = ""
    pid: int | None = None
    level: str = ""
    prefixed: bool = False


def unwrap(line: str, reference: datetime) -> Unwrapped:
    """A line of text without what is not the server's; a line with nothing around it comes back as it is."""
    text = line
    if pod := _POD.match(text):
        text = text[pod.end() :]
    elif (compose := _COMPOSE.match(text)) and not text.startswith("|"):
        text = text[compose.end() :]
    stamp = None
    partial = False
    if text[:1].isdigit() and (stamped := stamps.parse(text, reference)) and stamped[0].form == "iso":
        rest = text[stamped[1] :].removeprefix(" ").removeprefix("\t")
        # `2026-01-02 03:04:05 [INFO] …` is a server's own form: its stamp is taken all the same.
        stamp, text = stamped[0], rest
        if cri := _CRI.match(text):
            text, partial = cri["text"], cri["flag"] == "P"
    return own_prefix(text, stamp, reference, partial=partial)


def own_prefix(text: str, stamp: Stamp | None, reference: datetime, *, partial: bool = False) -> Unwrapped:
    """A line without the prefix that the server's own logger put before it, if it is one that hides the text."""
    plain = _ANSI.sub("", text) if "\x1b" in text[:40] else text
    if found := _SGLANG.match(plain):
        if stamp is None and (own := stamps.parse(found[1] + " ", reference)):
            stamp = own[0]
        return Unwrapped(text, stamp, partial)
    prefix = _VLLM.match(plain)
    if prefix is None or not prefix.end():
        return Unwrapped(text, stamp, partial)
    if prefix["role"] and not prefix["level"] and not prefix["pid"]:
        return Unwrapped(text, stamp, partial)
    if prefix["level"] and stamp is None:
        stamp = _vllm_stamp(prefix, reference)
    pid = int(prefix["pid"]) if prefix["pid"] else None
    return Unwrapped(
        plain[prefix.end() :], stamp, partial, prefix["role"] or "", pid, prefix["level"] or "", prefixed=True
    )


def _vllm_stamp(found: re.Match[str], reference: datetime) -> Stamp | None:
    try:
        moment = datetime(reference.year, int(found["M"]), int(found["D"]), int(found["h"]), int(found["m"]),
                          min(int(found["s"]), 59), tzinfo=UTC)  # fmt: skip
        if moment > reference + timedelta(days=2):
            moment = moment.replace(year=reference.year - 1)
    except ValueError:
        return None
    return Stamp("vllm", realtime_usec=int(moment.timestamp()) * 1_000_000, naive=True)


def record_of(record: dict[str, Any], shipper: re.Pattern[bytes] | None = None) -> Unwrapped | None:
    """One JSON record of a container runtime or a log shipper; None when it holds no line. `shipper` matches what
    stands before the line inside of it."""
    text = next((record[key] for key in _TEXT_KEYS if isinstance(record.get(key), str)), None)
    if text is None or (set(record) <= {"message", "text"} and "log" not in record):
        return None
    stamp = next((found for key in _TIME_KEYS if (found := _stamp_of(record.get(key)))), None)
    partial = "log" in record and "stream" in record and not text.endswith("\n") and len(text) >= 16_000
    if shipper is not None:
        text = shippers.without(shipper, text.encode("utf-8", "replace")).decode("utf-8", "replace")
    text = text.rstrip("\r\n")
    if "log" in record and (logged := _json(text)) is not None and (own := record_of(logged)) is not None:
        return replace(own, stamp=stamp or own.stamp)
    inner = unwrap(text, datetime.now(UTC))
    return Unwrapped(inner.text, stamp or inner.stamp, partial, inner.role, inner.pid, inner.level, inner.prefixed)


def record_in(line: str, reference: datetime) -> Unwrapped | None:
    """The line inside a JSON record that a runtime put its stamp before, or put into a record of its own."""
    outer = unwrap(line, reference)
    record = _json(outer.text)
    found = record_of(record) if record is not None else None
    return None if found is None else replace(found, stamp=found.stamp or outer.stamp)


def _json(text: str) -> dict[str, Any] | None:
    if not (text.startswith('{"') and text.endswith("}")):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _stamp_of(value: Any) -> Stamp | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if value.isdecimal() and 9 < len(value) < 20:
            value = int(value)
        else:
            found = stamps.parse(value.strip() + " ", datetime.now(UTC))
            return found[0] if found and found[0].realtime_usec is not None and not found[0].clock else None
    if isinstance(value, int | float) and 1e9 < value < _DISTANT:
        # Seconds, milliseconds, microseconds or nanoseconds, by size.
        for power in (6, 3, 0, -3):
            usec = int(value * 10**power)
            if usec < 1e16:
                return Stamp("unix", realtime_usec=usec)
    return None
