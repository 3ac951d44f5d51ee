from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from forensics.api import SourceHealth, create_app
from forensics.api.examples import EXAMPLES
from forensics.api.shapes import CrashesShape, GroupsShape, HealthShape, LivesShape, ReadyShape, RunsShape, ServersShape
from forensics.events import StopRequested, UnitStarted
from forensics.runs.shapes import RunDetailShape, TuningShape
from forensics.shapes import AlertsShape, CrashShape, TimelineShape
from forensics.store import Store
from forensics.timeline import Timeline
from tests.forensics.factories import HEALTH, clean, crash, invocation, open_run, record
from tests.forensics.test_api import conforms, problem

DAY = "since=2026-03-01T00:00:00Z&until=2026-03-02T00:00:00Z"


def test_a_life_from_its_start_to_its_end(client: TestClient, store: Store) -> None:
    ended = clean(1)
    steps = (
        UnitStarted(record=record("Started.", 30_000_000, source="systemd")),
        StopRequested(record=record("Stopping.", 55_000_000, source="systemd"), job_type="stop"),
    )
    store.save(replace(ended, timeline=Timeline.of((*ended.timeline.events, *steps))))
    content = client.get(f"/lives?{DAY}").json()
    conforms(LivesShape, content)
    (life,) = content["lives"]
    assert [life[name] for name in ("started_at", "ready_at", "stopping_at", "ended_at")] == [
        f"2026-03-01T12:0{clock}.000000Z" for clock in ("0:11", "0:30", "0:55", "1:01")
    ]
    assert (life["is_crash"], life["restarted"], life["cause"]) == (False, False, "clean-stop")


def test_living_runs_are_among_them(client: TestClient, store: Store) -> None:
    run = open_run(7, "sglang-young.service")
    run.events.append(UnitStarted(record=record("Started.", 12_000_000, source="systemd")))
    store.checkpoint("here", 1, [run, open_run(8, "sglang-younger.service")])
    lives = client.get(f"/lives?{DAY}").json()["lives"]
    assert [(life["server"], life["became_ready"], life["ended_at"]) for life in lives] == [
        ("young", True, None),
        ("younger", False, None),
    ]
    assert lives[0]["ready_at"] == "2026-03-01T12:00:12.000000Z"


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("since=2026-03-01T12:01:00Z&until=2026-03-01T12:01:01Z", 1),
        ("since=2026-03-01T12:01:01Z&until=2026-03-01T13:00:00Z", 1),
        ("since=2026-03-01T12:01:02Z&until=2026-03-01T13:00:00Z", 0),
        ("until=2026-03-01T12:00:11Z", 0),
        ("until=2026-03-01T12:00:12Z", 1),
        ("until=0001-01-01T00:00:00Z", 0),
    ],
)
def test_who_lived_in_the_window(client: TestClient, store: Store, window: str, expected: int) -> None:
    store.save(crash(1))
    assert len(client.get(f"/lives?{window}").json()["lives"]) == expected


def test_the_last_day_is_what_is_shown_by_itself(client: TestClient) -> None:
    content = client.get("/lives").json()
    since, until = (datetime.fromisoformat(content[name]) for name in ("since", "until"))
    assert until - since == timedelta(days=1)
    assert abs(datetime.now(UTC) - until) < timedelta(minutes=1)


# --- groups --------------------------------------------------------------------------------------------------


def test_deaths_that_are_alike_are_one_group(client: TestClient, store: Store) -> None:
    store.save(crash(1, fingerprint="v1-a", summary="the first"))
    store.save(crash(2, fingerprint="v1-b", unit="sglang-other.service", cause="kernel-oom"))
    store.save(crash(3, fingerprint="v1-a", unit="sglang-other.service", summary="the newest"))
    store.save(clean(4, fingerprint="v1-a"))
    content = client.get("/crashes/groups").json()
    conforms(GroupsShape, content)
    assert content["total"] == 2
    first = content["groups"][0]
    assert (first["fingerprint"], first["count"], first["servers"]) == ("v1-a", 2, ["demo", "other"])
    assert (first["summary"], first["last_id"]) == ("the newest", invocation(3)[:12])
    assert (first["first_at"], first["last_at"]) == ("2026-03-01T12:01:01.000000Z", "2026-03-01T12:01:03.000000Z")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("server=demo", [("v1-a", 1)]),
        ("cause=kernel-oom", [("v1-b", 1)]),
        ("family=hang", []),
        ("since=2026-03-01T12:01:03Z", [("v1-a", 1)]),
        ("until=2026-03-01T12:01:02Z", [("v1-a", 1)]),
        ("limit=1", [("v1-a", 2)]),
    ],
)
def test_groups_of_some_crashes(client: TestClient, store: Store, query: str, expected: list[tuple[str, int]]) -> None:
    store.save(crash(1, fingerprint="v1-a"))
    store.save(crash(2, fingerprint="v1-b", unit="sglang-other.service", cause="kernel-oom"))
    store.save(crash(3, fingerprint="v1-a", unit="sglang-other.service"))
    groups = client.get(f"/crashes/groups?{query}").json()["groups"]
    assert [(group["fingerprint"], group["count"]) for group in groups] == expected


