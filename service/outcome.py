"""What SGLang will make of a spec: the values that it puts in place of those not given, or of those given.

By its own rules from 0.4.10 to 0.5.23 (``handle_speculative_decoding`` and what it calls), which differ by release;
where the release is not known, only what holds in all of 0.5 is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.installed import Version
from service.spec import ServerSpec

__all__ = ["Outcome", "outcome", "sentences"]

RUNNING_REQUESTS = 48
_EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})
_LLAMAS = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})
_WITH_OWN_DRAFT = frozenset(
    {
        "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers that SGLang works with; None where they cannot be told from the spec."""

    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    max_running_requests: int | None


def outcome(spec: ServerSpec, version: Version | None = None, architecture: str = "") -> Outcome:
    """`architecture` is the target's, as its config.json has it; it decides what SGLang chooses by itself."""
    s, running = spec.speculative, spec.memory.max_running_requests
    name = s.algorithm
    if name is None:
        return Outcome(None, None, None, running)
    if running is None and name != "UNO":
        running = RUNNING_REQUESTS
    if name in _EAGLE_FAMILY:
        return Outcome(*_eagle(spec, version, architecture), running)
    if name == "NGRAM":
        return Outcome(*_ngram(spec, version), running)
    if name == "DFLASH":
        return Outcome(1, 1, s.dflash_block_size or s.num_draft_tokens, running)
    if name == "DSPARK":
        return Outcome(1, 1, s.dspark_block_size + 1 if s.dspark_block_size else s.num_draft_tokens, running)
    if name == "UNO":
        tree = (s.eagle_topk or 1) > 1
        return Outcome(s.num_steps if tree else 1, s.eagle_topk if tree else 1, s.num_draft_tokens, running)
    return Outcome(s.num_steps, s.eagle_topk, s.num_draft_tokens, running)


def _eagle(spec: ServerSpec, version: Version | None, architecture: str) -> tuple[int | None, int | None, int | None]:
    s = spec.speculative
    steps, topk, tokens = s.num_steps, s.eagle_topk, s.num_draft_tokens
    if s.adaptive:
        topk = topk or 1
        return steps, topk, None if steps is None else steps + 1
    if steps is None:
        return _chosen(spec.speculative.algorithm, version, architecture)
    if topk == 1:
        tokens = steps + 1
    return steps, topk, tokens


def _chosen(
    algorithm: str | None, version: Version | None, architecture: str
) -> tuple[int | None, int | None, int | None]:
    """What SGLang takes where none of the three numbers is given."""
    if algorithm == "STANDALONE":
        return 3, 1, 4
    if not architecture:
        return None, None, None
    if version is not None and version < (0, 5, 0):
        return (3, 1, 4) if architecture.startswith("DeepseekV") else (5, 4, 8)
    return (5, 4, 8) if architecture in _LLAMAS else (3, 1, 4)


def _ngram(spec: ServerSpec, version: Version | None) -> tuple[int | None, int | None, int | None]:
    s = spec.speculative
    topk = s.ngram_max_bfs_breadth or 10
    if version is not None and version < (0, 5, 10):
        tokens = s.ngram_max_match_window_size or 12
    else:
        tokens = s.num_draft_tokens or 12
    return s.num_steps or tokens // topk, topk, tokens


def sentences(spec: ServerSpec, version: Version | None = None, architecture: str = "") -> Iterator[tuple[str, str]]:
    """Each value that will not be as written, or that was left to SGLang, as (key, words)."""
    s = spec.speculative
    name, made = s.algorithm, outcome(spec, version, architecture)
    if name is None:
        return
    if name == "NEXTN":
        yield "speculative.algorithm", "NEXTN becomes EAGLE"
    if spec.memory.max_running_requests is None and made.max_running_requests is not None:
        yield "memory.max_running_requests", f"max running requests become {made.max_running_requests} for speculation"
    chained = name in _EAGLE_FAMILY and s.eagle_topk == 1 and not s.adaptive
    if chained and s.num_steps is not None and s.num_draft_tokens != s.num_steps + 1:
        given = "" if s.num_draft_tokens is None else f" (not the {s.num_draft_tokens} given)"
        words = f"topk 1: draft tokens become steps + 1 = {s.num_steps + 1}{given}"
        yield "speculative.num_draft_tokens", words
    if name in _EAGLE_FAMILY and s.num_steps is None and not s.adaptive and made.num_steps is not None:
        numbers = f"num_steps {made.num_steps}, eagle_topk {made.eagle_topk}, num_draft_tokens {made.num_draft_tokens}"
        yield "speculative", f"none of the three numbers is given: SGLang takes {numbers}"
    yield from _of_ngram(spec, made, version)
    if name in {"DFLASH", "DSPARK"} and (s.num_steps not in (None, 1) or s.eagle_topk not in (None, 1)):
        yield "speculative.num_steps", f"{name} drafts a block at once: num_steps and eagle_topk become 1"
    if name in {"EAGLE", "NEXTN"} and s.draft_model_path is None and architecture in _WITH_OWN_DRAFT:
        yield "speculative.draft_model_path", f"{architecture} has its own draft layers: the draft is the model itself"
    yield from _of_scheduling(spec, version)


def _of_ngram(spec: ServerSpec, made: Outcome, version: Version | None) -> Iterator[tuple[str, str]]:
    s = spec.speculative
    if s.algorithm != "NGRAM":
        return
    if s.num_draft_tokens != made.num_draft_tokens:
        given = "" if s.num_draft_tokens is None else f" (not the {s.num_draft_tokens} given)"
        yield "speculative.num_draft_tokens", f"NGRAM drafts {made.num_draft_tokens} tokens{given}"
    if s.eagle_topk not in (None, made.eagle_topk):
        yield "speculative.eagle_topk", f"NGRAM takes ngram_max_bfs_breadth = {made.eagle_topk} for it"


def _of_scheduling(spec: ServerSpec, version: Version | None) -> Iterator[tuple[str, str]]:
    name = spec.speculative.algorithm
    if spec.enable_mixed_chunk and (name == "NGRAM" or version is None or version < (0, 5, 23)):
        yield "enable_mixed_chunk", f"is switched off by {name}"
    if version is None or spec.disable_overlap_schedule:
        return
    env = spec.env.get("SGLANG_ENABLE_SPEC_V2", "").lower()
    off = version < (0, 5, 0) or (version < (0, 5, 11) and env not in {"1", "true"}) or env in {"0", "false"}
    if version >= (0, 5, 14):
        off = spec.device == "cpu"
    elif name == "NGRAM" and version < (0, 5, 11):
        off = True
    if off:
        yield "disable_overlap_schedule", f"the overlap scheduler is switched off by {name}"
