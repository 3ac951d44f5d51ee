"""Put a unit's text in place so that a reader never sees half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from units.generator import Generated

__all__ = ["write"]


def write(unit: Generated, directory: Path) -> Path:
    """Write the unit into `directory` (made if missing); returns its path. Raises ``OSError``."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / unit.unit
    descriptor, name = tempfile.mkstemp(prefix=f".{unit.unit}-", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(unit.text)
            os.fchmod(file.fileno(), 0o644)
        Path(name).replace(path)
    except BaseException:  # an interrupt leaves no half-written file behind either
        Path(name).unlink(missing_ok=True)
        raise
    return path
