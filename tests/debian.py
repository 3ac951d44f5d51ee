"""Programs of the distribution's packages, for tests to hold ours against. Where a package is not installed it is
unpacked into the cache: nothing is installed, and no service starts."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e import cache


def program(package: str, name: str) -> Path:
    """The program of that name, from PATH or from the package."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if shutil.which("apt-get") is None:
        pytest.skip(f"no {name} on PATH, and no apt-get to fetch Debian's package {package} with")
    offered = subprocess.run(["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True)
    assert offered.returncode == 0, f"apt knows no package {package}: run apt-get update\n{offered.stderr}"
    digest = hashlib.sha256(offered.stdout.encode()).hexdigest()

    def make(folder: Path) -> None:
        subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True, capture_output=True, timeout=300)
        (downloaded,) = folder.glob("*.deb")
        subprocess.run(["dpkg", "-x", downloaded, folder], check=True, timeout=120)
        downloaded.unlink()

    # No name of a kind may begin another: the cache throws away what begins alike.
    return cache.made(package.replace("-", "_"), digest, make) / "usr/bin" / name
