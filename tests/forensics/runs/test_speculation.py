import pytest

from forensics.runs.decoding import Decoding
from forensics.runs.speculation import remark
from tests.forensics.runs.test_decoding import figures, tally

EAGLE = {"speculative_algorithm": "'EAGLE'", "speculative_num_steps": "3", "speculative_num_draft_tokens": "4"}


def steady(accept: float, rate: float | None, lines: int = 20) -> Decoding:
    return tally(*(figures(4, 900, accept, rate) for _ in range(lines)))


def test_a_draft_that_does_not_fit_is_useless() -> None:
    said = remark(steady(1.06, 0.02), EAGLE)
    assert said is not None
    assert "useless: accept length 1.06 over about 3392 tokens" in said
    assert "EAGLE3 draft" in said


def test_no_steps_are_no_fault_of_the_draft() -> None:
    said = remark(steady(1.0, 0.0), EAGLE | {"speculative_num_steps": "0"})
    assert said is not None
    assert "nothing is drafted" in said


def test_a_draft_that_never_hits_may_have_broken_weights() -> None:
    said = remark(steady(1.0, 0.0), EAGLE | {"speculative_algorithm": "'EAGLE3'"})
    assert said is not None
    assert "not one draft token was accepted" in said


def test_the_most_there_can_be_in_every_line_is_too_good_to_be_true() -> None:
    said = remark(steady(4.0, 1.0), EAGLE)
    assert said is not None
    assert "too good to be true: accept length 4.00" in said


@pytest.mark.parametrize(
    ("decoding", "configuration"),
    [
        (steady(1.3, 0.1), EAGLE),
        (steady(3.99, 0.99), EAGLE),
        (steady(4.0, 0.99), EAGLE),
        (tally(*(figures(4, 900, 4.0, 1.0) for _ in range(19)), figures(4, 900, 3.9, 0.97)), EAGLE),
        (steady(4.0, 1.0), EAGLE | {"speculative_num_steps": "5", "speculative_num_draft_tokens": "8"}),
        (tally(*(figures(4, 900) for _ in range(20))), {}),
        (steady(1.0, 0.0, lines=3), EAGLE),
        (tally(*(figures(1, 20, 1.0, 0.0) for _ in range(10))), EAGLE),
    ],
    ids=["some hits", "nearly all", "rate below 1", "one line below", "more steps", "none", "few lines", "few tokens"],
)
def test_ordinary_speculation_is_not_remarked_on(decoding: Decoding, configuration: dict[str, str]) -> None:
    assert remark(decoding, configuration) is None


def test_a_target_that_drafts_for_itself_agrees_with_itself() -> None:
    itself = EAGLE | {
        "speculative_algorithm": "'STANDALONE'",
        "model_path": "'/m'",
        "speculative_draft_model_path": "'/m'",
    }
    assert remark(steady(4.0, 1.0), itself) is None
    assert remark(steady(4.0, 1.0), itself | {"speculative_draft_model_path": "'/d'"}) is not None


def test_the_log_interval_counts() -> None:
    short = EAGLE | {"decode_log_interval": "1"}
    assert remark(steady(1.0, 0.0), EAGLE) is not None
    assert remark(steady(1.0, 0.0), short) is None


def test_more_can_be_asked_for_before_it_is_told() -> None:
    assert remark(steady(1.0, 0.0), EAGLE, enough=10_000) is None
