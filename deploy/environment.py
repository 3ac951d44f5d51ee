"""Inquest's private virtual environment, made from this checkout."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy import stamp
from deploy.progress import DeployError, answer, run

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "deploy" / "constraints.txt"
VENV = Path("/opt/inquest/venv")

# The distribution's own interpreter: one under somebody's home is closed to the service users.
PYTHON = Path("/usr/bin/python3")

_SOURCE = ("pyproject.toml", "README.md", "LICENSE", "service", "units", "forensics")
_PIP = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def python_version(python: Path = PYTHON) -> str:
    """The interpreter's X.Y.Z; DeployError when it is too old for Inquest."""
    found = answer([python, "-c", "import platform; print(platform.python_version())"]).strip()
    if tuple(map(int, found.split(".")[:2])) < (3, 11):
        raise DeployError(
            f"{python} is Python {found}; Inquest needs 3.11 or newer",
            todo="use Debian 12, Ubuntu 24.04 or newer",
        )
    return found


def create(folder: Path, version: str) -> None:
    """Make an empty virtual environment, or keep the one made by the same Python."""
    config = folder / "pyvenv.cfg"
    if config.exists() and f"version = {version}" in config.read_text().splitlines():
        return
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([PYTHON, "-m", "venv", folder])


def pip(folder: Path, arguments: Sequence[str | Path]) -> None:
    # Wheels come to gigabytes, and /tmp may be in memory.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        run(
            [folder / "bin" / "python", "-m", "pip", *arguments],
            env={**_PIP, "TMPDIR": scratch},
            todo="see the log for pip's own words",
        )


def install() -> bool:
    """Bring /opt/inquest/venv up to this checkout; False when it already was."""
    version = python_version()
    wanted = stamp.digest([*_source(), CONSTRAINTS], version)
    if stamp.is_fresh(VENV, wanted):
        return False
    create(VENV, version)
    stamp.clear(VENV)
    # Built from a copy: a build writes into its source tree, and the checkout may be read-only.
    with tempfile.TemporaryDirectory(prefix="inquest-build-") as scratch:
        copy = Path(scratch) / "inquestd"
        for file in stamp.files(_source()):
            target = copy / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        # pip always replaces what came from a folder, also when the version is the same.
        pip(VENV, ["install", "--constraint", CONSTRAINTS, copy])
    stamp.set_fresh(VENV, wanted)
    return True


def install_for_tests(folder: Path) -> bool:
    """Bring the checkout's own environment up to what the tests need; False when it already was."""
    version = python_version()
    wanted = stamp.digest([ROOT / "pyproject.toml", CONSTRAINTS], version, str(ROOT))
    if stamp.is_fresh(folder, wanted):
        return False
    create(folder, version)
    stamp.clear(folder)
    pip(folder, ["install", "--constraint", CONSTRAINTS, "--editable", f"{ROOT}[test]"])
    stamp.set_fresh(folder, wanted)
    return True


def _source() -> list[Path]:
    return [path for name in _SOURCE if (path := ROOT / name).exists()]


def become_installer() -> None:
    """What is installed must be readable for the service users, and import nothing from here."""
    os.umask(0o022)
    os.environ.pop("PYTHONPATH", None)
