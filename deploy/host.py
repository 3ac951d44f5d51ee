"""Inquest on this very system, whose PID 1 is systemd: put it in place, start it, take it away."""

import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

from deploy import environment, packages, sglang_cpu
from deploy.progress import HEARTBEAT_SECONDS, DeployError, answer, run, say, step

ROOTFS = Path(__file__).resolve().parent / "rootfs"
CONFIG = Path("/etc/inquest")
SERVERS = CONFIG / "servers"
COMMAND = Path("/usr/local/bin/inquest")
STATE = (Path("/var/lib/inquestd"), Path("/var/lib/sglang"))
CACHES = (Path("/opt/inquest"), Path("/var/lib/inquest"))
DAEMON = "inquestd.service"
MANUAL = Path("/usr/local/share/man")
SHARE = Path("/usr/local/share/inquest")
_DROPIN = "usr/local/lib/systemd/journald.conf.d/inquest.conf"
_POLL_SECONDS = 1.0


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def build(spec: Path | None) -> None:
    """What takes long and does not touch the running system: packages and environments."""
    with step("packages"):
        packages.ensure(*packages.FOR_INSTALLING, *packages.FOR_SERVING)
    with step(f"Inquest's environment ({environment.VENV})"):
        environment.install()
    python = _python_of(spec)
    if python == sglang_cpu.SGLANG / "bin" / "python":
        if spec is not None and has_gpu() and not python.exists():
            raise DeployError(
                f"{spec} names no environment of SGLang, and {sglang_cpu.SGLANG} does not exist",
                todo='add to the spec: python = "/path/to/your/environment/bin/python"',
            )
        if spec is None or not has_gpu():
            sglang_cpu.install()


def install(spec: Path | None) -> str:
    """Put everything in place and start the daemon; returns the name of the server's unit."""
    with step("files, users and units"):
        journald_changed = _put_files()
        run([environment.VENV / "bin" / "python", "-I", "-m", "forensics.cli.manual", MANUAL])
        unit = _put_spec(spec)
        run(["systemd-sysusers", "/usr/local/lib/sysusers.d/inquest.conf"])
        run(["journalctl", "--update-catalog"])
        if sglang_cpu.JIT.exists():
            run(["chown", "-R", "sglang:sglang", sglang_cpu.JIT])
        if journald_changed:
            Path("/var/log/journal").mkdir(exist_ok=True)
            run(["systemd-tmpfiles", "--create", "--prefix", "/var/log/journal"])
            run(["systemctl", "restart", "systemd-journald"])
            # Without a flush since the boot it stays in /run, whatever Storage= says.
            run(["journalctl", "--flush"])
        # Where dbus has only just been installed, nothing has started it yet.
        run(["systemctl", "start", "dbus.socket"])
        run(["systemctl", "daemon-reload"])
    with step("inquestd"):
        run(["systemctl", "enable", DAEMON])
        _start_daemon()
        # Optional: runs only where somebody enabled it.
        run(["systemctl", "try-restart", "inquest-sigtrace.service"])
    return unit


def _start_daemon() -> None:
    done = subprocess.run(["systemctl", "restart", DAEMON], stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        words = answer(["journalctl", "--no-pager", "--lines", "15", "--output", "cat", "--unit", DAEMON], check=False)
        raise DeployError(f"{DAEMON} did not start; its last words:\n{words}", todo=f"journalctl -u {DAEMON}")


def start(unit: str) -> None:
    """Start a server and show what it is doing until it answers."""
    with step(f"{unit} (real SGLang needs a minute or two)"):
        began = time.monotonic()
        said, told = "", began
        process = subprocess.Popen(["systemctl", "start", unit], stdin=subprocess.DEVNULL)
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            status = answer(["systemctl", "show", unit, "--property", "StatusText", "--value"]).strip()
            # Its seconds count on; what it is doing is the news.
            doing, now = re.sub(r"\d+", "", status), time.monotonic()
            if status and (doing != said or now - told >= HEARTBEAT_SECONDS):
                said, told = doing, now
                say(f"    {now - began:.0f} s  {status}")
        if process.returncode != 0:
            words = answer(["systemctl", "status", "--no-pager", "--lines", "15", unit], check=False)
            raise DeployError(f"{unit} did not start:\n{words}", todo=f"journalctl -u {unit}; inquest crashes")


def remove(*, purge: bool) -> None:
    """Take Inquest off this system; with `purge` its state, configuration and environments too."""
    with step("units"):
        servers = answer(["systemctl", "list-units", "--plain", "--no-legend", "--all", "sglang-*.service"])
        for line in servers.splitlines():
            run(["systemctl", "stop", line.split()[0]])
        subprocess.run(["systemctl", "disable", "--now", "inquest-sigtrace.service", DAEMON], capture_output=True)
        run(["systemctl", "stop", "sglang.slice", "inquest.slice"])
    with step("files"):
        for file in _installed_files():
            if purge or not file.is_relative_to("/etc"):
                file.unlink(missing_ok=True)
        shutil.rmtree(SHARE, ignore_errors=True)
        for page in MANUAL.glob("man?/inquest*"):
            page.unlink()
        run(["journalctl", "--update-catalog"])
        COMMAND.unlink(missing_ok=True)
        shutil.rmtree(environment.VENV, ignore_errors=True)
        if purge:
            for folder in (CONFIG, *STATE, *CACHES):
                shutil.rmtree(folder, ignore_errors=True)
            for user in ("inquest", "sglang"):
                subprocess.run(["userdel", user], capture_output=True)
        run(["systemctl", "daemon-reload"])
        subprocess.run(["systemctl", "reset-failed"], capture_output=True)


def _python_of(spec: Path | None) -> Path:
    """The interpreter that a spec names; what else is wrong with it, `inquest units check` tells later."""
    default = sglang_cpu.SGLANG / "bin" / "python"
    if spec is None:
        return default
    try:
        return Path(tomllib.loads(spec.read_text()).get("python", default))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DeployError(f"{spec}: {error}") from None


def _installed_files() -> list[Path]:
    return [Path("/") / file.relative_to(ROOTFS) for file in sorted(ROOTFS.rglob("*")) if file.is_file()]


def _put_files() -> bool:
    """Copy rootfs/ over /; configuration that is there stays as it is. True when journald's changed."""
    journald_changed = False
    for target in _installed_files():
        source = ROOTFS / target.relative_to("/")
        if target.is_relative_to("/etc") and (target.exists() or target.parent == SERVERS):
            continue
        if target == Path("/") / _DROPIN and not target.exists():
            journald_changed = True
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    SERVERS.mkdir(parents=True, exist_ok=True)
    COMMAND.unlink(missing_ok=True)
    COMMAND.symlink_to(environment.VENV / "bin" / "inquest")
    return journald_changed


def _put_spec(spec: Path | None) -> str:
    """Check a spec and put it among the servers; without one, the demonstration's."""
    given = spec or ROOTFS / "etc/inquest/servers/demo.toml"
    target = SERVERS / given.name
    if spec is not None or not target.exists():
        run([environment.VENV / "bin" / "inquest", "units", "check", given], todo="correct the spec and try again")
        if given.resolve() != target.resolve():
            shutil.copy(given, target)
            os.chmod(target, 0o644)
    return f"sglang-{target.stem}.service"
