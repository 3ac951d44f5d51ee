"""A memory forecast as a table, beside SGLang's own figures where a log has them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from service.forecast import EXACTNESS, Forecast
from service.observed import Observed

__all__ = ["printed", "rows"]

LENGTHS = (1024, 4096, 16384, 65536)
_GIB = 2**30
Row = tuple[str, str, str]


def printed(made: Forecast, seen: Observed | None, other: tuple[int, Forecast] | None, console: Console) -> None:
    """Print it; `other` is the same spec with another number of steps."""
    table = Table("one GPU", "forecast", *(["SGLang's own"] if seen else []), box=None, pad_edge=False)
    for row in rows(made, seen):
        table.add_row(*(row if seen else row[:2]))
    parts: list[Table | Text] = [table]
    if other is not None:
        steps, then = other
        changed = Table(f"from {made.numbers.num_steps} to {steps} steps", "now", "then", box=None, pad_edge=False)
        for row in _changes(made, then):
            changed.add_row(*row)
        parts += [Text(), changed]
    notes = [*made.remarks, EXACTNESS]
    with console.capture() as caught:
        console.print(Group(*parts, Text(), *(Text(note) for note in notes)))
    for line in caught.get().splitlines():
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)


def rows(made: Forecast, seen: Observed | None = None) -> Iterator[Row]:
    """Each line as (what, forecast, SGLang's own figure or nothing)."""
    own = seen or Observed()
    chosen = "" if made.fraction_given else ", as SGLang would choose"
    yield "free before loading", _gib(made.before_bytes), _own(own.before_gib)
    yield f"mem_fraction_static {made.fraction:.3f}{chosen}", _gib(made.fraction * made.before_bytes), ""
    yield "weights", _gib(made.target.weight_bytes), _own(_nth(own.weights_gib, 0))
    if made.draft is not None:
        yield "weights of the draft", _gib(made.draft.weight_bytes), _own(_nth(own.weights_gib, 1))
    if made.target.state_bytes:
        yield (
            f"states, {made.state_slots} slots of {made.target.state_bytes / 2**20:.1f} MiB",
            _gib(made.state_pool_bytes),
            _own(own.state_gib),
        )
    yield "KV cache for one token", f"{made.target.kv_bytes_per_token} B", _per_token(own, 0)
    if made.draft is not None:
        yield "KV cache of the draft for one token", f"{made.draft.kv_bytes_per_token} B", _per_token(own, 1)
    tokens = "" if own.max_total_num_tokens is None else f"{own.max_total_num_tokens}"
    yield f"tokens in the KV cache (by {made.limited_by})", f"{made.pool_tokens}", tokens
    yield "KV cache", _gib(made.pool_tokens * made.target.kv_bytes_per_token), _own(_nth(own.kv_gib, 0))
    if made.draft is not None:
        yield "KV cache of the draft", _gib(made.pool_tokens * made.draft.kv_bytes_per_token), _own(_nth(own.kv_gib, 1))
    yield "stays free for activations and graphs", _gib(made.free_bytes), _own(own.available_gib, own.graphs_gib)
    yield "CUDA graphs, roughly", _gib(made.graphs_bytes), _own(own.graphs_gib or None)
    running = made.numbers.max_running_requests
    yield (
        "requests at a time at most",
        "not limited" if running is None else f"{running}",
        ("" if own.max_running_requests is None else f"{own.max_running_requests}"),
    )
    for length in LENGTHS:
        yield f"  of {length} tokens each", f"{made.requests(length)}", ""


def _changes(now: Forecast, then: Forecast) -> Iterator[Row]:
    def pair(what: str, a: object, b: object) -> Row:
        return what, str(a), str(b)

    yield pair("draft tokens", now.numbers.num_draft_tokens, then.numbers.num_draft_tokens)
    yield pair("tokens in the KV cache", now.pool_tokens, then.pool_tokens)
    yield pair("tokens a request needs besides its own", now.headroom_tokens, then.headroom_tokens)
    if now.target.state_bytes:
        yield pair("states", _gib(now.state_pool_bytes), _gib(then.state_pool_bytes))
        yield pair("slots of state", now.state_slots, then.state_slots)
    yield pair("logits of one full batch", _gib(now.logits_bytes), _gib(then.logits_bytes))
    for length in LENGTHS:
        yield pair(f"requests of {length} tokens", now.requests(length), then.requests(length))


def _gib(size: float) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB / 10 or size <= 0 else f"{size / 2**20:.2f} MiB"


def _own(gib: float | None, graphs: float = 0) -> str:
    if gib is None:
        return ""
    return f"{gib:.2f} GiB" + (f" (after graphs of {graphs:.2f})" if graphs else "")


def _nth(values: list[float], index: int) -> float | None:
    return values[index] if index < len(values) else None


def _per_token(own: Observed, index: int) -> str:
    """Back from the sizes, which are rounded to 0.01 GiB: not told where that is too coarse."""
    size = _nth(own.kv_gib, index)
    if size is None or size < 1:
        return ""
    return f"{size * _GIB / own.kv_tokens[index]:.0f} B"
