"""What is shipped for Prometheus, Alertmanager and Grafana, held against the real programs of Debian."""

import json
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from forensics.api import create_app, serve
from forensics.events import Batch
from forensics.store import Store
from tests import debian
from tests.forensics.api.conftest import CAUSES
from tests.forensics.channels import everybody
from tests.forensics.factories import HEALTH, crash, open_run, record

SHARE = Path(__file__).parents[3] / "deploy/rootfs/usr/local/share/inquest"
RULES = SHARE / "prometheus.rules.yml"
ROUTES = SHARE / "alertmanager.yml"
DASHBOARD: dict[str, Any] = json.loads((SHARE / "grafana/inquest.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: inquest
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def fill(store: Store) -> None:
    """A crash, a living run that decodes, and an alert that waits: every metric has a sample."""
    store.save(crash(1))
    run = open_run(2)
    speed = (("gen throughput (token/s)", "100.5"), ("accept len", "2.5"))
    run.events.append(Batch(record=record("Decode batch", 70_000_000), phase="decode", values=speed))
    store.checkpoint("here", 1, [run])


def ran(package: str, name: str, *arguments: str | Path, given: bytes = b"") -> tuple[str, str]:
    """What a program of a package writes on both streams; the test fails where it does."""
    command = [debian.program(package, name), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=60)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode(), done.stderr.decode()


def promtool(*arguments: str | Path, given: bytes = b"") -> tuple[str, str]:
    return ran("prometheus", "promtool", *arguments, given=given)


def amtool(*arguments: str | Path) -> tuple[str, str]:
    return ran("prometheus-alertmanager", "amtool", *arguments)


@pytest.mark.peer
def test_promtool_has_nothing_to_say_of_the_metrics(client: TestClient, store: Store) -> None:
    fill(store)
    assert promtool("check", "metrics", given=client.get("/metrics").content) == ("", "")


@pytest.mark.peer
def test_the_alert_rules_fire_when_they_should(tmp_path: Path) -> None:
    cases = (Path(__file__).parent / "rules_test.yml").read_text().replace("RULES", str(RULES))
    (tmp_path / "test.yml").write_text(cases)
    promtool("check", "rules", RULES)
    promtool("test", "rules", tmp_path / "test.yml")
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)\n +exp_alerts", cases)), "each of them is seen to fire"


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "InquestServerDied", "cause": "python-exception"}, "chat"),
        ({"alertname": "InquestServerDied", "cause": "gpu-fault"}, "machines"),
        ({"alertname": "InquestServerGivenUp", "cause": "gpu-fault"}, "on-call"),
        ({"alertname": "InquestServerHangs"}, "chat"),
        ({"alertname": "InquestTest"}, "chat"),
        ({"alertname": "SGLangServerCrashed", "cause": "kernel-oom"}, "chat"),
    ],
    ids=str,
)
@pytest.mark.peer
def test_the_example_for_alertmanager_leads_alerts_where_they_belong(labels: dict[str, str], receiver: str) -> None:
    pairs = [f"{name}={value}" for name, value in (labels | {"server": "demo", "severity": "critical"}).items()]
    found, _ = amtool("config", "routes", "test", f"--config.file={ROUTES}", *pairs)
    assert found.strip() == receiver


@pytest.mark.peer
def test_the_example_for_alertmanager_is_valid() -> None:
    found, _ = amtool("check-config", ROUTES)
    assert "SUCCESS" in found
    assert "3 receivers" in found


def test_every_panel_of_the_dashboard_asks_the_chosen_prometheus() -> None:
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "instance", "server"]
    asked = re.findall(r'"uid": "([^"]+)"', json.dumps([DASHBOARD["panels"], DASHBOARD["annotations"]]))
    assert set(asked) == {"${datasource}"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_no_two_panels_of_the_dashboard_lie_on_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        places = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in places) < 24, panel.get("title")
        assert not places & taken, panel.get("title")
        taken |= places


def within_a_minute(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in a minute"
        pause.wait(0.2)


class Prometheus:
    """One that scrapes an API of ours every second."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._address}/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def labels(self, expression: str) -> list[dict[str, str]]:
        """The labels of each series that an expression gives now."""
        return [series["metric"] for series in self.get("query", query=expression)["result"]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    store = Store(folder / "inquest.sqlite", everybody("pager"))
    fill(store)
    serving = serve(create_app(store, lambda: HEALTH, causes=CAUSES), "127.0.0.1", 0)
    configuration = folder / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(rules=RULES, port=serving.port))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        debian.program("prometheus", "prometheus"),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    made = Prometheus(port)

    def scraped_twice() -> bool:
        with suppress(OSError):
            return bool(made.get("query", query="count_over_time(inquest_build_info[1m]) >= 2")["result"])
        return False

    with subprocess.Popen(command) as process:
        try:
            within_a_minute(scraped_twice)
            store.save(crash(3))
            within_a_minute(lambda: bool(made.labels("increase(inquest_crashes_total[1m]) > 0")))
            yield made
        finally:
            process.terminate()
    serving.close()
    store.close()


@pytest.mark.peer
def test_prometheus_has_an_answer_to_everything_that_the_dashboard_asks(prometheus: Prometheus) -> None:
    queries = [
        (panel["title"], one["expr"], one.get("legendFormat", "")) for panel in PANELS for one in panel["targets"]
    ]
    queries += [(one["name"], one["expr"], one["titleFormat"]) for one in DASHBOARD["annotations"]["list"]]
    assert len(queries) > len(PANELS)
    for title, expression, legend in queries:
        found = prometheus.labels(_filled_in(expression))
        assert found, f"{title}: {expression}"
        wanted = set(re.findall(r"\{\{(\w+)\}\}", legend))
        wanted |= {name.strip() for names in re.findall(r"sum by \(([^)]*)\)", expression) for name in names.split(",")}
        assert wanted - {"le"} <= set(found[0]), f"{title}: {expression} has no such labels"
    for variable in DASHBOARD["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        assert prometheus.labels(_filled_in(metric))[0][label], variable["name"]


@pytest.mark.peer
def test_prometheus_takes_the_rules_and_raises_the_alarm(prometheus: Prometheus) -> None:
    def raised() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.get("alerts")["alerts"]}

    within_a_minute(lambda: "SGLangServerCrashed" in raised())
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}


def _filled_in(expression: str) -> str:
    """The expression as Grafana sends it, with everything chosen."""
    for name, value in {"$__range": "1h", "$__interval": "1m", "$instance": ".*", "$server": ".*"}.items():
        expression = expression.replace(name, value)
    return expression
