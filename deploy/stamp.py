"""Stamps: a built folder remembers the content it was built from, so that a second run is quick."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

NAME = ".inquest-stamp"
_NOISE = {"__pycache__", "build", ".mypy_cache"}


def files(paths: Iterable[Path]) -> list[Path]:
    """All files under the given paths, in a stable order, without what a build leaves behind."""
    return [file for path in paths for file in _under(path)]


def digest(paths: Iterable[Path], *words: str) -> str:
    """A hash over the files' names and contents and over the given words."""
    sha = hashlib.sha256("\0".join(words).encode())
    for path in paths:
        for file in _under(path):
            sha.update(f"\0{file.relative_to(path.parent)}\0".encode())
            sha.update(file.read_bytes())
    return sha.hexdigest()


def _under(path: Path) -> list[Path]:
    candidates = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [
        file
        for file in candidates
        if file.is_file()
        and not _NOISE.intersection(file.parts)
        and not any(part.endswith(".egg-info") for part in file.parts)
    ]


def is_fresh(folder: Path, wanted: str) -> bool:
    try:
        return (folder / NAME).read_text() == wanted
    except OSError:
        return False


def set_fresh(folder: Path, made_from: str) -> None:
    """To be called last, when everything in the folder is in place."""
    (folder / NAME).write_text(made_from)


def clear(folder: Path) -> None:
    """To be called first, so that an interrupted build is never taken for a finished one."""
    (folder / NAME).unlink(missing_ok=True)
