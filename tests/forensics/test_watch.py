"""`inquest watch` against the real API: nothing is missed over a reconnect, and it says when the daemon is away."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from forensics.api import Serving, create_app, serve
from forensics.api.events import KINDS
from forensics.cli.stream import Happened, events, parsed
from forensics.cli.watch import described
from forensics.errors import InquestError
from forensics.store import Store
from tests.forensics.factories import HEALTH, clean, crash, invocation

DEADLINE_SECONDS = 20.0


def test_lines_become_events() -> None:
    lines = ["retry: 1000\n", "id: s.4\n", "\n", ": still here\n", "\n", "id: s.5\r\n", "event: crash\n"]
    lines += ['data: {"id": "a: b"}\n', "\n", "event: half\n"]
    assert list(parsed(lines)) == [
        Happened("alive", id="s.4"),
        Happened("alive"),
        Happened("crash", {"id": "a: b"}, "s.5"),
    ]


def listening(store: Store, port: int = 0) -> Serving:
    return serve(create_app(store, lambda: HEALTH), "127.0.0.1", port)


def next_but(found: Iterator[Happened], kind: str) -> Happened:
    return next(event for event in found if event.kind != kind)


def test_nothing_is_missed_while_the_daemon_was_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = listening(store)
    port = first.port
    monkeypatch.setenv("INQUEST_API", f"http://127.0.0.1:{port}")
    slept: list[float] = []
    found = events(slept.append)
    assert next(found).kind == "alive"
    store.save(crash(1))
    assert next_but(found, "alive").data["invocation_id"] == invocation(1)
    first.close()
    lost = next_but(found, "alive")
    assert (lost.kind, slept) == ("lost", [])
    assert f"inquestd does not answer at http://127.0.0.1:{port}" in lost.data
    assert next(found).kind == "lost"
    assert slept == [1.0]
    store.save(crash(2))
    second = listening(store, port)
    try:
        assert next_but(found, "alive").data["invocation_id"] == invocation(2)
    finally:
        found.close()  # type: ignore[attr-defined]
        second.close()


def test_an_answer_that_is_no_stream_is_not_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("api")
    monkeypatch.setenv("INQUEST_API", address)
    monkeypatch.setattr("forensics.cli.stream.client.connection", _to_nowhere(address))
    with pytest.raises(InquestError) as error:
        next(events())
    assert error.value.code == "not-found"


def _to_nowhere(address: str) -> object:
    import http.client

    class Elsewhere(http.client.HTTPConnection):
        def request(self, method: str, url: str, *args: object, **kwargs: object) -> None:  # type: ignore[override]
            super().request(method, "/nowhere")

    return lambda base, seconds: Elsewhere(address.removeprefix("http://"), timeout=seconds)


def test_each_event_is_a_line(store: Store) -> None:
    store.save(crash(1, summary="It\nfell"))
    shape = store.shown(invocation(1))
    assert described(Happened("crash", shape)) == (
        "crash",
        "2026-03-01 12:01:01  demo  crash: python-exception, confirmed (000000000001): It fell",
    )
    assert "corrected: " in described(Happened("amended", shape))[1]
    started = {"server": "demo", "unit": "sglang-demo.service", "started_at": "2026-03-01T12:00:00.5Z"}
    assert described(Happened("run-started", started)) == ("started", "2026-03-01 12:00:00  demo  started")
    living = {"server": "demo", "unit": "sglang-demo.service", "at": "2026-03-01T12:00:07.5Z"}
    assert described(Happened("run-ready", living)) == ("ready", "2026-03-01 12:00:07  demo  ready")
    hanging = described(Happened("hang", living | {"said": "no answer\nfor 30 s"}))
    assert hanging == ("does not answer", "2026-03-01 12:00:07  demo  does not answer: no answer for 30 s")
    assert "  demo  given up by systemd: python-exception" in described(Happened("start-limit", shape))[1]


def test_every_kind_of_event_has_its_line(store: Store) -> None:
    """Those of which the API tells, but for the one that is no event of a server."""
    store.save(crash(1))
    shape = {**store.shown(invocation(1)), "started_at": "2026-03-01T12:00:00Z", "at": "2026-03-01T12:00:00Z"}
    words = [described(Happened(kind, shape))[0] for kind in KINDS if kind != "reset"]
    assert len(set(words)) == len(words)
    assert not any(word.startswith("run-") or word == "amended" for word in words)


def read_until(descriptor: int, words: bytes) -> bytes:
    """What comes until these words have come; AssertionError when they do not in time."""
    deadline, seen = time.monotonic() + DEADLINE_SECONDS, b""
    while words not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} did not come; what came: {seen!r}"
        seen += os.read(descriptor, 65536)
    return seen


@contextmanager
def watching(*arguments: str, **how: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """`inquest watch`, which ends when the test fails, too."""
    with subprocess.Popen([sys.executable, "-m", "forensics", "watch", *arguments], **how) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_it_shows_the_states_and_ends_cleanly(store: Store, ends: signal.Signals) -> None:
    store.save(crash(1))
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    with watching(stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        # The states are drawn again once the stream is there.
        seen = read_until(leader, b"last crash") + read_until(leader, b"last crash")
        assert b"python-exception, 2026-03-01 12:01:01" in seen
        store.save(crash(2, unit="sglang-b.service"))
        read_until(leader, b"b  crash: python-exception")
        process.send_signal(ends)
        seen = read_until(leader, b"\x1b[?25h")
        assert process.wait(DEADLINE_SECONDS) == 0
    assert b"Traceback" not in seen
    os.close(leader)


@pytest.mark.usefixtures("api")
def test_piped_it_prints_a_line_an_event_of_that_server(store: Store) -> None:
    with watching("--server", "demo", "--format", "json", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Before its stream is there, it would not hear of what happens.
        number, line = 0, b""
        while not line:
            number += 2
            store.save(clean(number, unit="sglang-other.service"))
            store.save(clean(number + 1))
            if select.select([process.stdout], [], [], 0.5)[0]:
                line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0
    told = json.loads(line)
    assert (told["event"], told["data"]["server"]) == ("run-ended", "demo")
