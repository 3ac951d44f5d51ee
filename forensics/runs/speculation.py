"""Speculation that is useless, or too good to be true. SGLang serves both without a word. Pure.

Seen on an H200: an EAGLE3 draft under `--speculative-algorithm EAGLE` accepts 1.06 tokens a step; a draft whose weights
are NaN exactly 1.00; a target whose weights are NaN always the most there can be, since every comparison agrees.
"""

from collections.abc import Mapping

from forensics.runs.decoding import Decoding

USELESS_BELOW = 1.1
"""Mean accept length under which a draft costs more than it can bring. 1.00 is what plain decoding has."""
ENOUGH_TOKENS = 500
"""So many tokens must have been generated before a mean says something."""
_ENOUGH_LINES = 5
_DEFAULT_LOG_INTERVAL = 40


def tokens(decoding: Decoding, configuration: Mapping[str, str]) -> int:
    """About how many tokens the lines stand for."""
    interval = configuration.get("decode_log_interval", "")
    steps = int(interval) if interval.isdecimal() else _DEFAULT_LOG_INTERVAL
    return round(decoding.tokens_a_step * steps)


def remark(decoding: Decoding, configuration: Mapping[str, str], *, enough: int = ENOUGH_TOKENS) -> str | None:
    """What is odd about the run's speculation, in a sentence; None where nothing is, or there is too little to say."""
    length, count = decoding.accept_length, tokens(decoding, configuration)
    if length is None or decoding.speculative_lines < _ENOUGH_LINES or count < enough:
        return None
    over = f"over about {count} tokens"
    if length < USELESS_BELOW:
        why = _why(decoding, configuration)
        return f"speculation is useless: accept length {length:.2f} {over}, where 1.00 is none; {why}"
    most = _most(configuration)
    always = most is not None and decoding.accept_length_least == decoding.accept_length_most == float(most)
    sure = decoding.accept_rate_least is None or decoding.accept_rate_least == 1.0
    if always and sure and not _drafts_itself(configuration):
        return (
            f"speculation is too good to be true: accept length {length:.2f}, the most there can be, in every line "
            f"{over}; a target with broken weights (NaN) looks like this: read what it generates."
        )
    return None


def _why(decoding: Decoding, configuration: Mapping[str, str]) -> str:
    if configuration.get("speculative_num_steps") == "0" and _algorithm(configuration) != "NGRAM":
        return "speculative_num_steps is 0, so nothing is drafted."
    if decoding.accept_length_most == 1.0:
        return "not one draft token was accepted: are the draft's weights whole?"
    if _algorithm(configuration) in ("EAGLE", "NEXTN"):
        return "an EAGLE3 draft under EAGLE looks just like this."
    return "does the draft fit the target?"


def _algorithm(configuration: Mapping[str, str]) -> str:
    return configuration.get("speculative_algorithm", "").strip("'\"")


def _most(configuration: Mapping[str, str]) -> int | None:
    """The longest accept length there can be: the drafted steps and the target's own token."""
    for name, extra in (("speculative_num_steps", 1), ("speculative_num_draft_tokens", 0)):
        value = configuration.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return int(value) + extra
    return None


def _drafts_itself(configuration: Mapping[str, str]) -> bool:
    """A target that is its own draft agrees with itself."""
    draft = configuration.get("speculative_draft_model_path")
    return _algorithm(configuration) == "STANDALONE" and draft is not None and draft == configuration.get("model_path")
