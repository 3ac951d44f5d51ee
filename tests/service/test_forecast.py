"""The memory forecast: its arithmetic, and real starts of SGLang 0.5.17 on an H200 whose figures it has to meet.

The lines are as SGLang prints them, of a Llama of 8 layers (hidden size 512) and drafts for it.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.footprint import footprint
from service.forecast import forecast, mem_fraction
from service.load import parse
from service.model import Model, read
from service.observed import Observed, observed
from service.spec import ServerSpec
from tests.service.models import Shapes, config, write

GIB = 2**30
H200_BYTES = 143771 << 20
WIDTH, VOCABULARY = 512, 2048
LAYER = {"q": (512, 512), "k": (512, 512), "v": (512, 512), "o": (512, 512), "up": (2048, 512), "down": (512, 1024)}


def big(folder: Path, architecture: str, layers: int, **more: tuple[int, ...]) -> Model:
    """A model with the sizes of those on the H200."""
    sizes = {"hidden_size": WIDTH, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
    made = config(architecture, **sizes, num_hidden_layers=layers, vocab_size=VOCABULARY)
    shapes: Shapes = {f"layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in LAYER.items()}
    return read(write(folder, made, shapes | {f"{name}.weight": shape for name, shape in more.items()}))


@pytest.fixture
def target(tmp_path: Path) -> Model:
    return big(tmp_path / "t", "LlamaForCausalLM", 8, embed=(VOCABULARY, WIDTH), lm_head=(VOCABULARY, WIDTH))


def spec(speculative: str = "", memory: str = "mem_fraction_static = 0.6\nmax_running_requests = 16") -> ServerSpec:
    text = f"model_path = '/m'\n[memory]\n{memory}\n"
    return parse(f"{text}[speculative]\n{speculative}".encode(), Path("/s/demo.toml"))


def log(tokens: int, *pools: tuple[str, str], after: str) -> list[str]:
    lines = ["[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/m')"]
    used = "139.13"
    for _ in pools:
        lines.append(f"[2026-11-29 10:00:09] Load weight begin. avail mem={used} GB")
        lines.append(
            "[2026-11-29 10:00:09] Load weight end. elapsed=0.15 s, type=X, avail mem=139.07 GB, mem usage=0.05 GB."
        )
    for k, v in pools:
        lines.append(
            f"[2026-11-29 10:00:10] KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, "
            f"K size: {k} GB, V size: {v} GB"
        )
    lines += [
        f"[2026-11-29 10:00:12] Capture {runner} CUDA graph end. elapsed=1 s, mem usage=0.04 GB, avail mem={after} GB."
        for runner in ("target verify", "draft decode", "draft extend")[: 1 if len(pools) == 1 else 3]
    ]
    lines.append(
        f"[2026-11-29 10:00:12] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests=16, context_len=16384, available_gpu_mem={after} GB"
    )
    return lines


EAGLE = "algorithm = 'EAGLE'\ndraft_model_path = '/d'\nnum_steps = {}\neagle_topk = 1"
NGRAM = "algorithm = 'NGRAM'\nnum_draft_tokens = 8"
RUNS = {
    "none": ("", 0, log(5465509, ("41.70", "41.70"), after="55.23")),
    "ngram": (NGRAM, 0, log(5465509, ("41.70", "41.70"), after="55.23")),
    "eagle, 3 steps": (EAGLE.format(3), 1, log(4856979, ("37.06", "37.06"), ("4.63", "4.63"), after="55.20")),
    "eagle, 10 steps": (EAGLE.format(10), 1, log(4856979, ("37.06", "37.06"), ("4.63", "4.63"), after="55.16")),
    "eagle3": (
        EAGLE.format(3).replace("EAGLE", "EAGLE3"),
        1,
        log(4856979, ("37.06", "37.06"), ("4.63", "4.63"), after="55.18"),
    ),
    "standalone": (
        EAGLE.format(3).replace("EAGLE", "STANDALONE"),
        2,
        log(4371281, ("33.35", "33.35"), ("8.34", "8.34"), after="55.20"),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_real_start_is_met(name: str, target: Model, tmp_path: Path) -> None:
    speculative, draft_layers, lines = RUNS[name]
    draft = big(tmp_path / "d", "LlamaForCausalLM", draft_layers) if draft_layers else None
    own = observed(lines)
    assert own.max_total_num_tokens is not None
    assert own.before_gib is not None
    assert own.available_gib is not None
    known = {"gpu_bytes": H200_BYTES, "version": (0, 5, 17)}
    made = forecast(spec(speculative), target, draft, before_bytes=int(own.before_gib * GIB), **known)
    assert made.pool_tokens == pytest.approx(own.max_total_num_tokens, rel=0.001)
    assert made.target.kv_bytes_per_token * made.pool_tokens / GIB == pytest.approx(own.kv_gib[0], rel=0.001)
    if made.draft is not None:
        assert made.draft.kv_bytes_per_token * made.pool_tokens / GIB == pytest.approx(own.kv_gib[1], abs=0.02)
    # Activations and graphs live in it: the forecast is what they begin with.
    assert own.available_gib == pytest.approx(made.free_bytes / GIB, abs=0.6)
    assert own.graphs_gib / made.graphs_bytes * GIB == pytest.approx(1, abs=0.7)
    # From the GPU's size alone.
    blind = forecast(spec(speculative), target, draft, **known)
    assert blind.pool_tokens == pytest.approx(own.max_total_num_tokens, rel=0.005)


def test_real_start_with_a_fraction_that_sglang_chose(target: Model, tmp_path: Path) -> None:
    """The same machine: STANDALONE, nothing given but 64 requests and graphs up to 8; avail mem=139.13 GB, then
    max_total_num_tokens=6633585."""
    draft = big(tmp_path / "d", "LlamaForCausalLM", 2)
    memory = "max_running_requests = 64\ncuda_graph_max_bs_decode = 8"
    made = forecast(spec(EAGLE.format(3).replace("EAGLE", "STANDALONE"), memory), target, draft,
                    gpu_bytes=H200_BYTES, before_bytes=int(139.13 * GIB), version=(0, 5, 17))  # fmt: skip
    assert not made.fraction_given
    assert made.pool_tokens == pytest.approx(6633585, rel=0.001)


def test_real_start_beside_a_stranger(target: Model, tmp_path: Path) -> None:
    """The same machine, of which another process held 118 GiB: avail mem=21.43 GB, mem_fraction_static 0.9, EAGLE3,
    then max_total_num_tokens=1118758, available_gpu_mem=1.84 GB."""
    draft = big(tmp_path / "d", "LlamaForCausalLM", 1)
    memory = "mem_fraction_static = 0.9\nmax_running_requests = 16"
    made = forecast(spec(EAGLE.format(3).replace("EAGLE", "EAGLE3"), memory), target, draft,
                    gpu_bytes=H200_BYTES, before_bytes=int(21.43 * GIB), version=(0, 5, 17))  # fmt: skip
    assert made.pool_tokens == pytest.approx(1118758, rel=0.002)
    assert made.free_bytes / GIB == pytest.approx(1.84, abs=0.4)


KV = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9663304"
TWO_RANKS = f"""\
[2026-11-29 10:02:03] server_args=ServerArgs(model_path='/m', tp_size=2)
[2026-11-29 10:02:13 TP1] Load weight begin. avail mem=138.31 GB
[2026-11-29 10:02:13 TP1] Load weight end. elapsed=0.1 s, type=LlamaForCausalLM, avail mem=138.27 GB, mem usage=0.05 GB.
[2026-11-29 10:02:13 TP0] Load weight begin. avail mem=138.31 GB
[2026-11-29 10:02:13 TP0] Load weight end. elapsed=0.1 s, type=LlamaForCausalLM, avail mem=138.27 GB, mem usage=0.04 GB.
[2026-11-29 10:02:13 TP0] Load weight begin. avail mem=138.27 GB
loading shards:   0% Completed | 0/1 [00:00<?, ?it/s][2026-11-29 10:02:13 TP1] Load weight end. elapsed=0.01 s, \
type=LlamaForCausalLMEagle3, avail mem=138.27 GB, mem usage=0.05 GB.
[2026-11-29 10:02:13 TP0] Load weight end. elapsed=0.01 s, type=LlamaForCausalLMEagle3, avail mem=138.27 GB, \
mem usage=0.01 GB.
[2026-11-29 10:02:14 TP1] {KV}, K size: 36.86 GB, V size: 36.86 GB
[2026-11-29 10:02:14 TP1] {KV}, K size: 4.61 GB, V size: 4.61 GB
[2026-11-29 10:02:14 TP0] {KV}, K size: 36.86 GB, V size: 36.86 GB
[2026-11-29 10:02:14 TP0] {KV}, K size: 4.61 GB, V size: 4.61 GB
[2026-11-29 10:02:15 TP1] Capture target verify CUDA graph end. elapsed=1.40 s, mem usage=0.05 GB, avail mem=54.64 GB.
[2026-11-29 10:02:15 TP0] Capture target verify CUDA graph end. elapsed=1.37 s, mem usage=0.05 GB, avail mem=54.64 GB.
[2026-11-29 10:02:21 TP0] max_total_num_tokens=9663304, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=16, context_len=16384, available_gpu_mem=54.54 GB
"""


def test_real_start_on_two_gpus(target: Model, tmp_path: Path) -> None:
    """Two such GPUs, tp_size 2, EAGLE3: the ranks write in turn, and rank 0's figures count."""
    own = observed(TWO_RANKS.splitlines())
    assert own == Observed(
        before_gib=138.31, weights_gib=[0.04, 0.01], kv_gib=[73.72, 9.22], kv_tokens=[9663304, 9663304],
        graphs_gib=0.05, max_total_num_tokens=9663304, max_running_requests=16, available_gib=54.54,
    )  # fmt: skip
    draft = big(tmp_path / "d", "LlamaForCausalLM", 1)
    memory = "mem_fraction_static = 0.6\nmax_running_requests = 16\n[parallel]\ntp_size = 2"
    made = forecast(spec(EAGLE.format(3).replace("EAGLE", "EAGLE3"), memory), target, draft,
                    gpu_bytes=H200_BYTES, before_bytes=int(138.31 * GIB), version=(0, 5, 17))  # fmt: skip
    assert made.pool_tokens == pytest.approx(9663304, rel=0.001)
    assert made.target.kv_bytes_per_token * made.pool_tokens / GIB == pytest.approx(73.72, rel=0.001)
    assert made.target.weight_bytes / GIB == pytest.approx(0.02, abs=0.02)
    assert made.free_bytes / GIB == pytest.approx(54.54, abs=1.0)


