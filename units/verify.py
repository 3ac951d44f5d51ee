"""``systemd-analyze verify``: systemd's own opinion on units that are not installed yet."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from units.generator import Generated

__all__ = ["verify"]

DEADLINE_SECONDS = 60


def verify(units: Iterable[Generated]) -> tuple[str, ...] | None:
    """What systemd has to say against `units`, a line each; None where systemd-analyze is not installed.

    Programs that a unit names must exist on this machine, or systemd says so.
    """
    if shutil.which("systemd-analyze") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="inquest-verify-") as folder:
        paths = []
        for unit in units:
            path = Path(folder) / unit.unit
            path.write_text(unit.text, encoding="utf-8")
            paths.append(str(path))
        if not paths:
            return ()
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--generators=no", *paths],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        lines = [line for line in done.stderr.splitlines() if any(u in line for u in map(_name, paths))]
        return tuple(line.replace(f"{folder}/", "") for line in lines) if done.returncode or lines else ()


def _name(path: str) -> str:
    return Path(path).name