def test_an_unknown_parameter_is_refused_with_those_of_its_path(client: TestClient) -> None:
    assert "allowed: since, until" in problem(client.get("/lives?server=demo"), 400, "bad-parameter")["detail"]
    assert "did you mean cause?" in problem(client.get("/crashes/groups?cuase=x"), 400, "bad-parameter")["detail"]


# --- forms of one crash --------------------------------------------------------------------------------------


def test_a_browser_that_follows_an_alert_is_led_to_the_page(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    response = client.get("/crashes/0000", headers=browser, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, f"../#/crashes/{invocation(1)[:12]}")
    assert response.headers["vary"] == "Accept"


def test_a_crash_as_text_is_what_the_terminal_shows(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    response = client.get(f"/crashes/{invocation(1)}", headers={"Accept": "text/plain"})
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text.splitlines()[1].startswith("demo · python-exception, confirmed")
    assert "Ruled out\n  kernel-oom  " in response.text


# --- readiness -----------------------------------------------------------------------------------------------


@pytest.fixture
def half_blind(store: Store) -> Iterator[TestClient]:
    sources = (SourceHealth(name="server", state="blind", detail="no right to read the journal"), *HEALTH.sources)
    with TestClient(create_app(store, lambda: replace(HEALTH, sources=sources)), base_url="http://localhost") as made:
        yield made


def test_ready_while_no_death_can_pass_by(client: TestClient) -> None:
    content = client.get("/readyz").json()
    conforms(ReadyShape, content)
    assert content == {"status": "ready", "not_seen": ["gpu"]}


def test_not_ready_without_the_sources_that_tell_of_a_death(half_blind: TestClient) -> None:
    content = problem(half_blind.get("/readyz"), 503, "not-ready")
    assert content["detail"] == "server: no right to read the journal"


# --- OpenAPI -------------------------------------------------------------------------------------------------

SHAPES: dict[str, Any] = {
    "crash": CrashShape, "crashes": CrashesShape, "groups": GroupsShape, "timeline": TimelineShape,
    "servers": ServersShape, "lives": LivesShape, "health": HealthShape, "ready": ReadyShape,
    "runs": RunsShape, "run": RunDetailShape, "tuning": TuningShape, "alerts": AlertsShape,
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_true_to_their_shapes(name: str) -> None:
    TypeAdapter(SHAPES[name]).validate_python(EXAMPLES[name], strict=True)


def test_every_answer_in_json_has_an_example(client: TestClient) -> None:
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for media_type, content in operations["get"]["responses"]["200"]["content"].items():
            assert media_type != "application/json" or content["example"], path


def test_a_restart_loop_does_not_hide_the_other_servers(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.store.lives.MOST_LIVES", 6)
    store.save(crash(1, unit="sglang-other.service"))
    for number in range(2, 12):
        store.save(crash(number))
    lives = client.get(f"/lives?{DAY}").json()["lives"]
    assert [life["server"] for life in lives] == ["demo"] * 3 + ["other"]
    assert lives[2]["id"] == invocation(11)[:12], "the last ones"


def test_half_a_surrogate_pair_is_no_reason_not_to_answer(client: TestClient, store: Store) -> None:
    store.save(crash(1, summary="half a pair: \ud800"))
    for path in ("/crashes", f"/crashes/{invocation(1)}", "/crashes/groups", f"/lives?{DAY}", "/servers", "/runs"):
        assert client.get(path).status_code == 200, path
    assert "half a pair:" in client.get(f"/crashes/{invocation(1)}", headers={"Accept": "text/plain"}).text
    assert client.get(f"/crashes/{invocation(1)}/evidence.tar.zst").status_code == 200