def test_older_release_puts_the_draft_on_top(target: Model, tmp_path: Path) -> None:
    draft = big(tmp_path / "d", "LlamaForCausalLMEagle", 1)
    old = forecast(spec(EAGLE.format(3)), target, draft, gpu_bytes=H200_BYTES, version=(0, 5, 10))
    new = forecast(spec(EAGLE.format(3)), target, draft, gpu_bytes=H200_BYTES, version=(0, 5, 14))
    assert old.pool_tokens == pytest.approx(new.pool_tokens * 9 / 8, rel=0.001)
    assert old.free_bytes == pytest.approx(new.free_bytes - old.pool_tokens * 2048, rel=0.001)
    assert "the draft comes on top of mem_fraction_static in this release" in old.remarks


def test_given_tokens_limit_the_pool(target: Model) -> None:
    made = forecast(spec("", "mem_fraction_static = 0.6\nmax_total_tokens = 1000\npage_size = 64"), target, None,
                    gpu_bytes=H200_BYTES)  # fmt: skip
    assert (made.pool_tokens, made.limited_by) == (960, "max_total_tokens")


def test_more_steps_take_more_of_each_request(target: Model, tmp_path: Path) -> None:
    draft = big(tmp_path / "d", "LlamaForCausalLMEagle", 1)
    tokens = "mem_fraction_static = 0.6\nmax_total_tokens = 16000\nmax_running_requests = 64"
    five, ten = (forecast(spec(EAGLE.format(steps), tokens), target, draft, gpu_bytes=H200_BYTES) for steps in (5, 10))
    assert (five.headroom_tokens, ten.headroom_tokens) == (6, 11)
    assert (five.requests(1000), ten.requests(1000)) == (15, 15)
    assert (five.requests(244), ten.requests(244)) == (64, 62)
    assert ten.logits_bytes == 64 * 11 * VOCABULARY * 4


