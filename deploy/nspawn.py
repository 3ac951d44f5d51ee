"""Throw-away systemd machines: a container booted by systemd-nspawn over an overlay.

The lower layers are the host's `/` (or other trees) and never written; the upper one is in memory
and gone when the machine is.  Needs root, but no systemd on the host: it works inside containers
and on machines whose PID 1 is something else.  Several machines may run at once.

Inside is a whole systemd 252 or newer with journald, D-Bus and cgroups.  There is no memory
controller unless the host delegates one, and no kernel log.
"""

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import overlay, own_cgroups
from deploy.progress import DeployError

MACHINES = Path("/run/inquest-machines")
_BOOT_SECONDS = 60.0
_STOP_SECONDS = 30.0
_SIGRTMIN_POWEROFF = signal.SIGRTMIN + 4  # systemd as PID 1 takes this for `systemctl poweroff`

# Units that come with systemd, not by being enabled, and that have no business in a container.
_MASKED = (
    "console-getty.service",
    "getty.target",
    "systemd-firstboot.service",
    "systemd-logind.service",
    "systemd-networkd.service",
    "systemd-networkd-wait-online.service",
    "systemd-resolved.service",
    "systemd-sysctl.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-udev-trigger.service",
    "systemd-udevd.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
)
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "SYSTEMD_PAGER": "",
    "SYSTEMD_COLORS": "0",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A booted machine; `leader` is its PID 1 as the host numbers it."""

    name: str
    leader: int

    @property
    def root(self) -> Path:
        """The machine's files as the host can read and write them."""
        return Path(f"/proc/{self.leader}/root")

    def argv(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> list[str]:
        """The host's command line that runs a command inside, with a clean environment."""
        variables = [f"{key}={value}" for key, value in (_ENVIRONMENT | dict(env or {})).items()]
        enter = ["nsenter", "--target", str(self.leader), "--all", "--root", "--wd"]
        return [*enter, "/usr/bin/env", "-i", *variables, *map(str, command)]

    def run(
        self,
        *command: str | Path,
        check: bool = True,
        timeout: float = 120.0,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and wait for it; CalledProcessError carries its output."""
        done = subprocess.run(
            self.argv(command, env),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        if check and done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, list(command), done.stdout, done.stderr)
            error.add_note(f"{done.stdout}{done.stderr}")
            raise error
        return done

    def stream(self, *command: str | Path, env: Mapping[str, str] | None = None) -> int:
        """Run a command inside on this terminal; returns its exit status."""
        return subprocess.run(self.argv(command, env)).returncode


def boot(
    name: str,
    *,
    lower: Sequence[Path] = (Path("/"),),
    private_network: bool = False,
    bind_ro: Sequence[Path] = (),
    own: Sequence[Path] = (),
    disk: Path | None = None,
) -> Machine:
    """Boot a machine and wait until its systemd has come up.

    Of `lower` the first layer is the uppermost.  `bind_ro` shows paths of the host at the same place
    inside, `own` copies folders that the host may change while the machine runs.  What the machine
    writes is in memory, 2 GiB at most, or without a limit in the empty folder `disk`, which stays the
    caller's.  Without `private_network` it shares the host's ports.
    """
    if find(name) is not None:
        raise DeployError(f"the machine {name} is already running", todo=f"./deploy/machine down {name}")
    folder = MACHINES / name
    _clear(folder)
    root = overlay.mount(folder, lower, disk)
    _prepare(root, name)
    for path in own:
        shutil.rmtree(root / path.relative_to("/"), ignore_errors=True)
        shutil.copytree(path, root / path.relative_to("/"), symlinks=True)
    options = ["--register=no", f"--machine={name}", "--link-journal=no", "--resolv-conf=copy-host"]
    cgroups: list[Path] = []
    if Path("/proc/1/comm").read_text().strip() != "systemd":
        options.append("--keep-unit")
        cgroups = own_cgroups.make(name)
    if private_network:
        options.append("--private-network")
    options += [f"--bind={path}" for path in Path("/dev").glob("nvidia*")]
    options += [f"--bind-ro={path}" for path in bind_ro]
    commands = [f"echo $$ > {cgroup}/cgroup.procs" for cgroup in cgroups]
    # The time of its start tells this process from a later one of the same pid.
    commands.append(f"echo $$ $(cut -d ' ' -f 22 /proc/$$/stat) > {folder}/nspawn")
    commands.append(f'exec systemd-nspawn --quiet --directory={root} --boot "$@" > {folder}/console.log 2>&1')
    try:
        # Forked away: the machine outlives whoever boots it.
        subprocess.run(
            ["setsid", "--fork", "/bin/sh", "-ec", "\n".join(commands), "sh", *options],
            stdin=subprocess.DEVNULL,
            check=True,
        )
        return _wait_until_up(name, folder)
    except BaseException:  # a machine that nobody knows of would run on
        down(name)
        raise


def find(name: str) -> Machine | None:
    """The machine of that name if it runs."""
    nspawn = _nspawn_pid(MACHINES / name)
    leader = _child(nspawn) if nspawn is not None else None
    return None if leader is None else Machine(name, leader)


def names() -> list[str]:
    return sorted(p.name for p in MACHINES.glob("*") if find(p.name)) if MACHINES.exists() else []


def down(name: str) -> bool:
    """Power a machine off and take its files away; False when there was none."""
    folder = MACHINES / name
    existed = folder.exists()
    nspawn = _nspawn_pid(folder)
    machine = find(name)
    if machine is not None:
        os.kill(machine.leader, _SIGRTMIN_POWEROFF)
    if nspawn is not None and not _gone(folder, _STOP_SECONDS):
        os.kill(nspawn, signal.SIGKILL)
        _gone(folder, _STOP_SECONDS)
    _clear(folder)
    return existed


def _prepare(root: Path, name: str) -> None:
    """Make the host's tree into another machine: own identity, nothing that the host enabled."""
    system = root / "etc/systemd/system"
    system.mkdir(parents=True, exist_ok=True)
    for wants in [*system.glob("*.wants"), *system.glob("*.requires")]:
        shutil.rmtree(wants)
    for unit in _MASKED:
        (system / unit).unlink(missing_ok=True)
        (system / unit).symlink_to("/dev/null")
    default = system / "default.target"
    default.unlink(missing_ok=True)
    default.symlink_to("/lib/systemd/system/multi-user.target")
    # Boot scripts and file systems of the host are none of the machine's.
    generators = root / "etc/systemd/system-generators"
    generators.mkdir(exist_ok=True)
    for generator in ("systemd-sysv-generator", "systemd-getty-generator"):
        (generators / generator).unlink(missing_ok=True)
        (generators / generator).symlink_to("/dev/null")
    (root / "etc/fstab").write_text("")
    (root / "etc/hostname").write_text(f"{name}\n")
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    shutil.rmtree(root / "var/log/journal", ignore_errors=True)


def _wait_until_up(name: str, folder: Path) -> Machine:
    deadline = time.monotonic() + _BOOT_SECONDS
    started = False
    while time.monotonic() < deadline:
        nspawn = _nspawn_pid(folder)
        if started and nspawn is None:
            break
        started = nspawn is not None
        machine = find(name)
        if machine is not None:
            state = machine.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip()
            if state in ("running", "degraded"):
                return machine
        time.sleep(0.05)
    console = folder / "console.log"
    words = console.read_text(errors="replace").strip()[-2000:] if console.exists() else ""
    raise DeployError(
        f"the machine {name} did not boot:\n{words}",
        todo="systemd-nspawn needs root with CAP_SYS_ADMIN (in Docker: --privileged)",
    )


def _clear(folder: Path) -> None:
    overlay.unmount(folder)
    if folder.exists():
        shutil.rmtree(folder)
    own_cgroups.remove(folder.name)


def _nspawn_pid(folder: Path) -> int | None:
    """The pid of the machine's systemd-nspawn while that runs."""
    try:
        pid, start_ticks = (folder / "nspawn").read_text().split()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    state, ticks = fields[0], fields[19]
    return int(pid) if ticks == start_ticks and state != "Z" else None


def _child(pid: int) -> int | None:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        if children:
            return int(children[0])
    return None


def _gone(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _nspawn_pid(folder) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
