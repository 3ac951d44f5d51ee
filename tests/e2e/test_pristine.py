"""deploy/up on a Debian 12 and an Ubuntu 24.04 on which nothing was ever installed: a missing step shows.

The trees have systemd and apt and no more.  What they get from this machine are the checkout, the bundle
of certificates and the settings of pip and apt, since without them nobody here reaches an index.
SGLang's environment takes minutes: what `deploy/up` made of the present pins is kept for the next time.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy import nspawn, sglang_cpu, stamp
from deploy.environment import ROOT
from tests.e2e import cache, trees
from tests.e2e.conftest import Say
from tests.e2e.inquest import Inquest, decisive

pytestmark = [pytest.mark.e2e, pytest.mark.pristine]

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Not at its own place in the machine: the package ca-certificates, once installed, writes there.
BUNDLE = Path("/etc/inquest-test-certificates.crt")
_PIP_CONFIG = (Path("/etc/pip.conf"), Path("/etc/xdg/pip"))
_VARIABLES = re.compile(r"PIP_|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|https?_proxy|no_proxy", re.IGNORECASE)


def _settings() -> dict[str, str]:
    found = {key: value for key, value in os.environ.items() if _VARIABLES.match(key)}
    return {key: value.replace(str(CERTIFICATES), str(BUNDLE)) for key, value in found.items()} | {
        "PIP_CERT": str(BUNDLE)
    }


def _named_folders() -> list[Path]:
    """Folders of this machine from which pip's settings let it install."""
    config = subprocess.run([ROOT / ".venv/bin/pip", "config", "list"], capture_output=True, text=True, check=True)
    words = re.split(r"[\s'\"=\\]+|file://", f"{config.stdout} {' '.join(_settings().values())}")
    folders = {Path(word) for word in words if word.startswith("/") and Path(word).is_dir()}
    # An index of files names the folder beside it.
    return sorted({f.parent if f.name == "simple" else f for f in folders if not f.is_relative_to("/etc")})


@dataclass(frozen=True, slots=True)
class Pristine:
    """A machine on which nothing was installed yet."""

    machine: nspawn.Machine
    distribution: trees.Distribution
    tree: Path

    def keep_sglang(self) -> None:
        """Keep what `deploy/up` made for SGLang: the next machine of this kind begins with it."""

        def make(folder: Path) -> None:
            for path in (sglang_cpu.SGLANG, sglang_cpu.MODELS, sglang_cpu.JIT):
                target = folder / path.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-a", self.machine.root / path.relative_to("/"), target], check=True)

        cache.made(*_sglang(self.distribution, self.tree), make)


def _sglang(distribution: trees.Distribution, tree: Path) -> tuple[str, str]:
    """Kind and digest of SGLang's environment in a tree."""
    recipe = [ROOT / "deploy/sglang-cpu", ROOT / "deploy/sglang_cpu.py"]
    return f"{distribution.suite}-sglang", stamp.digest(recipe, str(tree))


@pytest.fixture(scope="module", params=[trees.DEBIAN, trees.UBUNTU], ids=["debian-12", "ubuntu-24.04"])
def pristine(request: pytest.FixtureRequest, say: Say) -> Iterator[Pristine]:
    distribution: trees.Distribution = request.param
    say(f"a pristine {distribution.name} (a minute when nothing is cached)")
    try:
        tree = trees.tree(distribution, "pristine", ["systemd", "systemd-sysv", "python3"])
    except trees.Unreachable as error:
        if distribution is trees.DEBIAN:
            raise
        pytest.skip(str(error))
    sglang = cache.kept(*_sglang(distribution, tree))
    lower = [tree] if sglang is None else [sglang, tree]
    name = f"inquest-pristine-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="machine-", dir=cache.FOLDER) as disk:
        machine = nspawn.boot(name, lower=lower, bind_ro=[ROOT, *_named_folders()], disk=Path(disk))
        try:
            _give_settings(machine.root)
            yield Pristine(machine, distribution, tree)
        finally:
            nspawn.down(name)


def _give_settings(root: Path) -> None:
    shutil.copy(CERTIFICATES, root / BUNDLE.relative_to("/"))
    for source in (*_PIP_CONFIG, *Path("/etc/apt/apt.conf.d").glob("*")):
        if source.exists():
            target = root / source.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)


def test_installs_serves_and_explains_a_death(pristine: Pristine, say: Say) -> None:
    machine = pristine.machine
    _assert_bare(machine)
    up = subprocess.Popen(
        machine.argv([ROOT / "deploy" / "up"], env=_settings()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert up.stdout is not None
    with up.stdout:
        for line in up.stdout:
            say(line.rstrip())
    assert up.wait() == 0, "deploy/up failed, see above"
    pristine.keep_sglang()

    inquest = Inquest(machine)
    blind = {source["name"] for source in inquest.get("/healthz")["sources"] if source["state"] == "blind"}
    assert blind <= {"cgroup", "coredump", "gpu", "kernel"}, "no more than a container must lack"
    demo = inquest.server("demo")
    answer = demo.post("/v1/completions", {"model": "demo", "prompt": "the quick brown fox", "max_tokens": 8})
    assert answer.status_code == 200

    run = demo.current()
    machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", demo.unit)
    crash = inquest.crash_of(run)
    assert (crash["cause"], crash["strength"]) == ("external-signal", "confirmed")
    assert "on client request" in "\n".join(decisive(crash))
    shown = machine.run("inquest", "show", crash["id"]).stdout
    assert "external-signal" in shown


def test_takes_it_all_away(pristine: Pristine) -> None:
    machine = pristine.machine
    assert machine.run("systemctl", "is-active", "inquestd.service").stdout == "active\n"
    machine.run(ROOT / "deploy" / "down", "--purge", timeout=120)
    for left in ("opt/inquest", "etc/inquest", "var/lib/inquest", "var/lib/inquestd", "usr/local/bin/inquest"):
        assert not (machine.root / left).exists(), left
    units = machine.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "inquest*", "sglang*").stdout
    assert units == ""
    users = machine.run("getent", "passwd", "inquest", "sglang", check=False).stdout
    assert users == ""


def _assert_bare(machine: nspawn.Machine) -> None:
    for port in (8642, 30000):
        with socket.socket() as probe:
            # The machine shares this host's network, as an installation needs it.
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is in use here: ./deploy/down first"
    for command in ("gcc", "curl", "dbus-daemon", "pkg-config"):
        assert machine.run("which", command, check=False).returncode != 0, f"{command} is there already"
