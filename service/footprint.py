"""What a model takes of each GPU's memory: its weights, its KV cache for each token, its state for each request.

From configuration and tensor sizes, by the formulas of SGLang's memory pools. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.model import Model

__all__ = ["Footprint", "element_bytes", "footprint"]

_BYTES = {
    "float32": 4, "fp32": 4, "float16": 2, "half": 2, "bfloat16": 2, "bf16": 2,
    "fp8_e5m2": 1, "fp8_e4m3": 1, "mxfp8": 1, "nvfp4": 0.5, "fp4_e2m1": 0.5, "fp4_mx_block16": 0.5,
}  # fmt: skip
# For these SGLang (0.5.9 and later) keeps fewer tokens in the layers with a sliding window than in the others; all
# other models have every token in every layer.
_SLIDING = frozenset(
    {
        "GptOssForCausalLM", "GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM", "IQuestQ1ForCausalLM",
        "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Llama4ForConditionalGeneration", "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration", "LagunaForCausalLM", "MellumForCausalLM",
    }
)  # fmt: skip
# SGLang's own --swa-full-tokens-ratio.
_SLIDING_TOKENS = 0.8
# DeepSeek's sparse attention (DSA): numbers of a key of its index that share a scale of four bytes.
_INDEX_BLOCK = 128
# One character a layer in Nemotron-H's hybrid_override_pattern.
_PATTERN = {"*": "attention", "M": "linear"}


@dataclass(frozen=True, slots=True)
class Footprint:
    """`state_bytes` is what one request needs in the layers without a KV cache (mamba, linear attention), 0 mostly.

    `remarks` say where the formula is only near.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    state_bytes: int
    attention_layers: int
    remarks: tuple[str, ...] = ()


def element_bytes(kv_cache_dtype: str | None, config: Mapping[str, Any], dtype: str | None = None) -> float:
    """The size of one number in the KV cache: as asked for, or that of the model's own numbers."""
    name = kv_cache_dtype if kv_cache_dtype not in (None, "auto") else None
    if name is None:
        own = dtype if dtype not in (None, "auto") else config.get("torch_dtype") or config.get("dtype") or "bfloat16"
        # SGLang serves float32 models in half precision unless it is told otherwise.
        name = "bfloat16" if own == "float32" and dtype in (None, "auto") else str(own)
    return _BYTES.get(str(name).removeprefix("torch."), 2)


