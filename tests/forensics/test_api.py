import socket
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from forensics.api import create_app, serve
from forensics.api.shapes import CrashesShape, HealthShape, ProblemShape, ServersShape
from forensics.errors import InquestError, StoreError
from forensics.model import Strength
from forensics.shapes import CrashShape, TimelineShape
from forensics.store import Store
from forensics.store.telling import Channel
from tests.forensics.channels import everybody
from tests.forensics.factories import HEALTH, clean, crash, invocation, open_run


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return everybody("pager")


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store, lambda: HEALTH), base_url="http://localhost:8642") as made:
        yield made


def conforms(shape: Any, content: Any) -> None:
    """The answer has exactly the keys and types that OpenAPI promises."""
    TypeAdapter(shape).validate_python(content, strict=True)
    assert set(content) <= set(shape.__annotations__)


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = response.json()
    conforms(ProblemShape, content)
    assert (content["status"], content["code"]) == (status, code)
    return content


# --- what is answered ----------------------------------------------------------------------------------------


def test_crashes_are_listed_newest_first(client: TestClient, store: Store) -> None:
    for number in (1, 2, 3):
        store.save(crash(number))
    store.save(clean(4))
    content = client.get("/crashes").json()
    conforms(CrashesShape, content)
    assert [one["invocation_id"] for one in content["crashes"]] == [invocation(3), invocation(2), invocation(1)]
    assert content["next"] is None


def test_no_crashes_is_an_empty_list(client: TestClient) -> None:
    response = client.get("/crashes")
    assert response.json() == {"crashes": [], "next": None}
    assert "link" not in response.headers


