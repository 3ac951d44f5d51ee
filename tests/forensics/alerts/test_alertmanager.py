"""Against a real Alertmanager, on loopback: what it then says of itself, and what it tells its own receiver."""

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forensics.alerts.alertmanager import AlertmanagerSink
from forensics.alerts.post import Poster
from forensics.events import Milestone, UnitStarted
from forensics.model import Family
from forensics.store import Delivery, Store
from forensics.store.delivery import Earlier
from tests import debian
from tests.forensics.alerts.conftest import Employ
from tests.forensics.alerts.deliveries import LINK, SECOND, delivery, living
from tests.forensics.factories import clean, crash, open_run, record
from tests.forensics.receiver import Receiver, receiving

Eventually = Callable[[Callable[[], bool]], None]
NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)

CONFIGURATION = """
route:
  receiver: people
  group_by: [alertname, server, cause]
  group_wait: 10ms
  group_interval: 50ms
receivers:
  - name: people
    webhook_configs: [{{url: "{url}"}}]
"""


class Alertmanager:
    def __init__(self, url: str) -> None:
        self.url = url

    def sink(self) -> AlertmanagerSink:
        return AlertmanagerSink("pager", Poster(self.url, timeout_seconds=5, headers={}), host="gpu7", link=LINK)

    def standing(self) -> list[dict[str, Any]]:
        """Its alerts that fire, of this test's server."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts") as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return sorted(found, key=lambda alert: alert["labels"]["alertname"])


@pytest.fixture
def people() -> Iterator[Receiver]:
    with receiving(Receiver()) as receiver:
        yield receiver


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount namespace")


@pytest.fixture
def alertmanager(tmp_path: Path, people: Receiver, eventually: Eventually) -> Iterator[Alertmanager]:
    program = debian.program("prometheus-alertmanager", "prometheus-alertmanager")
    configuration = tmp_path / "alertmanager.yml"
    configuration.write_text(CONFIGURATION.format(url=people.url))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = {
        "config.file": configuration,
        "storage.path": tmp_path / "data",
        "web.listen-address": address,
        "cluster.listen-address": "",
    }
    # Debian's reads its templates from /usr/share: in a mount namespace of its own they lie there.
    share = program.parents[1] / "share"
    within = f'mount -t overlay overlay -o lowerdir={share}:/usr/share /usr/share && exec "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", within, str(program)]
    command += [f"--{name}={value}" for name, value in options.items()]
    made = Alertmanager(f"http://{address}")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        with suppress(OSError), urllib.request.urlopen(f"{made.url}/-/ready", timeout=5):
            return True
        return False

    try:
        eventually(ready)
        yield made
    finally:
        process.terminate()
        process.wait(20)


def told(people: Receiver) -> list[tuple[str, str, str]]:
    """What Alertmanager passed on: name, status and cause of each alert, in order and once."""
    found = [
        (alert["labels"]["alertname"], alert["status"], alert["labels"].get("cause", ""))
        for request in people.got
        for alert in request["body"]["alerts"]
    ]
    return list(dict.fromkeys(found))


def with_earlier(message: Delivery, *before: Delivery) -> Delivery:
    return replace(
        message,
        earlier=tuple(
            Earlier(
                kind=one.kind,
                cause=one.details.get("cause", ""),
                family=one.details.get("family", ""),
                since_usec=one.since_usec,
            )
            for one in reversed(before)
        ),
    )


@needs_root
@pytest.mark.peer
def test_a_death_fires_until_the_server_is_ready_again(
    alertmanager: Alertmanager, people: Receiver, store: Store, courier: Employ, eventually: Eventually
) -> None:
    """From the store to Alertmanager's own receiver: fired, then resolved, once each."""
    run = open_run(2)
    with courier(store, alertmanager.sink()):
        store.save(crash(1))
        eventually(lambda: len(alertmanager.standing()) == 1)
        [alert] = alertmanager.standing()
        assert alert["labels"] == {
            "alertname": "InquestServerDied",
            "instance": "gpu7",
            "server": "demo",
            "unit": "sglang-demo.service",
            "severity": "critical",
            "cause": "python-exception",
            "family": "traceback",
        }
        assert alert["annotations"]["summary"].startswith("demo on gpu7 died of python-exception (confirmed): ")
        assert "RuntimeError: tensor sizes differ" in alert["annotations"]["description"]
        assert alert["generatorURL"] == f"{LINK}/crashes/000000000001"
        assert alert["startsAt"].startswith("2026-03-01T12:01:01")
        assert datetime.fromisoformat(alert["endsAt"]) > datetime.now(UTC), "it stands"
        eventually(lambda: told(people) == [("InquestServerDied", "firing", "python-exception")])
        run.events += [
            UnitStarted(record=record("Started", 89_000_000, source="systemd")),
            Milestone(record=record("The server is fired up and ready to roll!", 90_000_000), name="ready"),
        ]
        store.checkpoint("here", 1, [run])
        eventually(lambda: alertmanager.standing() == [])
        eventually(lambda: len(told(people)) == 2)
    assert told(people) == [
        ("InquestServerDied", "firing", "python-exception"),
        ("InquestServerDied", "resolved", "python-exception"),
    ]


