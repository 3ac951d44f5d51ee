from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from forensics.api import create_app
from forensics.api.shapes import RunsShape
from forensics.runs.shapes import RunDetailShape, TuningShape
from forensics.store import Store
from tests.forensics.factories import HEALTH
from tests.forensics.runs.test_store import campaign
from tests.forensics.test_api import conforms, problem


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store, lambda: HEALTH), base_url="http://localhost:8642") as made:
        yield made


def test_runs_page_by_page(client: TestClient, store: Store) -> None:
    _, ids = campaign(store)
    first = client.get("/runs?limit=2&server=demo")
    conforms(RunsShape, first.json())
    assert [one["invocation_id"] for one in first.json()["runs"]] == ids[:0:-1]
    following = first.headers["link"].split(";")[0].strip("<>")
    assert [one["invocation_id"] for one in client.get(following).json()["runs"]] == ids[:1]


def test_one_run_by_its_id(client: TestClient, store: Store) -> None:
    _, ids = campaign(store)
    for name in (ids[1], ids[1][:12]):
        content = client.get(f"/runs/{name}").json()
        conforms(RunDetailShape, content)
        assert content["invocation_id"] == ids[1]


def test_a_tuning_table(client: TestClient, store: Store) -> None:
    campaign(store)
    for name in ("demo", "sglang-demo.service"):
        content = client.get(f"/servers/{name}/tuning?by=speculative_num_steps").json()
        conforms(TuningShape, content)
        assert [row["value"] for row in content["rows"]] == ["1", "3", "5"]


def test_what_is_not_there_is_a_problem(client: TestClient, store: Store) -> None:
    campaign(store)
    assert "no run" in problem(client.get("/runs/ffffffffffff"), 404, "not-found")["detail"]
    assert "nobody" in problem(client.get("/servers/nobody/tuning"), 404, "not-found")["detail"]
    assert "several runs" in problem(client.get("/runs/0000"), 409, "ambiguous-id")["detail"]
    problem(client.get("/runs?before=x"), 404, "bad-cursor")


def test_what_is_not_known_is_refused_with_what_is_allowed(client: TestClient) -> None:
    said = problem(client.get("/runs?sever=demo"), 400, "bad-parameter")["detail"]
    assert "did you mean server?" in said
    assert "cause" not in said
    assert "allowed: by" in problem(client.get("/servers/demo/tuning?bye=1"), 400, "bad-parameter")["detail"]
    problem(client.get("/servers/demo/tuning?by=a-b"), 400, "bad-parameter")
