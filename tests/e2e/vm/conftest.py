"""A machine with a memory controller for each test, restored from its saved state."""

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy import environment
from tests.e2e.conftest import Say
from tests.e2e.inquest import Crash, until
from tests.e2e.vm import machine

IMAGE = ("x86_64", "3.11")
STANDIN = Path(__file__).resolve().parents[1] / "standin"
SPEC = """
model_path = "/var/lib/inquest/models/tiny"
port = 30000
python = "/usr/bin/python3"

[limits]
restart = "no"
timeout_stop = "20s"
memory_swap_max = "0"
{limits}

[env]
PYTHONPATH = "/opt/standin"
STANDIN_DEATH = "{death}"
"""
_POST = "import urllib.request as u; u.urlopen(u.Request('http://127.0.0.1:30000/die', method='POST'))"
_GET = "import sys, urllib.request as u; print(u.urlopen('http://127.0.0.1:8642' + sys.argv[1]).read().decode())"


@dataclass(frozen=True, slots=True)
class VmServer:
    """A stand-in server in the virtual machine, watched by the inquestd that runs there."""

    vm: machine.Vm
    name: str = "walled"

    @property
    def unit(self) -> str:
        return f"sglang-{self.name}.service"

    def start(self, death: str, limits: str) -> int:
        """Start it, to die in that way when told; returns its main pid."""
        self.vm.put({f"/etc/inquest/servers/{self.name}.toml": SPEC.format(death=death, limits=limits)})
        self.vm.run("systemctl", "daemon-reload")
        self.vm.run("systemctl", "start", self.unit)
        return int(self.vm.run("systemctl", "show", self.unit, "--property", "MainPID", "--value"))

    def die(self) -> None:
        self.vm.run("python3", "-c", _POST)

    def child(self) -> int:
        """The pid of the scheduler, which the main process forked."""
        main = self.vm.run("systemctl", "show", self.unit, "--property", "MainPID", "--value").strip()
        return int(self.vm.run("cat", f"/proc/{main}/task/{main}/children"))

    def crash(self) -> Crash:
        """The settled verdict, as the API in the machine gives it."""

        def settled() -> Crash | None:
            crashes = json.loads(self.vm.run("python3", "-c", _GET, "/crashes"))["crashes"]
            return crashes[0] if crashes and crashes[0]["settled"] else None

        return until(settled, f"a verdict on {self.unit}", seconds=90)


@pytest.fixture(scope="session")
def saved_machine(say: Say) -> None:
    """Made before the first test, so that none of them is charged with it."""
    here = (platform.machine(), environment.python_version().rpartition(".")[0])
    if here != IMAGE:
        pytest.skip(f"the image is Debian 12 with {IMAGE}; an environment made on {here} does not run in it")
    say("the virtual machine: image and saved state (minutes when nothing is cached)")
    machine.saved()


@pytest.fixture
def server(saved_machine: None) -> Iterator[VmServer]:
    with machine.restored() as vm:
        files = {f"/opt/standin/{p.relative_to(STANDIN)}": p.read_text() for p in STANDIN.rglob("*.py")}
        vm.put(files | {"/var/lib/inquest/models/tiny/config.json": "{}"})
        yield VmServer(vm)
