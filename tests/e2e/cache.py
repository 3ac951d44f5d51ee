"""What is slow to make and may be kept: trees of distributions, environments, images, saved machines.

Everything lies under $INQUEST_CACHE, by default /var/cache/inquest-test, in folders named after a
hash of what they are made from.  The folder may be deleted at any time.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(os.environ.get("INQUEST_CACHE", "/var/cache/inquest-test"))


def kept(kind: str, digest: str) -> Path | None:
    """The folder of that kind and digest, if it was made already."""
    folder = _folder(kind, digest)
    return folder if folder.exists() else None


def made(kind: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The folder of that kind and digest; made if it is missing, and then older ones of the kind go."""
    folder = _folder(kind, digest)
    if folder.exists():
        return folder
    # Only a finished folder ever bears the final name.
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    for older in FOLDER.glob(f"{kind}-*"):
        if older != unfinished:
            shutil.rmtree(older, ignore_errors=True)
    unfinished.rename(folder)
    return folder


def _folder(kind: str, digest: str) -> Path:
    return FOLDER / f"{kind}-{digest[:16]}"
