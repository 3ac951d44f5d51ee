"""How long a stop may take: long enough for the longest answer that the server may be giving.

SGLang finishes its running requests without a limit of its own; the unit's ``TimeoutStopSec=`` is that limit.
"""

from __future__ import annotations

import json
from pathlib import Path

from service.fields import seconds
from service.spec import ServerSpec

__all__ = ["stop_seconds", "stop_span"]

LEAST_SECONDS = 5 * 60
# A reboot waits for it.
MOST_SECONDS = 15 * 60
# What a busy server gives one request at least, speculation or not.
TOKENS_PER_SECOND = 50
_TOO_LARGE_BYTES = 1 << 20


def stop_span(spec: ServerSpec) -> str:
    """The unit's ``TimeoutStopSec=``: the spec's, or one that fits the model's longest answers."""
    return spec.limits.timeout_stop or f"{_fitting(spec) // 60}min"


def stop_seconds(spec: ServerSpec) -> float:
    """The same in seconds; ``inf`` for no limit."""
    return seconds(stop_span(spec))


def _fitting(spec: ServerSpec) -> int:
    tokens = spec.memory.context_length or _context_of(spec.model_path)
    needed = -(-(tokens or 0) // TOKENS_PER_SECOND // 60) * 60
    return min(max(needed, LEAST_SECONDS), MOST_SECONDS)


def _context_of(model: str) -> int | None:
    """The context length in a local model's configuration; None where it cannot be read (yet)."""
    path = Path(model) / "config.json"
    try:
        if not model.startswith("/") or path.stat().st_size > _TOO_LARGE_BYTES:
            return None
        config = json.loads(path.read_bytes())
        tokens = (config.get("text_config") or config)["max_position_embeddings"]
        return tokens if isinstance(tokens, int) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