def footprint(
    model: Model, *, tp_size: int = 1, pp_size: int = 1, attention_dp_size: int = 1, kv_bytes: float = 2
) -> Footprint:
    """The share of one GPU of `tp_size` x `pp_size`, where `attention_dp_size` copies of the attention are among the
    `tp_size`. Raises ``ValueError`` where the configuration lacks a number."""
    kinds = _layers(model)
    attention, sliding, linear = (sum(one == kind for one in kinds) for kind in ("attention", "sliding", "linear"))
    attention_tp = max(tp_size // attention_dp_size, 1)
    per_token = _kv_per_layer(model, attention_tp, kv_bytes) * attention if attention else 0.0
    remarks = []
    if sliding and model.architecture in _SLIDING:
        per_token += _SLIDING_TOKENS * _kv_per_layer(model, attention_tp, kv_bytes, "swa_") * sliding
        remarks.append(f"layers with a sliding window keep {_SLIDING_TOKENS} of the tokens (swa_full_tokens_ratio)")
    elif sliding:
        per_token += _kv_per_layer(model, attention_tp, kv_bytes) * sliding
    if attention_dp_size > 1:
        remarks.append("with DP attention each GPU has more of the attention's weights than is counted here")
    if pp_size > 1:
        remarks.append("layers are taken as evenly spread over the pipeline")
    stages = 1 if pp_size < 1 else pp_size
    return Footprint(
        weight_bytes=-(-model.weight_bytes // (tp_size * stages)),
        kv_bytes_per_token=round(per_token / stages),
        state_bytes=round(_state_per_layer(model, attention_tp) * linear / stages) if linear else 0,
        attention_layers=attention + sliding,
        remarks=tuple(remarks),
    )


def _layers(model: Model) -> list[str]:
    """``attention``, ``sliding`` or ``linear`` for each layer."""
    config = model.config
    pattern, windows = config.get("hybrid_override_pattern"), config.get("hybrid_layer_pattern")
    if isinstance(pattern, str):
        return [_PATTERN.get(letter, "other") for letter in pattern]
    if isinstance(windows, list):  # MiMo
        return ["sliding" if window else "attention" for window in windows]
    listed = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(listed, list):
        return [_kind(str(entry)) for entry in listed]
    count = _need(model, "num_hidden_layers", "n_layer", "num_layers")
    interval = model.number("full_attention_interval")
    if interval and model.number("linear_num_value_heads"):
        return ["attention" if (layer + 1) % interval == 0 else "linear" for layer in range(count)]
    return ["attention"] * count


def _kind(name: str) -> str:
    if "sliding" in name or "chunked" in name:
        return "sliding"
    return "linear" if any(word in name for word in ("linear", "mamba", "conv", "recurrent")) else "attention"


def _kv_per_layer(model: Model, tp_size: int, kv_bytes: float, kind: str = "") -> float:
    """`kind` is the prefix of the keys that hold for layers of that kind, where there are any."""
    rank, rope = model.number("kv_lora_rank"), model.number("qk_rope_head_dim") or 0
    if rank and (index := model.number("index_head_dim")):  # DSA: beside it the keys of its index, in fp8
        latent = rank + rank // _INDEX_BLOCK * 4 + rope * 2 if kv_bytes == 1 else (rank + rope) * kv_bytes
        return latent + index + index // _INDEX_BLOCK * 4
    if rank:  # MLA: one compressed vector for all heads, whole on every GPU
        return (rank + rope) * kv_bytes
    heads = _need(model, "num_attention_heads", "n_head")
    kv_heads = (
        model.number(f"{kind}num_key_value_heads", "num_key_value_heads", "num_kv_heads", "multi_query_group_num")
        or heads
    )
    dim = model.number(f"{kind}head_dim", "head_dim") or _need(model, "hidden_size", "n_embd") // heads
    value_dim = model.number(f"{kind}v_head_dim", "v_head_dim") or dim
    # Fewer heads than GPUs are kept several times.
    return max(-(-kv_heads // tp_size), 1) * (dim + value_dim) * kv_bytes


def _state_per_layer(model: Model, tp_size: int) -> float:
    """A causal convolution's last inputs (bfloat16) and the state (float32 unless the configuration says otherwise)."""
    state_bytes = _BYTES.get(str(model.config.get("mamba_ssm_dtype") or "float32"), 4)
    if heads := model.number("linear_num_value_heads"):
        key_heads, key_dim = _need(model, "linear_num_key_heads"), _need(model, "linear_key_head_dim")
        dim, size = _need(model, "linear_value_head_dim"), key_dim
        channels, kernel = heads * dim + 2 * key_heads * key_dim, _need(model, "linear_conv_kernel_dim")
    else:
        heads = _need(model, "mamba_num_heads", "mamba_n_heads")
        dim, size = _need(model, "mamba_head_dim", "mamba_d_head"), _need(model, "ssm_state_size", "mamba_d_state")
        groups = model.number("n_groups", "mamba_n_groups") or 1
        channels, kernel = heads * dim + 2 * groups * size, _need(model, "conv_kernel", "mamba_d_conv")
    return channels / tp_size * (kernel - 1) * 2 + heads / tp_size * dim * size * state_bytes


def _need(model: Model, *keys: str) -> int:
    value = model.number(*keys)
    if value is None:
        raise ValueError(f"{model.path}/config.json has no {keys[0]}")
    return value
