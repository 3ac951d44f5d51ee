"""Options that do not go together: an error for what SGLang refuses, a note for what only looks odd."""

from pathlib import Path

import pytest

from service.load import SpecError, parse
from service.pairs import RULES, findings, notes
from service.spec import ALGORITHMS, ServerSpec

EAGLE = "[speculative]\nalgorithm = 'EAGLE'\ndraft_model_path = '/d'\n"


def spec(toml: str) -> ServerSpec:
    return parse(f"model_path = '/m'\n{toml}".encode(), Path("/s/demo.toml"))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[speculative]\nalgorithm = 'EAGLE3'", "speculative.draft_model_path: is missing: EAGLE3 needs a draft model"),
        (
            "[speculative]\nalgorithm = 'standalone'",
            "speculative.draft_model_path: is missing: STANDALONE needs a draft model",
        ),
        (
            EAGLE + "eagle_topk = 4",
            "speculative.num_steps: is missing: give num_steps, eagle_topk and num_draft_tokens together or none of "
            "them (SGLang fails with an AssertionError that has no text)",
        ),
        (
            EAGLE + "num_steps = 3\neagle_topk = 4\nuse_rejection_sampling = true",
            "speculative.use_rejection_sampling: needs eagle_topk = 1; it is 4",
        ),
        (
            "[speculative]\nalgorithm = 'NGRAM'\n[parallel]\nenable_dp_attention = true",
            "parallel.enable_dp_attention: does not go with the algorithm NGRAM",
        ),
        ("[parallel]\ntp_size = 2\nnnodes = 4", "parallel.nnodes: must divide tp_size * pp_size = 2; it is 4"),
        ("[parallel]\ntp_size = 2\nnnodes = 2\nnode_rank = 2", "parallel.node_rank: must be less than nnodes = 2; "
         "it is 2"),
        (
            "[memory]\npage_size = 64\nchunked_prefill_size = 100",
            "memory.chunked_prefill_size: must be a multiple of page_size = 64; it is 100",
        ),
        ("served_model_name = 'a:b'", "served_model_name: must not hold a ':' (SGLang keeps it for LoRA adapters)"),
    ],
)  # fmt: skip
def test_pair_that_sglang_refuses_is_an_error(toml: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(toml)
    assert [str(problem) for problem in caught.value.problems] == [f"/s/demo.toml: {message}"]


@pytest.mark.parametrize(
    ("toml", "note"),
    [
        (
            "[speculative]\nalgorithm = 'EAGEL3'",
            "speculative.algorithm: EAGEL3 is none of SGLang's own (EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH, "
            "DSPARK, UNO, FROZEN_KV_MTP); did you mean EAGLE3? Only a plugin can supply it",
        ),
        (
            "[speculative]\nalgorithm = 'EAGLE'",
            "speculative.draft_model_path: is not given: right only for a target with its own draft layers (MTP), "
            "such as DeepSeek-V3",
        ),
        (
            "[speculative]\nalgorithm = 'NGRAM'\ndraft_model_path = '/d'",
            "speculative.draft_model_path: is not used: NGRAM drafts without a model",
        ),
        ("[speculative]\nnum_steps = 3", "speculative: has no effect without 'algorithm' (given: num_steps)"),
        (
            "[limits]\nrestart_sec = '1min'\nstart_limit_interval = '10min'",
            "limits.start_limit_interval: is 10min, too short for 10 starts that are 1min apart: a server that fails "
            "at once is restarted for ever",
        ),
        (
            "[limits]\non_hang = 'restart'\nrestart = 'on-abort'",
            "limits.on_hang: ends a server that hangs, but with restart = 'on-abort' it stays down",
        ),
        (
            "[memory]\ncuda_graph_max_bs = 8",
            "memory.cuda_graph_max_bs: is no option of SGLang 0.5.23 any more, which would refuse to start",
        ),
        (
            "extra_args = ['--api-key=k']",
            "extra_args: --api-key is readable by every user of this machine (ps, systemctl show)",
        ),
    ],
)
def test_pair_that_works_otherwise_than_written_is_a_note(toml: str, note: str) -> None:
    assert notes(spec(toml)) == (note,)


@pytest.mark.parametrize(
    "toml",
    [
        "",
        "[speculative]\nalgorithm = 'NEXTN'",
        "[speculative]\nalgorithm = 'NGRAM'\nnum_draft_tokens = 4\nngram_max_bfs_breadth = 1",
        EAGLE,
        EAGLE + "num_steps = 3\neagle_topk = 1\nnum_draft_tokens = 4",
        EAGLE + "num_steps = 5\neagle_topk = 4\nnum_draft_tokens = 8",
        EAGLE + "adaptive = true\neagle_topk = 1",
        EAGLE + "[parallel]\nenable_dp_attention = true\ndp_size = 2\ntp_size = 2",
        "[memory]\npage_size = 64\nchunked_prefill_size = -1",
        "[limits]\nrestart = 'no'\nrestart_sec = 'infinity'",
        "[parallel]\npp_size = 2\nnnodes = 2\nnode_rank = 1",
    ],
)
def test_pair_that_goes_together_is_left_alone(toml: str) -> None:
    assert findings(spec(toml)) == ()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_is_spelled_as_sglang_does(name: str) -> None:
    needed = "num_draft_tokens = 4" if name == "UNO" else "draft_model_path = '/d'"
    toml = f"uno_lora_path = '/u'\n[speculative]\nalgorithm = '{name.lower()}'\n{needed}"
    assert spec(toml).speculative.algorithm == name


def test_plugin_name_is_left_as_it_is() -> None:
    assert spec("[speculative]\nalgorithm = 'MyDraft'").speculative.algorithm == "MyDraft"


def test_rules_are_listed_once() -> None:
    assert len(set(RULES)) == len(RULES)
