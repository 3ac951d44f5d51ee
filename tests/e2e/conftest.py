"""One machine for the whole session: booted from this host's files, Inquest installed by deploy/up."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import environment, nspawn
from deploy.environment import ROOT
from tests.e2e import network
from tests.e2e.inquest import Inquest, Server

WEBHOOK_PORT = 9099
SETTINGS = f"""
[alerts]
# Tests look for each death, and die of the same again and again.
gather_seconds = []
stays_ready_seconds = 2.0

[[alerts.webhooks]]
name = "test"
url = "http://127.0.0.1:{WEBHOOK_PORT}/inquest"
"""
Say = Callable[[str], None]
_HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests here need root; elsewhere they are skipped, and say so."""
    if os.geteuid() == 0:
        return
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="booting a machine needs root"))


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Print a line at once, also while pytest captures: some steps take a minute."""
    plugins = request.config.pluginmanager
    reporter, capture = plugins.getplugin("terminalreporter"), plugins.getplugin("capturemanager")

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"  {text}")

    return line


@pytest.fixture(scope="session")
def machine(say: Say) -> Iterator[nspawn.Machine]:
    """A booted machine with a network of its own and nothing of Inquest's in place yet."""
    name = f"inquest-test-{os.getpid()}"
    environment.install()
    booted = nspawn.boot(name, private_network=True, bind_ro=[ROOT], own=[environment.VENV])
    say(f"booted {name}")
    yield booted
    nspawn.down(name)


@pytest.fixture(scope="session")
def inquest(machine: nspawn.Machine, say: Say) -> Iterator[Inquest]:
    """Inquest and its demonstration server, put on the machine by deploy/up itself."""
    settings = machine.root / "etc/inquest/inquestd.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(SETTINGS)
    webhook = network.Webhook(machine.leader, WEBHOOK_PORT)
    try:
        up = subprocess.Popen(
            machine.argv([ROOT / "deploy" / "up"]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert up.stdout is not None
        with up.stdout:
            for line in up.stdout:
                say(line.rstrip())
        assert up.wait() == 0, "deploy/up failed, see above"
        yield Inquest(machine, webhook)
    finally:
        webhook.close()


@pytest.fixture
def demo(inquest: Inquest) -> Server:
    """The demonstration server: real SGLang with speculative decoding."""
    return inquest.server("demo")


@pytest.fixture
def server(inquest: Inquest, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server named after the test, without a spec yet; nothing of it stays."""
    server = inquest.server(request.node.name.removeprefix("test_").replace("_", "-")[:40])
    yield server
    server.take_away()


@pytest.fixture(scope="session")
def standin(inquest: Inquest) -> None:
    """The stand-in and the recordings on the machine, where the servers' user can read them."""
    for name in ("standin", "recordings"):
        shutil.copytree(_HERE / name, inquest.machine.root / "opt" / name)
