"""A tree that can be written to without being changed: what is written goes to another place, and is gone with it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.progress import DeployError

_MEMORY = "2G"


@contextmanager
def overlaid(lower: Path) -> Iterator[Path]:
    """A folder that shows a tree and can be written to, in memory."""
    folder = Path(tempfile.mkdtemp(prefix="inquest-overlay-"))
    try:
        yield mount(folder, [lower])
    finally:
        unmount(folder)
        shutil.rmtree(folder)


def mount(folder: Path, lower: Sequence[Path], disk: Path | None = None) -> Path:
    """`folder`/root shows the layers, the uppermost first. What is written is in memory, 2 GiB at most, or without a
    limit in the empty folder `disk`, which stays the caller's."""
    root = folder / "root"
    root.mkdir(parents=True)
    # No overlay can be written to another, as disks in Docker are.
    if disk is not None and not _is_overlay(disk):
        layers = disk
    else:
        layers = folder / "layers"
        layers.mkdir()
        size = _MEMORY if disk is None else "75%"
        _mount("-t", "tmpfs", "-o", f"size={size},mode=755", "inquest", str(layers))
    (layers / "upper").mkdir()
    (layers / "work").mkdir()
    options = f"lowerdir={':'.join(map(str, lower))},upperdir={layers}/upper,workdir={layers}/work"
    _mount("-t", "overlay", "-o", options, "inquest", str(root))
    return root


def unmount(folder: Path) -> None:
    for mounted in (folder / "root", folder / "layers"):
        while mounted.is_mount():
            subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def _is_overlay(path: Path) -> bool:
    found = subprocess.run(
        ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", path], capture_output=True, text=True, check=True
    )
    return found.stdout.strip() == "overlay"


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise DeployError(
            f"mount {' '.join(arguments)}: {done.stderr.strip()}",
            todo="a throw-away machine needs root with CAP_SYS_ADMIN (in Docker: --privileged)",
        )