def model(**keys: object) -> Model:
    return Model(Path("/m"), "X", keys, {}, 1000)


def test_grouped_heads_are_spread_and_then_repeated() -> None:
    llama = model(num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096)
    assert footprint(llama, tp_size=1).kv_bytes_per_token == 2 * 2 * 8 * 128 * 2
    assert footprint(llama, tp_size=4).kv_bytes_per_token == 2 * 2 * 2 * 128 * 2
    assert footprint(llama, tp_size=16).kv_bytes_per_token == 2 * 2 * 1 * 128 * 2
    assert footprint(llama, tp_size=4).weight_bytes == 250


def test_compressed_cache_is_whole_on_every_gpu() -> None:
    deepseek = model(num_hidden_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, num_attention_heads=128)
    assert footprint(deepseek, tp_size=8).kv_bytes_per_token == 61 * 576 * 2
    assert footprint(deepseek, tp_size=8, kv_bytes=1).kv_bytes_per_token == 61 * 576


# Qwen3-Next's own numbers.
HYBRID = {
    "num_hidden_layers": 48, "full_attention_interval": 4, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
}  # fmt: skip


def test_hybrid_model_has_a_state_beside_its_cache() -> None:
    one = footprint(model(**HYBRID))
    assert one.attention_layers == 12
    assert one.kv_bytes_per_token == 12 * 2 * 2 * 256 * 2
    assert one.state_bytes == 36 * ((32 * 128 + 2 * 16 * 128) * 3 * 2 + 32 * 128 * 128 * 4)


