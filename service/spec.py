"""``ServerSpec``: one SGLang server as ``/etc/inquest/servers/<name>.toml`` describes it.

One rule gives every key its meaning: a key is the option of ``sglang.launch_server`` with the same name, and in
the table ``[speculative]`` with ``speculative_`` in front of it. ``None`` leaves the option out, so that SGLang's
own default holds, whatever its version. The other tables are ``[limits]`` (systemd), ``[env]`` (environment
variables) and ``extra_args`` for whatever option has no key here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from service.fields import AbsolutePath, Duration, EnvValue, ModelRef, Port, Size, Text

__all__ = ["ALGORITHMS", "Limits", "Memory", "Parallel", "ServerSpec", "Speculative", "valid_name"]

# Enough for "qwen2.5-7b_eagle"; no '@' (a template), no '\\' or ':' (escapes), no leading '.' (hidden) or '-'.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# systemd and Inquest set these for the unit's own processes; a fixed value would make them lie.
_ENV_RESERVED = {
    "NOTIFY_SOCKET", "MAINPID", "INVOCATION_ID", "SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS", "JOURNAL_STREAM",
}  # fmt: skip

# As SGLang 0.5.23 knows them; from 0.5.12 on a plugin may register others.
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP")


def _as_sglang_spells_it(algorithm: str) -> str:
    """Releases before 0.5.12 take only capitals; a plugin's name is left as it is."""
    return algorithm.upper() if algorithm.upper() in ALGORITHMS else algorithm


Algorithm = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$"), AfterValidator(_as_sglang_spells_it)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


def valid_name(name: str) -> bool:
    """Whether `name` can name a server: it becomes part of a unit's name and of journal fields."""
    return _NAME.fullmatch(name) is not None


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Speculative(_Table):
    """``[speculative]``: options of SGLang that begin with ``--speculative-``."""

    algorithm: Algorithm | None = None
    draft_model_path: ModelRef | None = None
    draft_model_revision: Text | None = None
    draft_load_format: Text | None = None
    draft_model_quantization: Text | None = None
    draft_attention_backend: Text | None = None
    draft_kv_cache_dtype: Text | None = None
    draft_window_size: Count | None = None
    draft_sink_size: Whole | None = None
    num_steps: Whole | None = None
    eagle_topk: Count | None = None
    num_draft_tokens: Count | None = None
    accept_threshold_single: Annotated[float, Field(ge=0, le=1)] | None = None
    accept_threshold_acc: Annotated[float, Field(ge=0, le=1)] | None = None
    token_map: ModelRef | None = None
    attention_mode: Literal["prefill", "decode"] | None = None
    moe_runner_backend: Text | None = None
    moe_a2a_backend: Text | None = None
    dsa_topk_backend: Text | None = None
    use_rejection_sampling: bool = False
    use_block_verification: bool = False
    skip_dp_mlp_sync: bool = False
    adaptive: bool = False
    adaptive_config: Text | None = None
    dflash_block_size: Count | None = None
    domino_candidate_pool_size: Count | None = None
    dspark_block_size: Count | None = None
    dspark_sps_table_path: ModelRef | None = None
    dspark_confidence_sts_path: ModelRef | None = None
    dspark_align_verify_tokens_to_graph_tier: bool = False
    ngram_min_match_window_size: Count | None = None
    ngram_max_match_window_size: Count | None = None
    ngram_branch_length: Count | None = None
    ngram_max_trie_depth: Count | None = None
    ngram_min_bfs_breadth: Count | None = None
    ngram_max_bfs_breadth: Count | None = None
    ngram_match_type: Literal["BFS", "PROB"] | None = None
    ngram_capacity: Count | None = None
    ngram_external_corpus_path: Text | None = None
    ngram_external_sam_budget: Whole | None = None
    ngram_external_corpus_max_tokens: Count | None = None


class Memory(_Table):
    """``[memory]``: how much SGLang takes, and how many requests and tokens share it."""

    mem_fraction_static: Annotated[float, Field(gt=0, lt=1)] | None = None
    max_running_requests: Count | None = None
    max_queued_requests: Count | None = None
    max_total_tokens: Count | None = None
    max_prefill_tokens: Count | None = None
    context_length: Count | None = None
    chunked_prefill_size: Annotated[int, Field(ge=-1)] | None = None  # -1 turns chunking off
    page_size: Count | None = None
    kv_cache_dtype: Text | None = None
    schedule_conservativeness: Annotated[float, Field(gt=0)] | None = None
    cuda_graph_max_bs: Count | None = None
    cuda_graph_max_bs_decode: Count | None = None
    cuda_graph_max_bs_prefill: Count | None = None
    max_mamba_cache_size: Count | None = None
    mamba_full_memory_ratio: Annotated[float, Field(gt=0)] | None = None


