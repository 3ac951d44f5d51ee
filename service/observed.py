"""SGLang's own memory figures, as a run's log has them (0.4.10 to 0.5.23)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Observed", "observed"]

_OTHER_RANK = re.compile(r"\[\d{4}-\d\d-\d\d [\d:.]+(?: [A-Z_]+\d+)*? [A-Z_]+[1-9]\d*(?: [A-Z_]+\d+)*\] ")
_BEFORE = re.compile(r"Load weight begin\. avail mem=([\d.]+) GB")
_WEIGHTS = re.compile(r"Load weight end\..*\bmem usage=([\d.]+) GB")
_POOL = re.compile(
    r"KV Cache is allocated\..*#tokens: (\d+), (?:K size: ([\d.]+) GB, V size: ([\d.]+)|KV size: ([\d.]+)) GB"
)
_STATE = re.compile(r"Mamba Cache is allocated\..*?ssm_state size: ([\d.]+)\s*GB", re.IGNORECASE)
_GRAPHS = re.compile(r"Capture .*\bgraph end\..*\bmem usage=([\d.]+) GB", re.IGNORECASE)
_MAXIMA = re.compile(
    r"max_total_num_tokens=(\d+),.* max_running_requests=(\d+), context_len=(\d+)"
    r"(?:, available_[gc]pu_mem=([\d.]+) GB)?"
)


@dataclass(slots=True)
class Observed:
    """Sizes in GiB (SGLang writes GB and means 2^30); lists hold the target's figure first, then the draft's."""

    before_gib: float | None = None
    weights_gib: list[float] = field(default_factory=list)
    kv_gib: list[float] = field(default_factory=list)
    kv_tokens: list[int] = field(default_factory=list)
    state_gib: float | None = None
    graphs_gib: float = 0.0
    max_total_num_tokens: int | None = None
    max_running_requests: int | None = None
    available_gib: float | None = None


def observed(lines: Iterable[str]) -> Observed:
    """The figures of the last start in these lines; of several ranks, those of rank 0."""
    found = Observed()
    for line in lines:
        if _OTHER_RANK.search(line):
            continue
        if "server_args=" in line:
            found = Observed()
        if (m := _BEFORE.search(line)) and found.before_gib is None:
            found.before_gib = float(m[1])
        elif m := _WEIGHTS.search(line):
            found.weights_gib.append(float(m[1]))
        elif m := _POOL.search(line):
            found.kv_tokens.append(int(m[1]))
            found.kv_gib.append(float(m[4]) if m[4] else round(float(m[2]) + float(m[3]), 2))
        elif m := _STATE.search(line):
            found.state_gib = float(m[1])
        elif m := _GRAPHS.search(line):
            found.graphs_gib += float(m[1])
        elif m := _MAXIMA.search(line):
            found.max_total_num_tokens, found.max_running_requests = int(m[1]), int(m[2])
            found.available_gib = float(m[4]) if m[4] else None
    return found
