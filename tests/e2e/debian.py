"""Trees of Debian 12 made from nothing by mmdebstrap, which knows its own mirrors."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from deploy.progress import run
from tests.e2e import cache

SUITE = "bookworm"
_RECIPE = "1"  # to be raised when the way a tree is made changes


def tree(kind: str, packages: Sequence[str]) -> Path:
    """A minimal tree with these packages besides; not to be written to."""
    digest = hashlib.sha256(" ".join([_RECIPE, SUITE, *packages]).encode()).hexdigest()

    def make(folder: Path) -> None:
        run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(packages)}",
                '--aptopt=Acquire::Languages "none"',
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
                SUITE,
                folder / "tree",
            ]
        )

    return cache.made(kind, digest, make) / "tree"
