"""Options that do not go together: known of SGLang in every 0.5 release, checked before anything is loaded.

A rule is a function from the spec to its findings; ``RULES`` lists them. An error is what SGLang certainly
refuses or cannot run; what works but not as written, or only in some releases, is a note.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from service.algorithms import ALGORITHM_RULES
from service.command import key_of
from service.fields import seconds
from service.finding import Finding, Rule, note
from service.spec import ALGORITHMS, ServerSpec

__all__ = ["RULES", "Finding", "findings", "notes"]

_DRAFTING = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"}  # draft by a model in num_steps steps


def _algorithm_known(spec: ServerSpec) -> Iterator[Finding]:
    name = spec.speculative.algorithm
    if name and name not in ALGORITHMS:
        near = difflib.get_close_matches(name, ALGORITHMS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        known = ", ".join(ALGORITHMS)
        yield note(
            "speculative.algorithm", f"{name} is none of SGLang's own ({known}); {meant}Only a plugin can supply it"
        )


def _algorithm_given(spec: ServerSpec) -> Iterator[Finding]:
    given = [key for key, value in spec.speculative if value not in (None, False)]
    if given and spec.speculative.algorithm is None:
        yield note("speculative", f"has no effect without 'algorithm' (given: {', '.join(given)})")


def _draft_model(spec: ServerSpec) -> Iterator[Finding]:
    name, draft = spec.speculative.algorithm, spec.speculative.draft_model_path
    if name in {"EAGLE3", "STANDALONE"} and draft is None:
        yield Finding("speculative.draft_model_path", f"is missing: {name} needs a draft model")
    if name == "EAGLE" and draft is None:
        yield note(
            "speculative.draft_model_path",
            "is not given: right only for a target with its own draft layers (MTP), such as DeepSeek-V3",
        )
    if name == "NGRAM" and draft is not None:
        yield note("speculative.draft_model_path", "is not used: NGRAM drafts without a model")


def _drafting_numbers(spec: ServerSpec) -> Iterator[Finding]:
    s = spec.speculative
    if spec.speculative.algorithm not in _DRAFTING or s.adaptive:
        return
    if s.num_steps is None and (s.eagle_topk is not None or s.num_draft_tokens is not None):
        yield Finding(
            "speculative.num_steps",
            "is missing: give num_steps, eagle_topk and num_draft_tokens together or none of them "
            "(SGLang fails with an AssertionError that has no text)",
        )


def _dp_attention(spec: ServerSpec) -> Iterator[Finding]:
    if spec.parallel.enable_dp_attention and spec.speculative.algorithm in {"STANDALONE", "NGRAM"}:
        yield Finding("parallel.enable_dp_attention", f"does not go with the algorithm {spec.speculative.algorithm}")


def _nodes(spec: ServerSpec) -> Iterator[Finding]:
    p = spec.parallel
    nnodes, ranks = p.nnodes or 1, (p.tp_size or 1) * (p.pp_size or 1)
    if ranks % nnodes:
        yield Finding("parallel.nnodes", f"must divide tp_size * pp_size = {ranks}; it is {nnodes}")
    if (p.node_rank or 0) >= nnodes:
        yield Finding("parallel.node_rank", f"must be less than nnodes = {nnodes}; it is {p.node_rank}")


def _chunked_prefill(spec: ServerSpec) -> Iterator[Finding]:
    chunk, page = spec.memory.chunked_prefill_size, spec.memory.page_size
    if chunk and page and chunk > 0 and chunk % page:
        yield Finding("memory.chunked_prefill_size", f"must be a multiple of page_size = {page}; it is {chunk}")


def _served_name(spec: ServerSpec) -> Iterator[Finding]:
    if spec.served_model_name and ":" in spec.served_model_name:
        yield Finding("served_model_name", "must not hold a ':' (SGLang keeps it for LoRA adapters)")


# Options that newer releases no longer know; they end at once on them (argparse, status 2).
_GONE = {
    "speculative.ngram_min_match_window_size": "0.5.10",
    "speculative.ngram_max_match_window_size": "0.5.10",
    "speculative.ngram_branch_length": "0.5.10",
    "memory.cuda_graph_max_bs": "0.5.23",
}


def _gone(spec: ServerSpec) -> Iterator[Finding]:
    for place, release in _GONE.items():
        table, key = place.split(".")
        if getattr(getattr(spec, table), key) is not None:
            yield note(place, f"is no option of SGLang {release} any more, which would refuse to start")


def _start_limit(spec: ServerSpec) -> Iterator[Finding]:
    """A failing start that is repeated so slowly that systemd never gives it up."""
    limits = spec.limits
    least = seconds(limits.restart_sec) * limits.start_limit_burst
    if limits.restart != "no" and least >= seconds(limits.start_limit_interval):
        yield note(
            "limits.start_limit_interval",
            f"is {limits.start_limit_interval}, too short for {limits.start_limit_burst} starts that are "
            f"{limits.restart_sec} apart: a server that fails at once is restarted for ever",
        )


def _on_hang(spec: ServerSpec) -> Iterator[Finding]:
    if spec.limits.on_hang == "restart" and spec.limits.restart in {"no", "on-abort"}:
        yield note(
            "limits.on_hang", f"ends a server that hangs, but with restart = '{spec.limits.restart}' it stays down"
        )


def _extra_args(spec: ServerSpec) -> Iterator[Finding]:
    for argument in spec.extra_args:
        name = argument.split("=", 1)[0]
        if name in {"--api-key", "--admin-api-key"}:
            yield note("extra_args", f"{name} is readable by every user of this machine (ps, systemctl show)")
        if (key := key_of(name)) is not None:
            yield Finding("extra_args", f"{name} has a key of its own: write it as {key!r}")


RULES: tuple[Rule, ...] = (
    _served_name,
    _algorithm_known,
    _algorithm_given,
    _draft_model,
    _drafting_numbers,
    _dp_attention,
    _nodes,
    _chunked_prefill,
    _gone,
    _start_limit,
    _on_hang,
    _extra_args,
    *ALGORITHM_RULES,
)


def findings(spec: ServerSpec) -> tuple[Finding, ...]:
    """What every rule has to say about `spec`, in the order of ``RULES``."""
    return tuple(found for rule in RULES for found in rule(spec))


def notes(spec: ServerSpec) -> tuple[str, ...]:
    """The findings that are no errors, as lines ``key: words``."""
    return tuple(f"{found.key}: {found.message}" for found in findings(spec) if not found.is_error)
