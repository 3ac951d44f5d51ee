"""How SGLang will divide a GPU's memory, before it is started.

SGLang measures the memory that is free before it loads anything, calls ``mem_fraction_static`` of it its own, loads
the weights into that, and makes the KV cache of the rest; activations and CUDA graphs live in what is left over. From
0.5.14 on the draft's weights and KV cache come out of the same share, before they came on top of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from service.footprint import Footprint, element_bytes, footprint
from service.installed import Version
from service.model import Model
from service.outcome import Outcome, outcome
from service.spec import ServerSpec

__all__ = ["CONTEXT_BYTES", "EXACTNESS", "Forecast", "forecast", "mem_fraction"]

EXACTNESS = (
    "How exact: in starts on one H200 and on two (SGLang 0.5.17, dense models, mem_fraction_static given or not) the "
    "token count was within 0.2 % of SGLang's own where the free memory was known, and with the GPU to itself within "
    "0.7 % from the GPU's size alone. The KV cache of a token and the state of a request follow SGLang's own formulas; "
    "published logs of models on several GPUs, with sliding windows and with linear attention agree to 0.3 %. Not "
    "checked against a start: quantised weights and weights of real size spread over GPUs (the files' size divided by "
    "the GPUs, which kernels may pad or repack), and a mem_fraction_static that SGLang chooses on other GPUs: expect "
    "some percent. CUDA graphs are a rule of thumb, good to a factor of two; activations are not computed: both have "
    "to live in what stays free."
)
# A CUDA context with torch's first allocations, and what the driver keeps; seen: 1.2 GiB of an H200.
CONTEXT_BYTES = int(1.2 * 2**30)
_MIB = 1 << 20
_MTP_LAYERS = 1
_LEAST_GRAPHS_BYTES = 40 * _MIB
# SGLang's own limit on running requests where nothing sets another.
_MOST_RUNNING = 2048
# SGLang's own mamba_full_memory_ratio: state to KV cache, and how many slots of state a request needs with a cache.
_MAMBA_RATIO = 0.9
_SLOTS_PER_REQUEST = 3


@dataclass(frozen=True, slots=True)
class Forecast:
    """For one GPU. `pool_tokens` is SGLang's ``max_total_num_tokens``; `free_bytes` what is left for activations and
    graphs. `headroom_tokens` is what each running request needs besides its own length."""

    before_bytes: int
    fraction: float
    fraction_given: bool
    target: Footprint
    draft: Footprint | None
    draft_is_inside: bool
    state_pool_bytes: int
    state_slots: int
    pool_tokens: int
    limited_by: str
    free_bytes: int
    graphs_bytes: int
    logits_bytes: int
    numbers: Outcome
    headroom_tokens: int
    remarks: tuple[str, ...]

    def requests(self, length: int) -> int:
        """How many requests of `length` tokens, prompt and answer, can run at a time."""
        fit = self.pool_tokens // (length + self.headroom_tokens)
        caps = [cap for cap in (self.numbers.max_running_requests, self._state_requests()) if cap is not None]
        return max(min(fit, *caps), 0) if caps else max(fit, 0)

    def _state_requests(self) -> int | None:
        return self.state_slots // _SLOTS_PER_REQUEST if self.target.state_bytes else None


def forecast(
    spec: ServerSpec,
    target: Model,
    draft: Model | None,
    *,
    gpu_bytes: int,
    before_bytes: int | None = None,
    version: Version | None = None,
) -> Forecast:
    """`gpu_bytes` is the GPU's memory; `before_bytes` what SGLang will find free, by default all but a CUDA context.

    Raises ``ValueError`` where a configuration lacks a number.
    """
    tp, pp = spec.parallel.tp_size or 1, spec.parallel.pp_size or 1
    attention_dp = (spec.parallel.dp_size or 1) if spec.parallel.enable_dp_attention else 1
    if before_bytes is None:
        before_bytes = gpu_bytes - CONTEXT_BYTES
    numbers = outcome(spec, version, target.architecture)
    size = element_bytes(spec.memory.kv_cache_dtype, target.config, spec.dtype)
    ours = footprint(target, tp_size=tp, pp_size=pp, attention_dp_size=attention_dp, kv_bytes=size)
    theirs = _draft(spec, target, draft, ours, size)
    inside = version is None or version >= (0, 5, 14)
    fraction = spec.memory.mem_fraction_static
    share = (fraction if fraction is not None else mem_fraction(spec, gpu_bytes, version)) * before_bytes
    rest = share - ours.weight_bytes - (theirs.weight_bytes if theirs and inside else 0)
    state_pool, slots, rest = _states(spec, ours, numbers, rest)
    token = ours.kv_bytes_per_token + (theirs.kv_bytes_per_token if theirs and inside else 0)
    reckoned = _reckoned(spec, ours, theirs) if inside else token
    tokens = max(int(rest // reckoned), 0) if reckoned else 0
    page, given = spec.memory.page_size or 1, spec.memory.max_total_tokens
    limited = "mem_fraction_static"
    if given is not None and given < tokens:
        tokens, limited = given, "max_total_tokens"
    tokens = tokens // page * page
    outside = 0 if inside or theirs is None else theirs.weight_bytes + tokens * theirs.kv_bytes_per_token
    used = share - rest + tokens * token + outside
    running = numbers.max_running_requests or 0
    vocabulary = target.number("vocab_size") or 0
    remarks = (*ours.remarks, *(("the draft comes on top of mem_fraction_static in this release",) if outside else ()))
    return Forecast(
        before_bytes=before_bytes,
        fraction=share / before_bytes,
        fraction_given=fraction is not None,
        target=ours,
        draft=theirs,
        draft_is_inside=inside,
        state_pool_bytes=state_pool,
        state_slots=slots,
        pool_tokens=tokens,
        limited_by=limited,
        free_bytes=int(before_bytes - used),
        graphs_bytes=_graphs(spec, gpu_bytes, numbers, drafts=theirs is not None),
        logits_bytes=running * (numbers.num_draft_tokens or 1) * vocabulary * 4,
        numbers=numbers,
        headroom_tokens=_headroom(numbers),
        remarks=remarks,
    )


def _draft(spec: ServerSpec, target: Model, draft: Model | None, ours: Footprint, size: float) -> Footprint | None:
    name = spec.speculative.algorithm
    if name in (None, "NGRAM", "UNO"):
        return None
    own = spec.speculative.draft_kv_cache_dtype
    if draft is not None and draft.path != target.path:
        tp = spec.parallel.tp_size or 1
        return footprint(draft, tp_size=tp, kv_bytes=element_bytes(own, draft.config) if own else size)
    # The target's own draft layers: part of its files, a layer's KV cache more. SGLang loads the embedding and the head
    # once more for them, and shares them only after the pool is sized.
    layer = ours.kv_bytes_per_token // ours.attention_layers if ours.attention_layers else 0
    layers = target.number("num_nextn_predict_layers") or _MTP_LAYERS
    count = min(layers, _MTP_LAYERS)
    again = 2 * (target.number("vocab_size") or 0) * (target.number("hidden_size") or 0) * 2
    return replace(
        ours,
        weight_bytes=again // (spec.parallel.tp_size or 1),
        kv_bytes_per_token=layer * count,
        state_bytes=0,
        attention_layers=count,
    )


def _reckoned(spec: ServerSpec, ours: Footprint, theirs: Footprint | None) -> float:
    """What SGLang takes a token for when it sizes the pool: an EAGLE or STANDALONE draft's layer for as large as the
    target's, whatever it is."""
    if theirs is None or not ours.attention_layers:
        return ours.kv_bytes_per_token
    if spec.speculative.algorithm in ("DFLASH", "DSPARK"):
        return ours.kv_bytes_per_token + theirs.kv_bytes_per_token
    return ours.kv_bytes_per_token * (1 + theirs.attention_layers / ours.attention_layers)