def test_a_crash_has_everything_that_its_verdict_has(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    content = client.get(f"/crashes/{invocation(1)[:12]}").json()
    conforms(CrashShape, content)
    assert content == client.get(f"/crashes/{invocation(1)}").json() == client.get("/crashes/0000").json()
    assert content["server"] == "demo"
    assert (content["cause"], content["strength"], content["phase"]) == ("python-exception", "confirmed", "serving")
    assert content["started_at"] == "2026-03-01T12:00:11.000000Z"
    assert content["died_at"] == "2026-03-01T12:01:01.000000Z"
    assert content["doing"] == {"figures": {"running-req": "3", "accept len": "2.71"}, "seconds_before_death": 1.5}
    assert content["evidence"][0] == {
        "role": "initiating",
        "kind": "traceback",
        "source": "server",
        "ref": "s=5e;i=3938700",
        "at": "2026-03-01T12:01:00.000000Z",
        "message": "RuntimeError: tensor sizes differ",
        "why": "the first failure of this run",
    }
    assert content["run"] == {
        "result": "signal",
        "exit_code": "killed",
        "exit_status": 9,
        "signal": "SIGKILL",
        "core_dumped": False,
        "main_pid": 4321,
        "n_restarts": 0,
    }
    bounds = dict.fromkeys(("from_usec", "to_usec", "from_at", "to_at"))
    assert content["gaps"] == [{"source": "gpu", "reason": "no NVIDIA driver on this machine", **bounds}]


def test_a_clean_run_can_be_looked_at_by_its_id(client: TestClient, store: Store) -> None:
    store.save(clean(1))
    content = client.get(f"/crashes/{invocation(1)}").json()
    conforms(CrashShape, content)
    assert content["is_crash"] is False


def test_the_timeline_has_every_fact(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    content = client.get(f"/crashes/{invocation(1)}/timeline").json()
    conforms(TimelineShape, content)
    assert [fact["kind"] for fact in content["events"]] == ["traceback", "process-exit", "unit-result"]
    assert content["sources"] == ["kernel", "server", "systemd"]


def test_servers(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    store.checkpoint("cursor", 1, [open_run(2, "sglang-young.service")])
    content = client.get("/servers").json()
    conforms(ServersShape, content)
    assert [server["server"] for server in content["servers"]] == ["demo", "young"]


def test_health_names_what_the_daemon_cannot_see(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    response = client.get("/healthz")
    assert response.status_code == 200
    content = response.json()
    conforms(HealthShape, content)
    assert content["status"] == "degraded"
    assert content["sources"][1] == {"name": "gpu", "state": "blind", "detail": "no NVIDIA driver on this machine"}
    assert content["alerts"] == {"pager": {"waiting": 1}}
    assert content["read_to"] == "2026-03-01T12:00:00.000000Z"


def test_text_of_every_kind_arrives_as_it_was(client: TestClient, store: Store) -> None:
    store.save(crash(1, summary="<script>\x00\x1b[2J ünïcode \U0001f4a5"))
    assert client.get("/crashes").json()["crashes"][0]["summary"] == "<script>\x00\x1b[2J ünïcode \U0001f4a5"


# --- filters and pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("server=demo", [3, 2]),
        ("server=sglang-other.service", [1]),
        ("cause=kernel-oom", [3]),
        ("strength=likely", [2]),
        ("family=traceback&phase=serving", [3, 2, 1]),
        ("since=2026-03-01T12:01:02Z", [3, 2]),
        ("since=2026-03-01T13:01:02%2B01:00", [3, 2]),
        ("since=2026-03-01T13:01:02+01:00", [3, 2]),
        ("until=2026-03-01T12:01:02Z", [1]),
        ("fingerprint=v1-none", []),
        ("limit=1", [3]),
    ],
)
def test_filters(client: TestClient, store: Store, query: str, expected: list[int]) -> None:
    store.save(crash(1, unit="sglang-other.service"))
    store.save(crash(2, strength=Strength.LIKELY))
    store.save(crash(3, cause="kernel-oom"))
    content = client.get(f"/crashes?{query}").json()
    assert [one["invocation_id"] for one in content["crashes"]] == [invocation(number) for number in expected]


def test_following_the_links_visits_every_crash_once_while_more_arrive(client: TestClient, store: Store) -> None:
    for number in range(1, 31):
        store.save(crash(number))
    seen = []
    url: str | None = "/crashes?limit=4&server=demo"
    while url is not None:
        response = client.get(url)
        seen += [one["invocation_id"] for one in response.json()["crashes"]]
        url = response.links["next"]["url"] if "next" in response.links else None
        store.save(crash(1000 + len(seen)))
    assert seen == [invocation(number) for number in range(30, 0, -1)]


# --- problems ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("serv=demo", "serv: unknown parameter; did you mean server? allowed: server, cause"),
        ("limit=0", "limit: Input should be greater than or equal to 1"),
        ("limit=1000", "limit: Input should be less than or equal to 500"),
        ("since=yesterday", "since: not a time with its offset, as RFC 3339 writes it"),
        ("since=2026-13-01T12:00:00Z", "since: Input should be a valid datetime"),
        ("until=0.5", "until: not a time with its offset"),
        ("since=2026-03-01T12:00:00", "since: not a time with its offset"),
        ("family=oom", "family: Input should be 'kernel-oom'"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(client: TestClient, query: str, words: str) -> None:
    content = problem(client.get(f"/crashes?{query}"), 400, "bad-parameter")
    assert words in content["detail"]
    assert content["errors"][0]["parameter"] == query.split("=")[0]


def test_a_wrong_cursor_names_no_page(client: TestClient) -> None:
    content = problem(client.get("/crashes?before=xyz"), 404, "bad-cursor")
    assert "xyz" in content["detail"]
    assert content["instance"] == "/crashes"


@pytest.mark.parametrize(
    "path", ["/crashes/abc", "/crashes/abc/timeline", "/crashes/%2e%2e", "/nowhere", "/page/nowhere.js"]
)
def test_what_is_not_there_is_404(client: TestClient, path: str) -> None:
    problem(client.get(path), 404, "not-found")


def test_an_ambiguous_id_is_a_conflict(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    store.save(crash(2))
    content = problem(client.get("/crashes/0000"), 409, "ambiguous-id")
    assert content["hint"] == "Give more digits of the id."


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    problem(client.request(method, "/crashes"), 405, "method-not-allowed")


def test_a_broken_store_is_503(client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(query: object) -> None:
        raise StoreError("store-read-failed", "inquest.sqlite: cannot be read", "Look at the disk.")

    monkeypatch.setattr(store, "crashes", broken)
    assert problem(client.get("/crashes"), 503, "store-read-failed")["hint"] == "Look at the disk."


def test_our_own_mistake_is_500_without_a_traceback(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a detail for the log")

    monkeypatch.setattr(store, "servers", broken)
    app = create_app(store, lambda: HEALTH)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        response = client.get("/servers")
    problem(response, 500, "internal-error")
    assert "detail for the log" not in response.text
    assert "ZeroDivisionError" not in response.text


# --- who may ask ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "localhost:8642", "LOCALHOST", "127.0.0.1:8642", "127.8.9.1", "[::1]:1"])
def test_this_machines_own_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/crashes", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8642", "10.0.0.1", "[::2]", "",
     "localhost:8642@evil", "localhost\t"],
)  # fmt: skip
def test_a_name_that_was_pointed_here_is_not(client: TestClient, host: str) -> None:
    problem(client.get("/crashes", headers={"Host": host}), 421, "host-not-ours")


# --- OpenAPI -------------------------------------------------------------------------------------------------


def test_openapi_describes_every_route_its_answer_and_its_problems(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/alerts",
        "/crashes",
        "/crashes/{crash_id}",
        "/crashes/{crash_id}/timeline",
        "/crashes/{crash_id}/evidence.tar.zst",
        "/crashes/groups",
        "/events",
        "/lives",
        "/metrics",
        "/readyz",
        "/servers",
        "/servers/{name}/tuning",
        "/runs",
        "/runs/{invocation_id}",
        "/healthz",
    }
    for path, methods in schema["paths"].items():
        assert set(methods) == {"get"}, path
        responses = methods["get"]["responses"]
        assert set(responses) in ({"200", "default"}, {"200", "304", "default"}), path
        answer = responses["200"]["content"]
        if path in ("/events", "/metrics", "/crashes/{crash_id}/evidence.tar.zst"):
            assert set(answer) <= {"text/event-stream", "text/plain", "application/zstd"}, path
        else:
            assert answer["application/json"]["schema"]["$ref"].endswith("Shape"), path
        assert set(responses["default"]["content"]) == {"application/problem+json"}, path
        assert methods["get"]["description"], path
    parameters = {one["name"]: one for one in schema["paths"]["/crashes"]["get"]["parameters"]}
    assert list(parameters) == [
        "server", "cause", "family", "strength", "phase", "fingerprint", "since", "until", "limit", "before",
    ]  # fmt: skip
    assert all(one["description"] for one in parameters.values())


# --- serving -------------------------------------------------------------------------------------------------


def test_it_is_served_over_tcp_and_a_unix_socket_until_closed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    store.save(crash(1))
    serving = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0, path)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/crashes") as answer:
            assert answer.status == 200
        assert path.stat().st_mode & 0o777 == 0o660
        connection = HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        assert serving.alive
    finally:
        serving.close()
    assert not serving.alive
    assert not path.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "api"]


def test_a_taken_port_is_told_at_start(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InquestError) as error:
            serve(create_app(store, lambda: HEALTH), "127.0.0.1", port)
    assert error.value.code == "address-unusable"
    assert f"127.0.0.1:{port}" in error.value.message
    assert "[api]" in error.value.hint


def test_a_socket_that_cannot_be_made_is_told_at_start(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InquestError) as error:
        serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0, tmp_path / "nowhere" / "api.sock")
    assert error.value.code == "address-unusable"
    assert "nowhere" in error.value.message


def test_a_small_answer_is_not_held_back(store: Store) -> None:
    """Nagle's algorithm and a delayed acknowledgement together cost 40 ms from the second request on."""
    serving = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0)
    connection = HTTPConnection("127.0.0.1", serving.port)
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - started)
    connection.close()
    serving.close()
    assert statistics.median(seconds) < 0.030, seconds


def test_a_socket_left_by_a_killed_daemon_is_replaced(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    serving = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0, path)
    serving.close()
    assert not path.exists()
