"""The record is read by OpenTelemetry's own definition of the protocol, which takes no field that it does not know."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber

from forensics.alerts import addressees
from forensics.alerts.otlp import OtlpSink
from forensics.alerts.post import Poster
from forensics.model import Evidence, Family, Role
from forensics.settings import Settings
from forensics.store import Store
from tests.forensics.alerts.conftest import Employ
from tests.forensics.alerts.deliveries import LINK, delivery, living
from tests.forensics.factories import crash, invocation, traceback
from tests.forensics.receiver import Receiver, receiving

Eventually = Callable[[Callable[[], bool]], None]


def collector(url: str = "http://127.0.0.1:4318") -> OtlpSink:
    return OtlpSink("pager", Poster(url, timeout_seconds=5, headers={}), host="gpu7", link=LINK)


def parsed(raw: bytes | dict[str, Any]) -> ExportLogsServiceRequest:
    return Parse(raw if isinstance(raw, bytes) else json.dumps(raw), ExportLogsServiceRequest())


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [plain(one) for one in found.values] if kind == "array_value" else found


def the_record(request: ExportLogsServiceRequest) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """The resource's attributes, the one record, and its attributes."""
    [of_resource] = request.resource_logs
    [of_scope] = of_resource.scope_logs
    [record] = of_scope.log_records
    assert of_scope.scope.name == "inquestd"
    names = [pair.key for pair in record.attributes]
    assert len(names) == len(set(names))
    resource = {pair.key: plain(pair.value) for pair in of_resource.resource.attributes}
    return resource, record, {pair.key: plain(pair.value) for pair in record.attributes}


def test_a_crash_arrives_as_a_record_of_the_protocol(store: Store, courier: Employ, eventually: Eventually) -> None:
    with receiving(Receiver(answers=[200])) as receiver, courier(store, collector(receiver.url)):
        store.save(crash(1))
        eventually(lambda: bool(receiver.got))
    [got] = receiver.got
    assert got["path"].startswith("/hook/v1/logs")
    assert got["headers"]["Content-Type"] == "application/json"
    resource, record, attributes = the_record(parsed(got["raw"]))
    assert resource == {"service.name": "sglang-demo", "service.instance.id": invocation(1), "host.name": "gpu7"}
    shown = store.shown(invocation(1))
    assert shown is not None
    assert record.event_name == "inquest.crash"
    assert record.severity_number == SeverityNumber.SEVERITY_NUMBER_FATAL
    assert record.body.string_value.startswith("demo on gpu7 died of python-exception (confirmed): ")
    assert record.time_unix_nano <= record.observed_time_unix_nano
    assert attributes["exception.type"] == "RuntimeError"
    assert attributes["exception.message"] == shown["summary"]
    assert attributes["process.pid"] == 4321
    assert (attributes["process.creation.time"], attributes["process.exit.time"]) == (
        shown["started_at"],
        shown["died_at"],
    )
    assert attributes["inquest.cause"] == "python-exception"
    assert attributes["inquest.fingerprint"] == shown["fingerprint"]
    assert attributes["inquest.advice"] == shown["advice"]
    assert attributes["inquest.lived_seconds"] == 50.0
    assert "process.exit.code" not in attributes, "a signal ended it"


def test_a_death_without_an_exception_has_its_signal_for_a_type() -> None:
    killed = crash(1, cause="kernel-oom", family=Family.KERNEL_OOM, subclass="memcg", evidence=())
    _, _, attributes = the_record(parsed(collector().export(delivery(of=killed), 1)))
    assert (attributes["exception.type"], attributes["inquest.signal"]) == ("SIGKILL", "SIGKILL")
    assert "exception.stacktrace" not in attributes


def test_the_traceback_goes_along() -> None:
    fell = traceback(message='Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no')
    of = crash(1, evidence=(Evidence(role=Role.INITIATING, event=fell, why="it failed"),))
    _, _, attributes = the_record(parsed(collector().export(delivery(of=of), 1)))
    assert attributes["exception.stacktrace"].endswith("ValueError: no")


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("crash", "FATAL"), ("start-limit", "FATAL"), ("amended", "INFO"), ("recovered", "INFO"), ("test", "INFO")],
)
def test_every_kind_is_a_record(kind: str, severity: str) -> None:
    _, record, attributes = the_record(parsed(collector().export(delivery(kind), 1)))
    assert (record.event_name, record.severity_text) == (f"inquest.{kind}", severity)
    assert attributes["inquest.link"].startswith(LINK)


@pytest.mark.parametrize(("kind", "severity"), [("hang", "ERROR"), ("answering", "INFO")])
def test_a_living_run_has_no_exception(kind: str, severity: str) -> None:
    resource, record, attributes = the_record(parsed(collector().export(living(kind), 1)))
    assert record.severity_text == severity
    assert resource["service.instance.id"] == "0" * 31 + "7"
    assert not [name for name in attributes if name.startswith("exception.")]


def test_a_collector_is_told_of_each_death_by_itself() -> None:
    settings = Settings.model_validate({"alerts": {"otlp": [{"name": "collector", "url": "http://127.0.0.1:4318"}]}})
    journal, otlp = addressees(settings)
    assert (otlp.name, otlp.everything, otlp.manner) == ("collector", True, journal.manner)
