"""What SGLang makes of the numbers of speculation, by release; and what single algorithms ask for."""

from pathlib import Path

import pytest

from service.load import SpecError, parse
from service.outcome import Outcome, outcome, sentences
from service.spec import ServerSpec

EAGLE = "algorithm = 'EAGLE'\ndraft_model_path = '/d'\n"
LLAMA, DEEPSEEK, QWEN = "LlamaForCausalLM", "DeepseekV3ForCausalLM", "Qwen3ForCausalLM"


def spec(toml: str, before: str = "") -> ServerSpec:
    return parse(f"model_path = '/m'\n{before}[speculative]\n{toml}".encode(), Path("/s/demo.toml"))


@pytest.mark.parametrize(
    ("toml", "version", "architecture", "made"),
    [
        (EAGLE + "num_steps = 10\neagle_topk = 1\nnum_draft_tokens = 8", None, "", Outcome(10, 1, 11, 48)),
        (EAGLE + "num_steps = 5\neagle_topk = 4\nnum_draft_tokens = 8", None, "", Outcome(5, 4, 8, 48)),
        (EAGLE, (0, 5, 23), LLAMA, Outcome(5, 4, 8, 48)),
        (EAGLE, (0, 5, 23), QWEN, Outcome(3, 1, 4, 48)),
        (EAGLE, (0, 4, 10), QWEN, Outcome(5, 4, 8, 48)),
        (EAGLE, (0, 4, 10), DEEPSEEK, Outcome(3, 1, 4, 48)),
        (EAGLE, None, "", Outcome(None, None, None, 48)),
        ("algorithm = 'STANDALONE'\ndraft_model_path = '/d'", None, LLAMA, Outcome(3, 1, 4, 48)),
        (EAGLE + "adaptive = true\nnum_steps = 4", None, "", Outcome(4, 1, 5, 48)),
        ("algorithm = 'NGRAM'", (0, 5, 10), "", Outcome(1, 10, 12, 48)),
        ("algorithm = 'NGRAM'\nnum_draft_tokens = 8\nngram_max_bfs_breadth = 2", None, "", Outcome(4, 2, 8, 48)),
        ("algorithm = 'NGRAM'\nngram_max_match_window_size = 6", (0, 5, 6), "", Outcome(0, 10, 6, 48)),
        ("algorithm = 'DFLASH'\ndraft_model_path = '/d'\ndflash_block_size = 16", None, "", Outcome(1, 1, 16, 48)),
        ("algorithm = 'DSPARK'\ndspark_block_size = 7", None, "", Outcome(1, 1, 8, 48)),
        ("", None, "", Outcome(None, None, None, None)),
    ],
)
def test_numbers(toml: str, version: tuple[int, int, int] | None, architecture: str, made: Outcome) -> None:
    assert outcome(spec(toml), version, architecture) == made


def test_own_limit_of_running_requests_holds() -> None:
    given = parse(
        b"model_path='/m'\n[speculative]\nalgorithm='NGRAM'\n[memory]\nmax_running_requests=7", Path("/s/d.toml")
    )
    assert outcome(given).max_running_requests == 7
    assert "memory.max_running_requests" not in dict(sentences(given))


def test_change_is_told_as_sglang_will_make_it() -> None:
    assert dict(sentences(spec(EAGLE + "num_steps = 10\neagle_topk = 1\nnum_draft_tokens = 8"))) == {
        "memory.max_running_requests": "max running requests become 48 for speculation",
        "speculative.num_draft_tokens": "topk 1: draft tokens become steps + 1 = 11 (not the 8 given)",
    }


def test_what_is_as_written_is_not_told() -> None:
    told = sentences(spec(EAGLE + "num_steps = 3\neagle_topk = 1\nnum_draft_tokens = 4"))
    assert [key for key, _ in told] == ["memory.max_running_requests"]


@pytest.mark.parametrize(
    ("toml", "version", "off"),
    [
        (EAGLE, (0, 4, 10), True),
        (EAGLE, (0, 5, 6), True),
        (EAGLE, (0, 5, 12), False),
        (EAGLE, (0, 5, 23), False),
        ("algorithm = 'NGRAM'", (0, 5, 10), True),
        (EAGLE, None, False),
    ],
)
def test_overlap_scheduler(toml: str, version: tuple[int, int, int] | None, off: bool) -> None:
    assert ("disable_overlap_schedule" in dict(sentences(spec(toml), version))) is off


def test_overlap_scheduler_on_the_cpu() -> None:
    assert "disable_overlap_schedule" in dict(sentences(spec(EAGLE, "device = 'cpu'\n"), (0, 5, 23)))


def test_target_with_its_own_draft_layers() -> None:
    told = dict(sentences(spec("algorithm = 'EAGLE'"), None, DEEPSEEK))
    assert told["speculative.draft_model_path"].startswith("DeepseekV3ForCausalLM has its own draft layers")


@pytest.mark.parametrize(
    ("toml", "before", "key", "words"),
    [
        ("algorithm = 'UNO'\nnum_draft_tokens = 4", "", "uno_lora_path", "is missing: UNO drafts with it"),
        ("algorithm = 'UNO'", "uno_lora_path = '/u'\n", "speculative.num_draft_tokens", "is missing: UNO needs it"),
        ("algorithm = 'DFLASH'", "", "speculative.draft_model_path", "is missing: DFLASH needs a draft model"),
        (
            "algorithm = 'DFLASH'\ndraft_model_path = '/d'\ndflash_block_size = 16\nnum_draft_tokens = 8",
            "",
            "speculative.num_draft_tokens",
            "is 8 and dflash_block_size 16: give one, or the same",
        ),
        (
            "algorithm = 'DSPARK'\ndspark_block_size = 7\nnum_draft_tokens = 7",
            "",
            "speculative.num_draft_tokens",
            "must be dspark_block_size + 1 = 8, or not given",
        ),
        (EAGLE + "draft_sink_size = 4", "", "speculative.draft_sink_size", "needs draft_window_size"),
        (
            EAGLE + "num_steps = 3\neagle_topk = 4\nnum_draft_tokens = 8",
            "attention_backend = 'trtllm_mha'\n",
            "speculative.eagle_topk",
            "must be 1 with the attention backend trtllm_mha; it is 4",
        ),
        (
            "algorithm = 'NGRAM'\nuse_rejection_sampling = true",
            "",
            "speculative.use_rejection_sampling",
            "works with EAGLE, EAGLE3, NEXTN only; the algorithm is NGRAM",
        ),
        (
            EAGLE + "use_rejection_sampling = true\naccept_threshold_acc = 0.5",
            "",
            "speculative.use_rejection_sampling",
            "does not go with accept_threshold_single and accept_threshold_acc: it ignores them",
        ),
        (
            "algorithm = 'NGRAM'\nuse_block_verification = true",
            "",
            "speculative.use_block_verification",
            "works with EAGLE, EAGLE3, NEXTN, DFLASH, DSPARK only; the algorithm is NGRAM",
        ),
        (
            "algorithm = 'NGRAM'\nnum_draft_tokens = 4\nngram_external_corpus_path = '/c'\n"
            "ngram_external_sam_budget = 4",
            "",
            "speculative.ngram_external_sam_budget",
            "must be at most num_draft_tokens - 1 = 3",
        ),
    ],
)
def test_what_an_algorithm_cannot_do_without_is_an_error(toml: str, before: str, key: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(toml, before)
    assert [(problem.key, problem.message) for problem in caught.value.problems] == [(key, words)]
