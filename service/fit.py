"""Whether a draft model fits its target, by configuration and tensor shapes, before any GPU memory is touched.

SGLang checks almost none of this: an EAGLE3 draft given as EAGLE serves without a word and accepts nothing, other
pairs fail after the target is loaded, some only at the first request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from service.model import Model

__all__ = ["Misfit", "kind_of", "misfits"]

# Vocabularies of one family are padded differently; so many ids no tokenizer ever gives.
PADDING = 1024
# Layers of the target whose states an EAGLE3 draft takes together.
AUXILIARY_STATES = 3


@dataclass(frozen=True, slots=True)
class Misfit:
    """A sentence with both names. `certain` where it cannot work; else it may, badly."""

    message: str
    certain: bool = True


Kind = Literal["EAGLE", "EAGLE3"]


def kind_of(draft: Model) -> Kind | None:
    """What an EAGLE draft's first layer takes: one state (EAGLE), or the embedding beside it, twice as wide (EAGLE3).

    None for what is no EAGLE draft: a whole model, or a target's own draft layers (MTP).
    """
    if draft.tensor("fc.weight") is None and not draft.architecture.endswith(("Eagle", "Eagle3")):
        return None
    hidden = draft.number("hidden_size")
    query = draft.tensor("layers.0.self_attn.q_proj.weight", "midlayer.self_attn.q_proj.weight")
    if query is not None and hidden and len(query.shape) == 2 and query.shape[1] in (hidden, 2 * hidden):
        return "EAGLE" if query.shape[1] == hidden else "EAGLE3"
    if draft.architecture.endswith("Eagle3"):
        return "EAGLE3"
    return "EAGLE" if draft.architecture.endswith("Eagle") else None


def misfits(algorithm: str | None, target: Model, draft: Model) -> tuple[Misfit, ...]:
    """Everything that speaks against drafting with `draft` for `target` by `algorithm`."""
    names = f"the draft {draft.path} does not fit {target.path}"
    if algorithm in {"EAGLE", "EAGLE3", "NEXTN"}:
        found = [*_eagle(algorithm, target, draft, names)]
    elif algorithm == "STANDALONE":
        found = [*_standalone(target, draft, names)]
    else:
        found = []
    return tuple(found)


def _eagle(algorithm: str, target: Model, draft: Model, names: str) -> Iterator[Misfit]:
    kind = kind_of(draft)
    if kind is None:  # a draft of the target's own kind (MTP), or one whose layers are not known here
        yield from _same_width(target, draft, names)
        if draft.architecture == target.architecture != "" and draft.path != target.path:
            yield Misfit(
                f"the draft {draft.path} for {target.path} is a whole {draft.architecture}, not an {algorithm} draft; "
                "such a model drafts with algorithm = 'STANDALONE'",
                certain=False,
            )
        return
    if kind == "EAGLE3" and algorithm != "EAGLE3":
        yield Misfit(
            f"the draft {draft.path} for {target.path} is an EAGLE3 draft (its first layer takes embedding and state "
            f"together), but algorithm is {algorithm}: SGLang would serve and accept almost no draft token; "
            "write algorithm = 'EAGLE3'"
        )
        return
    if kind == "EAGLE" and algorithm == "EAGLE3":
        yield Misfit(
            f"the draft {draft.path} for {target.path} is an EAGLE draft (its first layer takes one state), but "
            "algorithm is EAGLE3: SGLang fails after loading both; write algorithm = 'EAGLE'"
        )
        return
    yield from _reducer(kind, target, draft, names)
    if kind == "EAGLE":
        yield from _same_width(target, draft, names)
    else:
        yield from _hot_tokens(target, draft, names)


def _same_width(target: Model, draft: Model, names: str) -> Iterator[Misfit]:
    ours, theirs = draft.number("hidden_size"), target.number("hidden_size")
    if ours and theirs and ours != theirs:
        yield Misfit(f"{names}: its hidden_size is {ours}, the target's {theirs}")


def _reducer(kind: Kind, target: Model, draft: Model, names: str) -> Iterator[Misfit]:
    """``fc`` brings the target's states to the draft's width: its shape is hidden x (what it takes)."""
    fc, hidden, width = draft.tensor("fc.weight"), draft.number("hidden_size"), target.number("hidden_size")
    if fc is None or len(fc.shape) != 2 or not hidden or not width:
        return
    if fc.shape[0] != hidden:
        yield Misfit(
            f"the draft {draft.path} for {target.path} contradicts itself: config.json says hidden_size {hidden}, "
            f"fc.weight has {fc.shape[0]} rows"
        )
    elif kind == "EAGLE3":
        states = _auxiliary_states(draft)
        takes = draft.number("target_hidden_size") or width
        if takes != width:
            yield Misfit(f"{names}: it was made for a hidden_size of {takes}, the target's is {width}")
        elif fc.shape[1] != states * width:
            yield Misfit(
                f"{names}: its fc.weight takes {fc.shape[1]} values, and {states} states of the target are "
                f"{states * width}"
            )
    elif fc.shape[1] != hidden + width:
        yield Misfit(
            f"{names}: its fc.weight takes {fc.shape[1]} values, and an embedding with one state of the target "
            f"are {hidden + width}"
        )


def _auxiliary_states(draft: Model) -> int:
    """SGLang asks the target for three layers' states, unless the draft's configuration lists its own or wants none."""
    found = draft.config.get("eagle_config")
    own = found if isinstance(found, dict) else {}
    if own.get("use_aux_hidden_state") is False:
        return 1
    ids = own.get("eagle_aux_hidden_state_layer_ids") or draft.config.get("eagle_aux_hidden_state_layer_ids")
    return len(ids) if isinstance(ids, list) and ids else AUXILIARY_STATES


def _hot_tokens(target: Model, draft: Model, names: str) -> Iterator[Misfit]:
    """An EAGLE3 draft may know fewer tokens, then it brings the map ``d2t`` from its ids to the target's."""
    known, all_ids = draft.number("draft_vocab_size"), target.number("vocab_size")
    if known is None or all_ids is None:
        return
    if known > all_ids:
        yield Misfit(f"{names}: its draft_vocab_size is {known}, the target's vocabulary only {all_ids}")
    elif known < all_ids and draft.tensors and "d2t" not in draft.tensors:
        yield Misfit(f"{names}: it knows {known} of {all_ids} tokens, and the map d2t is not among its tensors")


def _standalone(target: Model, draft: Model, names: str) -> Iterator[Misfit]:
    ours, theirs = draft.number("vocab_size"), target.number("vocab_size")
    if not ours or not theirs or ours == theirs:
        return
    far = abs(ours - theirs) > PADDING
    yield Misfit(f"{names}: its vocabulary has {ours} tokens, the target's {theirs}", certain=far)
