from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from forensics.store import Store
from forensics.timeline import Timeline
from tests.forensics.factories import crash, invocation, main_exit, open_run, traceback


@pytest.mark.parametrize("path", ["/crashes", f"/crashes/{invocation(1)}", "/servers", "/runs", "/", "/page/main.js"])
def test_what_the_client_has_is_not_sent_again(client: TestClient, store: Store, path: str) -> None:
    store.save(crash(1))
    first = client.get(path)
    tag = first.headers["etag"]
    for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(path, headers={"If-None-Match": header})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(path, headers={"If-None-Match": '"other"'}).content == first.content


def test_a_new_crash_changes_the_list(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    tag = client.get("/crashes").headers["etag"]
    store.save(crash(2))
    assert client.get("/crashes", headers={"If-None-Match": tag}).status_code == 200


def test_late_evidence_changes_a_crash_without_a_new_revision(client: TestClient, store: Store) -> None:
    path = f"/crashes/{invocation(1)}/timeline"
    early = crash(1)
    store.save(early)
    before = client.get(path)
    late = replace(early, timeline=Timeline.of((*early.timeline.events, main_exit(70_000_000), traceback(40))))
    assert store.save(late) is None
    after = client.get(path, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert len(after.json()["events"]) > len(before.json()["events"])


@pytest.mark.parametrize("path", ["/crashes", "/healthz", "/metrics", "/", "/nowhere"])
def test_head_is_get_without_the_body(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    assert head.headers["content-length"] == got.headers["content-length"]
    assert head.content == b""


def test_problems_have_no_tag(client: TestClient) -> None:
    assert "etag" not in client.get("/nowhere").headers
    assert client.get("/nowhere", headers={"If-None-Match": "*"}).status_code == 404


def test_what_was_answered_is_made_again_only_after_a_change(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(crash(1))
    made = []
    read = store.crashes
    monkeypatch.setattr(store, "crashes", lambda query: made.append(query) or read(query))
    first = client.get("/crashes")
    again = client.get("/crashes")
    assert (again.content, again.headers) == (first.content, first.headers)
    assert client.head("/crashes").headers["etag"] == first.headers["etag"]
    assert client.get("/crashes", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert len(made) == 1
    assert len(client.get("/crashes?limit=1").json()["crashes"]) == 1
    store.checkpoint("here", 1, [open_run(2)])
    assert client.get("/crashes").content == first.content
    assert len(made) == 2, "a checkpoint changes no crash"
    store.save(crash(3))
    assert len(client.get("/crashes").json()["crashes"]) == 2
    assert store.prune(1, 36500) == 1
    assert len(client.get("/crashes").json()["crashes"]) == 1


def test_each_form_of_a_crash_is_an_answer_of_its_own(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    path = f"/crashes/{invocation(1)}"
    for _ in range(2):
        assert client.get(path, headers={"Accept": "application/json"}).json()["id"] == invocation(1)[:12]
        assert client.get(path, headers={"Accept": "text/plain"}).headers["content-type"].startswith("text/plain")
        assert client.get(path, headers={"Accept": "text/html"}, follow_redirects=False).status_code == 303


def test_a_new_run_is_seen_at_once(client: TestClient, store: Store) -> None:
    assert client.get("/servers").json() == {"servers": []}
    store.checkpoint("here", 1, [open_run(2)])
    assert [one["server"] for one in client.get("/servers").json()["servers"]] == ["demo"]


def test_more_than_may_be_kept_is_answered_all_the_same(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.api.conditional.MOST_BYTES", 100)
    store.save(crash(1))
    assert client.get("/crashes").content == client.get("/crashes").content != b""


def test_lives_up_to_now_are_looked_up_each_time(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    read = store.lives.between
    monkeypatch.setattr(store.lives, "between", lambda since, until: made.append(until) or read(since, until))
    for query in ("", "", "?until=2026-03-02T00:00:00Z", "?until=2026-03-02T00:00:00Z"):
        assert client.get(f"/lives{query}").status_code == 200
    assert len(made) == 3