NEMOTRON = {
    "hybrid_override_pattern": "M" * 27 + "*-", "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "tp_size", "state_bytes"),
    [(HYBRID, 1, 77266944), (HYBRID, 4, 19316736), (NEMOTRON, 1, 114905088), (NEMOTRON, 4, 28726272)],
)
def test_state_is_as_large_as_sglang_says(keys: dict[str, object], tp_size: int, state_bytes: int) -> None:
    """The numbers are those of SGLang 0.5.23's own ``mamba_cache_per_req`` for these configurations."""
    assert footprint(model(**keys), tp_size=tp_size).state_bytes == state_bytes


# What SGLang printed for models on several GPUs, in public reports. Sizes are GiB, for one GPU.

QWEN3_235B = {"num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128}
MIMO_V2 = {
    "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
    "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
    "hybrid_layer_pattern": [0] * 9 + [1] * 39,
}  # fmt: skip
QWEN35_397B = {
    "num_hidden_layers": 60, "full_attention_interval": 4, "num_attention_heads": 32, "num_key_value_heads": 2,
    "head_dim": 256, "linear_num_value_heads": 64, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320, "hidden_size": 4096,
}  # fmt: skip


def test_heads_on_four_gpus_as_sglang_sized_them() -> None:
    """Qwen3-235B-A22B-FP8, tp 4: #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB."""
    token = footprint(model(**QWEN3_235B), tp_size=4).kv_bytes_per_token
    assert token * 367404 / GIB == pytest.approx(8.23 + 8.23, abs=0.01)


def test_sliding_windows_as_sglang_sized_them() -> None:
    """MiMo-V2-Flash, tp 4: full_layer_tokens=375360, swa_layer_tokens=300288; the pool of the windows has K size: 8.38
    GB, V size: 5.59 GB. With 1496958 tokens in both, the other layers' has K size: 4.82 GB, V size: 3.21 GB."""
    mimo = Model(Path("/m"), "MiMoV2FlashForCausalLM", MIMO_V2, {}, 1000)
    windows, others = (8.38 + 5.59) / 300288, (4.82 + 3.21) / 1496958
    made = footprint(mimo, tp_size=4)
    assert made.attention_layers == 48
    assert made.kv_bytes_per_token / GIB == pytest.approx(others + 0.8 * windows, rel=0.003)
    # An architecture for which SGLang has no second pool keeps every token everywhere.
    plain = footprint(Model(Path("/m"), "X", MIMO_V2 | {"swa_num_key_value_heads": 4}, {}, 1000), tp_size=4)
    assert plain.kv_bytes_per_token == 48 * (192 + 128) * 2


def test_states_of_linear_attention_as_sglang_sized_them() -> None:
    """Qwen3.5-397B-A17B, tp 2: max_mamba_cache_size: 82, conv_state size: 0.13GB, ssm_state size: 7.29GB, then
    #tokens: 580364, K size: 4.15 GB, V size: 4.15 GB: what was left after 3.76 GB of weights is known by that."""
    qwen = Model(Path("/m"), "Qwen3_5MoeForConditionalGeneration", QWEN35_397B, {}, int(2 * 3.76 * GIB))
    text = "model_path = '/m'\n[parallel]\ntp_size = 2\n[memory]\nmem_fraction_static = 0.5\nmax_running_requests = 1\n"
    before = int((3.76 + 0.13 + 7.29 + 4.15 + 4.15) * GIB / 0.5)
    made = forecast(parse(text.encode(), Path("/s/demo.toml")), qwen, None, gpu_bytes=before, before_bytes=before)
    assert made.state_slots == 82
    assert made.state_pool_bytes / GIB == pytest.approx(0.13 + 7.29, abs=0.02)
    assert made.pool_tokens == pytest.approx(580364, rel=0.003)


def test_index_of_sparse_attention_is_kept_beside_the_cache() -> None:
    """DeepSeek-V3.2's own numbers, by SGLang 0.5.23's calculate_mla_kv_cache_dim, and the index's key and scale."""
    sparse = model(
        num_hidden_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, index_head_dim=128, num_attention_heads=1
    )
    assert footprint(sparse, tp_size=8).kv_bytes_per_token == 61 * (576 * 2 + 132)
    assert footprint(sparse, tp_size=8, kv_bytes=1).kv_bytes_per_token == 61 * (512 + 16 + 128 + 132)


def test_attention_of_data_parallel_groups_has_fewer_gpus() -> None:
    llama = model(num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096)
    made = footprint(llama, tp_size=8, attention_dp_size=4)
    assert made.kv_bytes_per_token == 2 * 2 * 4 * 128 * 2
    assert any("DP attention" in remark for remark in made.remarks)


def test_own_draft_layers_bring_embedding_and_head_once_more() -> None:
    """Qwen3.6-27B: mem usage=28.39 GB for the target, 5.18 GB for its MTP layer, of which 0.44 are that layer's own."""
    keys = {"num_hidden_layers": 64, "num_attention_heads": 24, "head_dim": 256, "num_key_value_heads": 4}
    qwen = Model(Path("/m"), "X", keys | {"vocab_size": 248320, "hidden_size": 5120}, {}, int(28.83 * GIB))
    made = forecast(spec("algorithm = 'NEXTN'\nnum_steps = 3\neagle_topk = 1"), qwen, None, gpu_bytes=H200_BYTES)
    assert made.draft is not None
    assert made.draft.weight_bytes / GIB == pytest.approx(5.18 - 0.44, abs=0.01)


def test_pool_is_sized_as_if_the_draft_s_layers_were_the_target_s(target: Model, tmp_path: Path) -> None:
    """So does SGLang's DefaultPoolConfigurator; what the draft's cache really takes is its own."""
    draft = big(tmp_path / "d", "LlamaForCausalLMEagle", 1)
    narrow = Model(draft.path, draft.architecture, {**draft.config, "num_key_value_heads": 2}, {}, draft.weight_bytes)
    same, other = (forecast(spec(EAGLE.format(3)), target, d, gpu_bytes=H200_BYTES) for d in (draft, narrow))
    assert other.pool_tokens == same.pool_tokens
    assert other.free_bytes > same.free_bytes


def test_speculation_on_a_hybrid_model_takes_states_for_every_draft_token() -> None:
    hybrid = model(**HYBRID, vocab_size=1000)
    plain = forecast(spec(), hybrid, None, gpu_bytes=H200_BYTES)
    five, ten = (forecast(spec(f"algorithm = 'EAGLE'\nnum_steps = {n}\neagle_topk = 1"), hybrid, None,
                          gpu_bytes=H200_BYTES) for n in (5, 10))  # fmt: skip
    assert plain.state_slots > five.state_slots > ten.state_slots > 0
    assert plain.state_pool_bytes == plain.target.state_bytes * (plain.state_slots + 1)


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({"hybrid_override_pattern": "MM*-M"}, 1),
        ({"layer_types": ["linear_attention", "full_attention", "full_attention"]}, 2),
        ({"layer_types": ["sliding_attention", "full_attention"]}, 2),
    ],
)
def test_layers_that_keep_tokens(keys: dict[str, object], kinds: int) -> None:
    heads = {"num_attention_heads": 4, "head_dim": 16, "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8,
             "conv_kernel": 4}  # fmt: skip
    names = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
             "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4}  # fmt: skip
    more = names if "layer_types" in keys else {}
    assert footprint(model(**heads, **more, **keys)).attention_layers == kinds


