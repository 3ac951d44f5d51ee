"""Packages of the distribution (Debian 12 and Ubuntu 24.04 name these alike)."""

import shutil
import time
from pathlib import Path

from deploy.progress import LOG, DeployError, answer, run

# systemd-python and pystemd are built from source where the index has no wheel for this Python.
FOR_INSTALLING = ("python3-venv", "python3-dev", "gcc", "pkg-config", "libsystemd-dev", "ca-certificates")
FOR_SGLANG_CPU = ("g++", "ninja-build")
FOR_SERVING = ("dbus", "curl")
FOR_A_MACHINE = ("systemd-container", "dbus", "curl")
FOR_THE_PAGE = ("chromium",)  # Ubuntu has it as a snap only
FOR_TESTS = (
    "systemd-container",
    "systemd-journal-remote",
    "dbus",
    "curl",
    "mmdebstrap",
    "debian-archive-keyring",
    "e2fsprogs",
    "fish",
    "mandoc",
    "qemu-system-x86",
    "shellcheck",
    "zsh",
)

_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
_LISTS = Path("/var/lib/apt/lists")
_FRESH_SECONDS = 24 * 3600.0


def ensure(*names: str) -> None:
    """Install what is missing of these packages; nothing is asked and nothing else is upgraded."""
    missing = [name for name in dict.fromkeys(names) if not _installed(name)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise DeployError(
            f"these packages are missing and there is no apt-get: {' '.join(missing)}",
            todo="Inquest's deploy scripts know Debian 12 and Ubuntu 24.04",
        )
    _refresh_lists()
    run(
        ["apt-get", "install", "-y", "--no-install-recommends", *missing],
        env=_QUIET,
        todo=f"the whole output is in {LOG}; on Ubuntu, universe has to be enabled: add-apt-repository universe",
    )


def ensure_offered(*names: str) -> None:
    """Install what the distribution has of these packages."""
    if all(map(_installed, names)) or shutil.which("apt-get") is None:
        return
    _refresh_lists()
    ensure(*(name for name in names if answer(["apt-cache", "show", "--no-all-versions", name], check=False)))


def _installed(name: str) -> bool:
    status = answer(["dpkg-query", "-W", "-f", "${db:Status-Status}", name], check=False)
    return status == "installed"


def _refresh_lists() -> None:
    if not _lists_are_fresh():
        run(["apt-get", "update"], env=_QUIET, todo="apt could not read its package lists: is the network up?")


def _lists_are_fresh() -> bool:
    indexes = list(_LISTS.glob("*_Packages*"))
    return bool(indexes) and time.time() - max(i.stat().st_mtime for i in indexes) < _FRESH_SECONDS