class Parallel(_Table):
    """``[parallel]``: over how many GPUs and machines the server is spread."""

    tp_size: Count | None = None
    pp_size: Count | None = None
    dp_size: Count | None = None
    ep_size: Count | None = None
    nnodes: Count | None = None
    node_rank: Whole | None = None
    dist_init_addr: Text | None = None
    dist_timeout: Count | None = None
    enable_dp_attention: bool = False
    load_balance_method: Text | None = None
    base_gpu_id: Whole | None = None
    gpu_id_step: Count | None = None


class Limits(_Table):
    """``[limits]``: what systemd grants the unit. Defaults are argued in the generated unit's comments."""

    memory_max: Size | None = None
    memory_high: Size | None = None
    memory_swap_max: Size | None = None
    oom_policy: Literal["stop", "kill", "continue"] = "kill"
    timeout_start: Duration = "30min"
    timeout_stop: Duration | None = None  # fits the model's longest answers: service.stop_time
    on_hang: Literal["tell", "restart"] = "tell"
    hang_timeout: Duration = "90s"
    restart: Literal["no", "on-failure", "on-abnormal", "on-abort", "always"] = "on-failure"
    restart_sec: Duration = "5s"
    start_limit_burst: Count = 10
    start_limit_interval: Duration = "30min"
    limit_core: Size | None = None
    limit_nofile: Count = 524288


class ServerSpec(_Table):
    """One server. `name` is not a key: it is the file's name without ``.toml``."""

    name: str = Field(exclude=True)
    model_path: ModelRef
    served_model_name: Text | None = None
    host: Text = "127.0.0.1"
    port: Port = 30000
    python: AbsolutePath = "/opt/inquest/sglang/bin/python"
    user: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*\$?$")] = "sglang"
    group: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*\$?$")] | None = None
    description: Text | None = None
    enabled: bool = False
    environment_file: AbsolutePath | None = None

    device: Text | None = None
    dtype: Text | None = None
    quantization: Text | None = None
    load_format: Text | None = None
    tokenizer_path: ModelRef | None = None
    revision: Text | None = None
    trust_remote_code: bool = False
    attention_backend: Text | None = None
    sampling_backend: Text | None = None
    disable_cuda_graph: bool = False
    disable_overlap_schedule: bool = False
    enable_mixed_chunk: bool = False
    enable_multi_layer_eagle: bool = False
    uno_lora_path: ModelRef | None = None
    spec_trace_dir: AbsolutePath | None = None
    chat_template: Text | None = None
    tool_call_parser: Text | None = None
    reasoning_parser: Text | None = None
    random_seed: int | None = None
    ssl_keyfile: AbsolutePath | None = None
    ssl_certfile: AbsolutePath | None = None
    log_level: Text | None = None
    log_requests: bool = False
    log_requests_level: Annotated[int, Field(ge=0, le=3)] | None = None
    enable_metrics: bool = False
    watchdog_timeout: Annotated[float, Field(gt=0)] | None = None
    soft_watchdog_timeout: Annotated[float, Field(gt=0)] | None = None
    crash_dump_folder: AbsolutePath | None = None
    skip_server_warmup: bool = False

    speculative: Speculative = Speculative()
    memory: Memory = Memory()
    parallel: Parallel = Parallel()
    limits: Limits = Limits()
    env: dict[str, EnvValue] = {}
    extra_args: list[Text] = []

    @field_validator("env", mode="before")
    @classmethod
    def _env_keys(cls, env: Any) -> Any:
        for key in env if isinstance(env, dict) else ():
            if not _ENV_KEY.fullmatch(key):
                raise ValueError(f"{key!r} is not a name for an environment variable: letters, digits and '_' only")
            if key in _ENV_RESERVED:
                raise ValueError(f"{key} is set by systemd itself and must not be given")
        return env

    @field_validator("extra_args")
    @classmethod
    def _begins_with_option(cls, extra_args: list[str]) -> list[str]:
        if extra_args and not extra_args[0].startswith("-"):
            raise ValueError("must begin with an option such as '--dtype'")
        return extra_args
