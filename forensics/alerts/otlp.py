"""OpenTelemetry: each message is a log record, POSTed to a collector as OTLP/HTTP has it, in JSON.

The resource is the server's run, not this daemon. Attributes have the names of the semantic conventions where those
have one, all else begins with `inquest.`. Written out here, since one POST needs no SDK, whose memory counts.
"""

import json
from datetime import datetime
from typing import Any

from forensics.alerts.post import Poster
from forensics.alerts.rendering import plain
from forensics.alerts.routing import QUIET
from forensics.alerts.words import words
from forensics.public import usec
from forensics.report import decisive_evidence
from forensics.shapes import CrashShape
from forensics.store import Delivery
from forensics.store.rows import now_usec
from forensics.store.telling import CRASH, HANG, START_LIMIT

PATH = "/v1/logs"
SCOPE = "inquestd"

_INFO, _WARN, _ERROR, _FATAL = (9, "INFO"), (13, "WARN"), (17, "ERROR"), (21, "FATAL")
"""OpenTelemetry's severities: number and text."""


class OtlpSink:
    def __init__(self, name: str, poster: Poster, *, host: str, link: str) -> None:
        self.name = name
        self._poster = poster
        self._host, self._link = host, link

    def send(self, delivery: Delivery) -> str:
        return self._poster.post(json.dumps(self.export(delivery, now_usec())).encode(), {}, path=PATH)

    def export(self, delivery: Delivery, observed_usec: int) -> dict[str, Any]:
        """An `ExportLogsServiceRequest` with one record."""
        said = words(delivery, host=self._host, link=self._link)
        crash = delivery.crash
        number, text = _severity(delivery)
        invocation_id = delivery.details.get("invocation_id", "") if crash is None else crash["invocation_id"]
        resource = {
            "service.name": delivery.unit.removesuffix(".service"),
            "service.instance.id": invocation_id,
            "host.name": self._host,
        }
        attributes = {
            **({} if crash is None else _of_crash(crash)),
            "inquest.server": delivery.server,
            "inquest.unit": delivery.unit,
            "inquest.count": delivery.count,
            "inquest.link": said.link,
        }
        record = {
            "timeUnixNano": str(delivery.until_usec * 1000),
            "observedTimeUnixNano": str(observed_usec * 1000),
            "severityNumber": number,
            "severityText": text,
            "eventName": f"inquest.{delivery.kind}",
            "body": {"stringValue": plain(said)},
            "attributes": _attributes(attributes),
        }
        scope_logs = [{"scope": {"name": SCOPE}, "logRecords": [record]}]
        return {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": scope_logs}]}


def _severity(delivery: Delivery) -> tuple[int, str]:
    if delivery.kind == HANG:
        return _ERROR
    if delivery.kind not in (CRASH, START_LIMIT) or delivery.crash is None:
        return _INFO
    return _WARN if delivery.crash["cause"] in QUIET else _FATAL


def _of_crash(crash: CrashShape) -> dict[str, Any]:
    run, decisive = crash["run"], decisive_evidence(crash)
    died_of_exception = decisive is not None and decisive["kind"] == "traceback"
    return {
        "exception.type": crash["subclass"] if died_of_exception else run["signal"] or crash["cause"],
        "exception.message": crash["summary"],
        "exception.stacktrace": decisive["message"] if decisive is not None and died_of_exception else None,
        "process.pid": run["main_pid"],
        "process.creation.time": crash["started_at"],
        "process.exit.time": crash["died_at"],
        "process.exit.code": run["exit_status"] if run["exit_code"] == "exited" else None,
        "inquest.crash.id": crash["id"],
        "inquest.cause": crash["cause"],
        "inquest.family": crash["family"],
        "inquest.strength": crash["strength"],
        "inquest.subclass": crash["subclass"],
        "inquest.phase": crash["phase"],
        "inquest.signal": run["signal"],
        "inquest.fingerprint": crash["fingerprint"],
        "inquest.revision": crash["revision"],
        "inquest.lived_seconds": (_usec(crash["died_at"]) - _usec(crash["started_at"])) / 1e6,
        "inquest.decisive": None if decisive is None else decisive["message"],
        "inquest.advice": crash["advice"],
        "inquest.not_seen": [f"{gap['source']}: {gap['reason']}" for gap in crash["gaps"]],
    }


def _usec(text: str) -> int:
    return usec(datetime.fromisoformat(text))


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that have a value."""
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value not in (None, "", [])]


def _value(value: str | int | float | list[str]) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits do not fit a number of JSON
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"arrayValue": {"values": [_value(one) for one in value]}}
