"""How far a server's start is, and a stop, by the server's own lines (SGLang 0.4.10 to 0.5.23)."""

from __future__ import annotations

import re

__all__ = ["in_flight", "step"]

# tqdm's and the loader's progress: "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03, …".
_SHARDS = re.compile(r"oading safetensors(?: checkpoint shards)?:.*?\b(\d+)/(\d+)\b")
_GRAPHS = re.compile(r"Captur(?:e|ing)\b.*?\b(?:graph|batches)\b", re.IGNORECASE)
_ENDED = re.compile(r"\bend\.")
_REMAINING = re.compile(r"Gracefully exiting\.\.\. [Rr]emaining number of requests (\d+)")
# The first that a line holds counts; in the order of a start, so that later ones are asked first.
_STEPS = (
    ("Uvicorn running on", "warming up"),
    ("Application startup complete", "warming up"),
    ("max_total_num_tokens=", "starting the HTTP server"),
    ("Memory pool end", "preparing the runners"),
    ("KV Cache is allocated", "allocating the KV cache"),
    ("Load weight end", "allocating the KV cache"),
    ("Load weight begin", "loading weights"),
    ("Init torch distributed begin", "joining its processes"),
    ("Init parallel begin", "joining its processes"),
    ("server_args=", "starting its processes"),
)


def step(line: str, before: str) -> str:
    """The step that the start is in after `line`, `before` where the line says nothing of it."""
    if found := _SHARDS.search(line):
        return f"loading weights ({found[1]} of {found[2]} files)"
    if _GRAPHS.search(line) and "avail" in line:
        return before if _ENDED.search(line) else "capturing CUDA graphs"
    for words, name in _STEPS:
        if words in line:
            # The draft's weights are loaded after the target's.
            again = name == "loading weights" and before.startswith("allocating")
            return "loading the draft's weights" if again else name
    return before


def in_flight(line: str) -> int | None:
    """How many requests a stopping server still has, where the line says so."""
    found = _REMAINING.search(line)
    return int(found[1]) if found else None
