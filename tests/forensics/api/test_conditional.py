from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from forensics.store import Store
from forensics.timeline import Timeline
from tests.forensics.factories import crash, invocation, main_exit, traceback


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
