import base64
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from forensics.api import Access, create_app, serve
from forensics.daemon import access_of
from forensics.errors import SettingsError
from forensics.settings import Api, Secret
from forensics.store import Store
from tests.forensics.factories import HEALTH, crash
from tests.forensics.test_api import problem

TOKEN = "4f1d2c3b4a59687776655443"


@pytest.fixture
def guarded(store: Store) -> Iterator[TestClient]:
    access = Access(names=frozenset({"inquest.example"}), open=True, token=TOKEN)
    with TestClient(create_app(store, lambda: HEALTH, access=access), base_url="http://inquest.example") as made:
        yield made


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@pytest.mark.parametrize("path", ["/", "/crashes", "/healthz", "/metrics", "/events", "/page/main.js", "/nowhere"])
@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Digest {TOKEN}", "Basic !", basic("wrong"), TOKEN]
)
def test_without_the_token_nothing_is_answered(guarded: TestClient, path: str, header: str) -> None:
    response = guarded.get(path, headers={"Authorization": header} if header else {})
    problem(response, 401, "token-needed")
    assert response.headers["www-authenticate"].startswith("Basic ")
    assert TOKEN not in response.text


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)])
def test_with_the_token_it_is(guarded: TestClient, header: str) -> None:
    assert guarded.get("/crashes", headers={"Authorization": header}).status_code == 200


def test_a_token_of_other_letters_is_no_error(guarded: TestClient) -> None:
    response = guarded.get("/crashes", headers={"Authorization": basic("pässwört")})
    problem(response, 401, "token-needed")


def test_over_the_unix_socket_its_mode_is_the_guard(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    serving = serve(create_app(store, lambda: HEALTH, access=Access(token=TOKEN)), "127.0.0.1", 0, path)
    try:
        over_tcp = HTTPConnection("127.0.0.1", serving.port)
        over_tcp.request("GET", "/crashes")
        assert over_tcp.getresponse().status == 401
        over_tcp.close()
        over_socket = HTTPConnection("localhost")
        over_socket.sock = socket.socket(socket.AF_UNIX)
        over_socket.sock.connect(str(path))
        over_socket.request("GET", "/crashes")
        assert over_socket.getresponse().status == 200
        over_socket.close()
    finally:
        serving.close()


@pytest.mark.parametrize("host", ["inquest.example", "INQUEST.example:8642", "10.0.0.1", "[fd00::1]:8642", "localhost"])
def test_beyond_loopback_addresses_and_given_names_are_ours(guarded: TestClient, host: str) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/crashes", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "inquest.example.evil", ""])
def test_other_names_are_not(guarded: TestClient, host: str) -> None:
    problem(guarded.get("/crashes", headers={"Host": host, "Authorization": f"Bearer {TOKEN}"}), 421, "host-not-ours")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:9999", "http://127.0.0.1:8642"])
def test_another_page_s_script_may_not_read(client: TestClient, origin: str) -> None:
    response = client.get("/crashes", headers={"Origin": origin})
    problem(response, 403, "foreign-origin")
    assert "access-control-allow-origin" not in response.headers


def test_our_own_page_may(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    response = client.get("/crashes", headers={"Origin": "http://localhost:8642"})
    assert len(response.json()["crashes"]) == 1
    assert "access-control-allow-origin" not in response.headers


def test_a_listed_origin_may_and_nobody_else(store: Store) -> None:
    access = Access(origins=frozenset({"https://grafana.example"}), token=TOKEN)
    with TestClient(create_app(store, lambda: HEALTH, access=access), base_url="http://localhost") as client:
        asked = {"Origin": "https://grafana.example", "Access-Control-Request-Method": "GET"}
        preflight = client.options("/crashes", headers={**asked, "Access-Control-Request-Headers": "authorization"})
        assert preflight.status_code == 200
        response = client.get("/crashes", headers={**asked, "Authorization": f"Bearer {TOKEN}"})
        assert response.headers["access-control-allow-origin"] == "https://grafana.example"
        problem(client.get("/crashes", headers={"Origin": "https://evil.example"}), 403, "foreign-origin")


@pytest.mark.parametrize("path", ["/", "/crashes", "/nowhere", "/page/main.js"])
def test_answers_are_not_taken_for_something_else(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_the_settings_become_the_access(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n")
    api = Api(host="::", token=Secret(file=secret), hosts=("Gpu7.Example",), cors_origins=("https://a.example:3000",))
    access = access_of(api)
    assert access == Access(
        names=frozenset({"gpu7.example"}), open=True, token=TOKEN, origins=frozenset({"https://a.example:3000"})
    )
    assert not access_of(Api()).open


@pytest.mark.parametrize(
    ("written", "code"), [("short", "token-too-short"), ("", "token-too-short"), (None, "secret-unreadable")]
)
def test_a_token_that_is_none_is_told_at_start(tmp_path: Path, written: str | None, code: str) -> None:
    secret = tmp_path / "token"
    if written is not None:
        secret.write_text(written)
    with pytest.raises(SettingsError) as error:
        access_of(Api(host="0.0.0.0", token=Secret(file=secret)))
    assert error.value.code == code