def test_configuration_without_its_numbers() -> None:
    with pytest.raises(ValueError, match=r"^/m/config\.json has no num_hidden_layers$"):
        footprint(model())


@pytest.mark.parametrize(
    ("memory_gib", "version", "fraction"),
    [
        (140.4, (0, 5, 23), 0.908),  # chunks of 8192, graphs to 48 with speculation: more than 10 GiB reserved
        (23.5, (0, 5, 23), 0.72),
        (79.6, (0, 4, 10), 0.849),
    ],
)
def test_own_choice_of_the_fraction(memory_gib: float, version: tuple[int, int, int], fraction: float) -> None:
    chosen = mem_fraction(spec(EAGLE.format(3), ""), int(memory_gib * GIB), version)
    assert chosen == pytest.approx(fraction, abs=0.02)


def test_log_of_several_starts_gives_the_last() -> None:
    lines = [*log(7, ("1.00", "1.00"), after="1.00"), *log(9, ("2.00", "2.00"), after="3.00")]
    own = observed(lines)
    assert (own.max_total_num_tokens, own.kv_gib, own.available_gib) == (9, [4.0], 3.0)


def test_log_without_figures() -> None:
    assert observed(["nothing", "of it"]) == Observed()


def test_plan_is_printed_beside_the_runs_own_figures(target: Model, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join(RUNS["none"][2]))
    (tmp_path / "demo.toml").write_text(f"model_path = '{target.path}'\n[memory]\nmem_fraction_static = 0.6\n")
    argv = ["plan", str(tmp_path / "demo.toml"), "--gpu-memory", "141G", "--log", str(tmp_path / "log")]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 0, result.output
    (token,) = [line.split()[-4:] for line in result.output.splitlines() if line.startswith("KV cache for one token")]
    assert token == ["16384", "B", "16385", "B"]
    (tokens,) = [line.split()[-2:] for line in result.output.splitlines() if line.startswith("tokens in the KV cache")]
    assert int(tokens[0]) == pytest.approx(int(tokens[1]), rel=0.001)
    assert "How exact: " in result.output


def test_plan_tells_what_more_steps_change(target: Model, tmp_path: Path) -> None:
    draft = big(tmp_path / "d", "LlamaForCausalLMEagle", 1)
    toml = f"model_path = '{target.path}'\n[speculative]\nalgorithm = 'EAGLE'\ndraft_model_path = '{draft.path}'\n"
    (tmp_path / "demo.toml").write_text(toml + "num_steps = 5\neagle_topk = 1\n")
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "demo.toml"), "--gpu-memory", "80G", "--steps", "10"])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["draft", "tokens", "6", "11"] in rows


def test_plan_without_the_model(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text("model_path = 'org/name'\n")
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "demo.toml"), "--gpu-memory", "80G"])
    assert result.exit_code == 1
    assert "org/name is not on this machine" in result.output
