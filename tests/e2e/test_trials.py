"""A trial that is cut short leaves the old spec in force, whatever cuts it.

On a machine of its own, since it is rebooted. The stand-in serves: trials are systemd's and Inquest's, and SGLang would
add nothing but its start.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import environment, nspawn
from deploy.environment import ROOT
from tests.e2e.inquest import Inquest, Server, until

pytestmark = pytest.mark.e2e

OLD_PORT, NEW_PORT = 30201, 30202
SPEC = f"""
model_path = "/var/lib/inquest/models/tiny"
port = {OLD_PORT}
python = "/usr/bin/python3"

[limits]
timeout_stop = "10s"

[env]
PYTHONPATH = "/opt/standin"
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[nspawn.Machine]:
    """A booted machine with Inquest and one server, `lab`, which serves."""
    name = f"inquest-trials-{os.getpid()}"
    environment.install()
    booted = nspawn.boot(name, private_network=True, bind_ro=[ROOT], own=[environment.VENV])
    try:
        shutil.copytree(Path(__file__).parent / "standin", booted.root / "opt/standin")
        (booted.root / "root/lab.toml").write_text(SPEC)
        booted.run(ROOT / "deploy" / "up", "/root/lab.toml", timeout=300)
        yield booted
    finally:
        nspawn.down(name)


@pytest.fixture
def lab(machine: nspawn.Machine) -> Server:
    """The server `lab` with the old spec, serving."""
    found = nspawn.find(machine.name)  # after a reboot it has another PID 1
    assert found is not None
    server = Inquest(found).server("lab")
    server.serving()
    serves_by_the_old_spec(server)
    return server


def port(server: Server) -> int | None:
    """The port on the command line of the process that runs; None while none does."""
    argv = ("ps", "-ww", "-o", "args=", str(server.current().main_pid))
    words = server.machine.run(*argv, check=False).stdout.split()
    return int(words[words.index("--port") + 1]) if "--port" in words else None


def serves_by_the_old_spec(server: Server) -> None:
    until(lambda: server.show("ActiveState") == "active", f"{server.unit} serves", seconds=60)
    assert port(server) == OLD_PORT
    assert server.show("DropInPaths") == ""


@contextmanager
def trial(server: Server) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """`inquest try` at the time when the changed spec serves, and its pid on the machine."""
    command = f"echo $$; exec inquest try {server.name} --set port={NEW_PORT} --for 10min"
    argv = server.machine.argv(["/bin/sh", "-c", command])
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        said = next((line for line in process.stdout if "serving for" in line or "going back" in line), "nothing")
        assert "serving for" in said, said
        assert port(server) == NEW_PORT
        yield process, pid
        process.stdout.read()


def test_ctrl_c(lab: Server) -> None:
    with trial(lab) as (process, pid):
        lab.kill(pid, signal.Signals.SIGINT.name.removeprefix("SIG"))
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 1
    assert "interrupted (SIGINT)" in said
    assert "serves again with the old spec" in said
    serves_by_the_old_spec(lab)


def test_death_of_the_trial_itself(lab: Server) -> None:
    with trial(lab) as (_, pid):
        lab.kill(pid, "KILL")
    until(lambda: port(lab) == OLD_PORT, "the guard goes back", seconds=60)
    serves_by_the_old_spec(lab)


def test_death_of_the_daemon(lab: Server) -> None:
    """It has no part in the way back; it is there again before the trial is over."""
    inquest = Inquest(lab.machine)
    with trial(lab) as (_, pid):
        killed = inquest.daemon_pid()
        lab.kill(killed, "KILL")
        until(lambda: inquest.daemon_pid() not in (0, killed) and inquest.answers(), "inquestd is back", seconds=60)
        lab.kill(pid, "INT")
    serves_by_the_old_spec(lab)


def test_reboot(lab: Server, machine: nspawn.Machine) -> None:
    """What a trial changed lies below /run."""
    with trial(lab) as (process, _):
        process.kill()  # nsenter(1) alone, outside: a shutdown would wait for it to reap the trial
        assert port(lab) == NEW_PORT
        again = reboot(lab.machine)
    server = Server(again, lab.name)
    assert server.show("DropInPaths") == ""
    server.serving()
    serves_by_the_old_spec(server)
    assert server.machine.run("systemctl", "list-units", "--all", "--no-legend", "inquest-trial-*").stdout == ""


def reboot(machine: nspawn.Machine) -> nspawn.Machine:
    """As a service of systemd's would: nspawn ends when its machine reboots, and is started again as it was."""
    state = nspawn.MACHINES / machine.name / "nspawn"
    pid = int(state.read_text().split()[0])
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    mounts = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))
    machine.run("systemctl", "reboot", check=False)
    until(lambda: not alive(pid), f"{machine.name} is down", seconds=90)
    homes = [mount / f"inquest-{machine.name}" / "cgroup.procs" for mount in mounts]
    commands = [f"echo $$ > {home}" for home in homes if home.exists()]
    commands.append(f"echo $$ $(cut -d ' ' -f 22 /proc/$$/stat) > {state}")
    commands.append('exec "$@" > /dev/null 2>&1')
    script = ["setsid", "--fork", "/bin/sh", "-ec", "\n".join(commands), "sh", *argv]
    subprocess.run(script, check=True, stdin=subprocess.DEVNULL)

    def up() -> nspawn.Machine | None:
        found = nspawn.find(machine.name)
        told = found.run("systemctl", "is-system-running", check=False).stdout.strip() if found else ""
        return found if told in ("running", "degraded") else None

    return until(up, f"{machine.name} is up again", seconds=90)


def alive(pid: int) -> bool:
    """Whether it has not ended; who has to reap it may be slow."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
