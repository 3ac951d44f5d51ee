"""Alerts on a real machine: systemd's start limit, a server that comes back, journalctl's explanations, a test message.

The servers are units written by hand whose main process prints what SGLang prints, and dies.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.inquest import Inquest, Server, until

pytestmark = pytest.mark.e2e

DIES = """
import os, pathlib, sys, time
print("[2026-01-01 00:00:00] INFO:     Started server process [%d]" % os.getpid(), flush=True)
print("[2026-01-01 00:00:00] The server is fired up and ready to roll!", flush=True)
lives = pathlib.Path(sys.argv[1])
if lives.exists():
    lives.unlink()
    raise RuntimeError("the size of tensor a (4) must match the size of tensor b (5)")
time.sleep(3600)
"""
UNIT = """
[Unit]
StartLimitBurst=3
StartLimitIntervalSec=60
[Service]
ExecStart=/usr/bin/python3 -u /opt/dies.py {lives}
Restart=always
RestartSec=200ms
"""


@pytest.fixture
def server(inquest: Inquest, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server named after the test, by a unit of its own. It dies at its start while a file of its name is in /run."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:30]
    made, root = inquest.server(name), inquest.machine.root
    (root / "opt/dies.py").write_text(DIES)
    (root / "etc/systemd/system" / made.unit).write_text(UNIT.format(lives=f"/run/{name}"))
    inquest.machine.run("systemctl", "daemon-reload")
    yield made
    made.stop()


def told(inquest: Inquest, server: Server) -> list[dict[str, Any]]:
    assert inquest.webhook is not None
    return [one["body"] for one in inquest.webhook.received if one["body"]["unit"] == server.unit]


def test_a_server_that_comes_back(inquest: Inquest, server: Server) -> None:
    (inquest.machine.root / "run" / server.name).touch()
    server.start()
    events = until(
        lambda: events if len(events := told(inquest, server)) == 2 else None, "death and return", seconds=30
    )
    assert [event["event"] for event in events] == ["crash", "recovered"]
    assert f"{server.name} on " in events[1]["text"]
    assert " is ready again after " in events[1]["text"]
    assert events[1]["back_at"] is not None


def test_a_restart_loop(inquest: Inquest, server: Server) -> None:
    """Its own louder message, and journalctl -x says what it means."""
    unit = inquest.machine.root / "etc/systemd/system" / server.unit
    unit.write_text(
        unit.read_text().replace("[Service]", f"[Service]\nExecStartPre=+/usr/bin/touch /run/{server.name}")
    )
    inquest.machine.run("systemctl", "daemon-reload")
    server.start(check=False)
    last = until(
        lambda: next((one for one in told(inquest, server) if one["event"] == "start-limit"), None),
        "the start limit",
        seconds=30,
    )
    assert last["count"] == 3
    assert "STAYS DOWN: systemd has given it up after 3 deaths" in last["text"]
    assert f"systemctl reset-failed {server.unit}" in last["text"]
    assert [one["event"] for one in told(inquest, server)] == ["crash", "crash", "crash", "start-limit"]
    explained = inquest.machine.run(
        "journalctl", "--catalog", "--no-pager", "--identifier=inquestd", f"INQUEST_UNIT={server.unit}"
    ).stdout
    assert f"Subject: systemd has given up {server.unit}" in explained
    assert f"Subject: {server.unit} died: python-exception" in explained


def test_a_test_message(inquest: Inquest) -> None:
    """Through the real channel, as the daemon's user, from the installed command."""
    answer = inquest.machine.run("inquest", "alerts", "test", "test").stdout
    assert "test: delivered in " in answer
    assert inquest.webhook is not None
    assert inquest.webhook.received[-1]["body"]["event"] == "test"
    status = inquest.machine.run("inquest", "alerts", "status").stdout
    assert "webhook" in status