def _states(spec: ServerSpec, ours: Footprint, numbers: Outcome, rest: float) -> tuple[int, int, float]:
    """Bytes and slots for states, and what remains for the KV cache. With speculation each running request keeps one
    state more for every draft token, until it is known which of them holds."""
    if not ours.state_bytes:
        return 0, 0, rest
    tokens = (numbers.num_draft_tokens or 0) if spec.speculative.algorithm else 0
    running = numbers.max_running_requests or _MOST_RUNNING
    ratio = spec.memory.mamba_full_memory_ratio or _MAMBA_RATIO
    if spec.memory.max_mamba_cache_size is not None:
        slots = spec.memory.max_mamba_cache_size
    else:
        budget = rest * ratio / (1 + ratio)
        slots = int(
            (budget - ours.state_bytes * (1 + tokens)) // (ours.state_bytes * (1 + tokens / _SLOTS_PER_REQUEST))
        )
    slots = max(slots, 0)
    capped = min(running, slots // _SLOTS_PER_REQUEST)
    taken = ours.state_bytes * (slots + 1 + ((capped + 1) * tokens if tokens else 0))
    return taken, slots, rest - taken


def _graphs(spec: ServerSpec, gpu_bytes: int, numbers: Outcome, *, drafts: bool) -> int:
    """By SGLang's own rule of thumb, 2 MiB for each request of the largest batch, and what was seen at least. A draft
    model has graphs for its steps and for what it takes over from the target, besides those of the target."""
    if spec.disable_cuda_graph or spec.device == "cpu":
        return 0
    _, batch = _by_size(gpu_bytes / _MIB, spec.parallel.tp_size or 1)
    batch = spec.memory.cuda_graph_max_bs_decode or spec.memory.cuda_graph_max_bs or batch
    each = max(_LEAST_GRAPHS_BYTES, 2 * _MIB * min(batch, numbers.max_running_requests or batch))
    return each * (3 if drafts else 1)


def _headroom(numbers: Outcome) -> int:
    """Tokens that a request has in the pool while its drafts are being made and verified."""
    if numbers.num_draft_tokens is None:
        return 0
    return max((numbers.num_steps or 0) * (numbers.eagle_topk or 1), numbers.num_draft_tokens)


def mem_fraction(spec: ServerSpec, gpu_bytes: int, version: Version | None = None) -> float:
    """What SGLang takes for ``mem_fraction_static`` where it is not given, by the GPU's size."""
    mib = gpu_bytes / _MIB
    ranks = (spec.parallel.tp_size or 1) * (spec.parallel.pp_size or 1)
    if version is not None and version < (0, 5, 0):
        sizes = ((35, 2.8 + ranks / 10), (90, 9.5 + ranks / 2), (160, 12 + ranks / 2), (float("inf"), 32))
        reserved = next(gib for limit, gib in sizes if mib < limit * 1024) * 1024
        reserved += 2048 if spec.speculative.algorithm else 0
        return round((mib - reserved) / mib, 3)
    chunk, batch = _by_size(mib, spec.parallel.tp_size or 1)
    chunk = spec.memory.chunked_prefill_size or chunk
    batch = spec.memory.cuda_graph_max_bs_decode or spec.memory.cuda_graph_max_bs or batch
    batch = min(batch, spec.memory.max_running_requests or batch)
    reserved = 512 + 1.5 * max(chunk, 2048) + ranks / 8 * 1024 + (0 if spec.disable_cuda_graph else 2 * batch)
    if mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if version is not None and version < (0, 5, 14):
        reserved += {"STANDALONE": 6, "EAGLE": 2, "EAGLE3": 2, "NEXTN": 2}.get(
            spec.speculative.algorithm or "", 0
        ) * 1024
    return round((mib - reserved) / mib, 3)


def _by_size(mib: float, tp_size: int) -> tuple[int, int]:
    """SGLang's chunked_prefill_size and its largest batch with a CUDA graph, for a GPU of that size."""
    table = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
    for gib, chunk, few, many in table:
        if mib < gib * 1024:
            return chunk, few if tp_size < 4 else many
    return 16384, 512
