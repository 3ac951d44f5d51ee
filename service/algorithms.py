"""What single speculative algorithms ask for, in every release that has them (SGLang to 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from service.finding import Finding, Rule, note
from service.spec import ServerSpec

__all__ = ["ALGORITHM_RULES"]

_SAMPLED = ("EAGLE", "EAGLE3", "NEXTN")
_BLOCK_VERIFIED = (*_SAMPLED, "DFLASH", "DSPARK")


def _rejection_sampling(spec: ServerSpec) -> Iterator[Finding]:
    s, key = spec.speculative, "speculative.use_rejection_sampling"
    if not s.use_rejection_sampling or s.algorithm is None:
        return
    if s.algorithm not in _SAMPLED:
        yield Finding(key, f"works with {', '.join(_SAMPLED)} only; the algorithm is {s.algorithm}")
    elif s.eagle_topk not in (None, 1):
        yield Finding(key, f"needs eagle_topk = 1; it is {s.eagle_topk}")
    if {s.accept_threshold_single, s.accept_threshold_acc} - {None, 1.0}:
        yield Finding(key, "does not go with accept_threshold_single and accept_threshold_acc: it ignores them")


def _block_verification(spec: ServerSpec) -> Iterator[Finding]:
    s, key = spec.speculative, "speculative.use_block_verification"
    if not s.use_block_verification or s.algorithm is None:
        return
    if s.algorithm not in _BLOCK_VERIFIED:
        yield Finding(key, f"works with {', '.join(_BLOCK_VERIFIED)} only; the algorithm is {s.algorithm}")
    if spec.device not in (None, "cuda"):
        yield Finding(key, f"needs CUDA; device is {spec.device!r}")


def _draft_window(spec: ServerSpec) -> Iterator[Finding]:
    s = spec.speculative
    if s.draft_sink_size is not None and s.draft_window_size is None:
        yield Finding("speculative.draft_sink_size", "needs draft_window_size")
    if s.draft_window_size is None or s.algorithm is None:
        return
    block = s.dflash_block_size or s.num_draft_tokens
    if s.algorithm == "DFLASH" and block and s.draft_window_size < block:
        yield Finding("speculative.draft_window_size", f"must be at least the block of {block} tokens")
    if s.algorithm not in {"EAGLE", "EAGLE3", "NEXTN", "DFLASH"}:
        yield note("speculative.draft_window_size", f"has no effect with {s.algorithm}")


def _topk_backend(spec: ServerSpec) -> Iterator[Finding]:
    topk = spec.speculative.eagle_topk
    if topk and topk > 1 and spec.attention_backend == "trtllm_mha" and spec.speculative.algorithm:
        yield Finding("speculative.eagle_topk", f"must be 1 with the attention backend trtllm_mha; it is {topk}")


def _dflash(spec: ServerSpec) -> Iterator[Finding]:
    s = spec.speculative
    if s.algorithm != "DFLASH":
        return
    if s.draft_model_path is None:
        yield Finding("speculative.draft_model_path", "is missing: DFLASH needs a draft model")
    if (spec.parallel.pp_size or 1) > 1:
        yield Finding("parallel.pp_size", "must be 1 with DFLASH")
    if s.dflash_block_size and s.num_draft_tokens and s.dflash_block_size != s.num_draft_tokens:
        yield Finding(
            "speculative.num_draft_tokens",
            f"is {s.num_draft_tokens} and dflash_block_size {s.dflash_block_size}: give one, or the same",
        )
    if spec.device == "cpu":
        yield Finding("speculative.algorithm", "DFLASH does not run on the CPU")


def _dspark(spec: ServerSpec) -> Iterator[Finding]:
    s = spec.speculative
    if s.algorithm != "DSPARK":
        return
    if s.dspark_block_size and s.num_draft_tokens and s.num_draft_tokens != s.dspark_block_size + 1:
        yield Finding(
            "speculative.num_draft_tokens", f"must be dspark_block_size + 1 = {s.dspark_block_size + 1}, or not given"
        )
    if spec.device == "cpu":
        yield Finding("speculative.algorithm", "DSPARK does not run on the CPU")


def _uno(spec: ServerSpec) -> Iterator[Finding]:
    s = spec.speculative
    if s.algorithm != "UNO":
        if spec.uno_lora_path is not None:
            yield note("uno_lora_path", "has no effect: the algorithm is not UNO")
        return
    if spec.uno_lora_path is None:
        yield Finding("uno_lora_path", "is missing: UNO drafts with it")
    if s.draft_model_path is not None:
        yield Finding("speculative.draft_model_path", "must not be given: UNO drafts with the target itself")
    if s.num_draft_tokens is None:
        yield Finding("speculative.num_draft_tokens", "is missing: UNO needs it")
    if (spec.parallel.tp_size or 1, spec.parallel.pp_size or 1) != (1, 1):
        yield Finding("parallel.tp_size", "must be 1 with UNO, and pp_size too")
    if s.eagle_topk and s.eagle_topk > 1:
        if s.num_steps is None:
            yield Finding("speculative.num_steps", "is missing: UNO needs it where eagle_topk is greater than 1")
        elif s.num_draft_tokens is not None and s.num_draft_tokens < s.num_steps + 1:
            yield Finding("speculative.num_draft_tokens", f"must be at least num_steps + 1 = {s.num_steps + 1}")
    if spec.device == "cpu":
        yield Finding("speculative.algorithm", "UNO runs on CUDA only")


def _ngram_corpus(spec: ServerSpec) -> Iterator[Finding]:
    s, key = spec.speculative, "speculative.ngram_external_sam_budget"
    if s.algorithm != "NGRAM" or s.ngram_external_corpus_path is None:
        return
    if not s.ngram_external_sam_budget:
        yield Finding(key, "must be at least 1 with ngram_external_corpus_path")
    elif s.num_draft_tokens is not None and s.ngram_external_sam_budget > s.num_draft_tokens - 1:
        yield Finding(key, f"must be at most num_draft_tokens - 1 = {s.num_draft_tokens - 1}")


def _adaptive(spec: ServerSpec) -> Iterator[Finding]:
    s = spec.speculative
    if s.adaptive_config is not None and not s.adaptive:
        yield note("speculative.adaptive_config", "has no effect without adaptive = true")


ALGORITHM_RULES: tuple[Rule, ...] = (
    _rejection_sampling,
    _block_verification,
    _draft_window,
    _topk_backend,
    _dflash,
    _dspark,
    _uno,
    _ngram_corpus,
    _adaptive,
)