@needs_root
@pytest.mark.peer
def test_a_corrected_cause_takes_the_place_of_the_first(
    alertmanager: Alertmanager, store: Store, courier: Employ, eventually: Eventually
) -> None:
    with courier(store, alertmanager.sink()):
        store.save(crash(1))
        eventually(lambda: len(alertmanager.standing()) == 1)
        store.save(crash(1, cause="kernel-oom", family=Family.KERNEL_OOM))
        eventually(lambda: [alert["labels"]["cause"] for alert in alertmanager.standing()] == ["kernel-oom"])
        store.save(clean(1))
        eventually(lambda: alertmanager.standing() == [])


def test_a_repeat_is_the_same_alert_with_its_first_beginning() -> None:
    first, second = delivery(), delivery("folded", count=3, since_usec=delivery().since_usec + 60 * SECOND)
    sink = AlertmanagerSink("pager", Poster("http://x", timeout_seconds=1, headers={}), host="gpu7", link=LINK)
    [fired] = sink.alerts(first, NOW)
    [again] = sink.alerts(with_earlier(second, first), NOW)
    assert again["labels"] == fired["labels"]
    assert again["startsAt"] == fired["startsAt"]
    assert "3 more times" in again["annotations"]["summary"]


def test_a_hang_ends_with_the_death_and_all_with_the_return() -> None:
    sink = AlertmanagerSink("pager", Poster("http://x", timeout_seconds=1, headers={}), host="gpu7", link=LINK)
    hang, died = living("hang"), delivery()
    given_up = delivery("start-limit", count=3)
    names = [(alert["labels"]["alertname"], alert["endsAt"] > "2026-03-02") for alert in sink.alerts(hang, NOW)]
    assert names == [("InquestServerHangs", True)]
    after = sink.alerts(with_earlier(died, hang), NOW)
    assert [(alert["labels"]["alertname"], alert["endsAt"] > "2026-03-02") for alert in after] == [
        ("InquestServerDied", True),
        ("InquestServerHangs", False),
    ]
    back = sink.alerts(with_earlier(delivery("recovered", down=False), hang, died, given_up), NOW)
    assert sorted(alert["labels"]["alertname"] for alert in back) == [
        "InquestServerDied",
        "InquestServerGivenUp",
        "InquestServerHangs",
    ]
    assert all(alert["endsAt"] < "2026-03-02" for alert in back)


def test_a_stop_timeout_is_a_warning() -> None:
    sink = AlertmanagerSink("pager", Poster("http://x", timeout_seconds=1, headers={}), host="gpu7", link=LINK)
    [alert] = sink.alerts(delivery(of=crash(1, cause="stop-timeout")), NOW)
    assert alert["labels"]["severity"] == "warning"
