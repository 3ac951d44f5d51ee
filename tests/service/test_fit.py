"""Models on disk: whole or not, and drafts that fit a target or not."""

import json
from pathlib import Path

import pytest

from service.fit import kind_of, misfits
from service.load import parse
from service.model import BadModel, located, read
from service.pair import pair
from service.spec import ServerSpec
from tests.service.models import config, eagle, eagle3, llama, write


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return llama(tmp_path / "target")


def test_model_is_read_without_its_weights(target: Path) -> None:
    model = read(target)
    assert model.architecture == "LlamaForCausalLM"
    assert model.weight_bytes == 2 * (2 * 1000 * 64 + 4 * 64 * 64)
    assert model.number("nothing", "hidden_size") == 64
    assert model.tensors["lm_head.weight"].shape == (1000, 64)


def test_language_model_of_several(tmp_path: Path) -> None:
    whole = {"architectures": ["VlForConditionalGeneration"], "hidden_size": 1, "text_config": {"hidden_size": 64}}
    assert read(write(tmp_path / "m", whole, {})).number("hidden_size") == 64


def index(folder: Path, *names: str) -> None:
    weight_map = {f"w{i}": name for i, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_missing_shards_are_named(target: Path) -> None:
    index(target, "model.safetensors", "b.safetensors", "c.safetensors")
    with pytest.raises(BadModel, match=r"^2 of 3 weight files are missing: b\.safetensors, c\.safetensors$"):
        read(target)


def test_cut_off_file_is_told(target: Path) -> None:
    file = target / "model.safetensors"
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(size - 5)
    with pytest.raises(BadModel, match=rf"^model\.safetensors is cut off: {size - 5} of {size} bytes"):
        read(target)


@pytest.mark.parametrize("content", [b"", b"\x00garbage" * 64, b"\x04\0\0\0\0\0\0\0[1,]"])
def test_no_safetensors_file_at_all(target: Path, content: bytes) -> None:
    (target / "model.safetensors").write_bytes(content)
    with pytest.raises(BadModel, match=r"^model\.safetensors "):
        read(target)


def test_model_in_the_hubs_cache(tmp_path: Path) -> None:
    folder = tmp_path / "hub/models--org--name"
    llama(folder / "snapshots/abc")
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text("abc")
    assert located("org/name", {"HF_HOME": str(tmp_path)}) == folder / "snapshots/abc"
    assert located("org/name", {"HF_HUB_CACHE": str(tmp_path / "hub")}) == folder / "snapshots/abc"
    assert located("org/other", {"HF_HOME": str(tmp_path)}) is None
    assert located("s3://bucket/model", {"HF_HOME": str(tmp_path)}) is None


def test_first_layer_tells_the_kind(tmp_path: Path) -> None:
    assert kind_of(read(eagle(tmp_path / "a"))) == "EAGLE"
    assert kind_of(read(eagle3(tmp_path / "b"))) == "EAGLE3"
    assert kind_of(read(llama(tmp_path / "c"))) is None


def test_kind_is_told_by_the_layer_not_by_the_name(tmp_path: Path) -> None:
    assert kind_of(read(eagle(tmp_path / "a", architectures=["LlamaForCausalLMEagle3"]))) == "EAGLE"


def words(algorithm: str, target: Path, draft: Path) -> list[tuple[bool, str]]:
    found = misfits(algorithm, read(target), read(draft))
    return [(m.certain, m.message.replace(str(draft), "D").replace(str(target), "T")) for m in found]


@pytest.mark.parametrize("algorithm", ["EAGLE", "NEXTN"])
def test_eagle_draft_fits(tmp_path: Path, target: Path, algorithm: str) -> None:
    assert words(algorithm, target, eagle(tmp_path / "d")) == []


def test_eagle3_draft_fits(tmp_path: Path, target: Path) -> None:
    assert words("EAGLE3", target, eagle3(tmp_path / "d")) == []


def test_eagle3_draft_given_as_eagle(tmp_path: Path, target: Path) -> None:
    assert words("EAGLE", target, eagle3(tmp_path / "d")) == [
        (
            True,
            "the draft D for T is an EAGLE3 draft (its first layer takes embedding and state together), but algorithm "
            "is EAGLE: SGLang would serve and accept almost no draft token; write algorithm = 'EAGLE3'",
        )
    ]


def test_eagle_draft_given_as_eagle3(tmp_path: Path, target: Path) -> None:
    ((certain, message),) = words("EAGLE3", target, eagle(tmp_path / "d"))
    assert certain
    assert message.startswith("the draft D for T is an EAGLE draft (its first layer takes one state), but")


def test_draft_of_another_width(tmp_path: Path, target: Path) -> None:
    draft = eagle(tmp_path / "d", width=32, target_width=32)
    assert words("EAGLE", target, draft) == [
        (True, "the draft D does not fit T: its fc.weight takes 64 values, and an embedding with one state of the "
         "target are 96"),
        (True, "the draft D does not fit T: its hidden_size is 32, the target's 64"),
    ]  # fmt: skip


def test_draft_whose_tensors_are_not_those_of_its_configuration(tmp_path: Path, target: Path) -> None:
    draft = eagle(tmp_path / "d", width=32, target_width=32, hidden_size=64)
    assert words("EAGLE", target, draft) == [
        (True, "the draft D for T contradicts itself: config.json says hidden_size 64, fc.weight has 32 rows")
    ]


def test_eagle3_draft_for_two_states(tmp_path: Path, target: Path) -> None:
    assert words("EAGLE3", target, eagle3(tmp_path / "d", states=2)) == [
        (True, "the draft D does not fit T: its fc.weight takes 128 values, and 3 states of the target are 192")
    ]


@pytest.mark.parametrize(
    ("states", "keys"),
    [
        (2, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}}),
        (2, {"eagle_aux_hidden_state_layer_ids": [1, 2]}),
        (1, {"eagle_config": {"use_aux_hidden_state": False}}),
    ],
)
def test_eagle3_draft_that_says_which_states(
    tmp_path: Path, target: Path, states: int, keys: dict[str, object]
) -> None:
    assert words("EAGLE3", target, eagle3(tmp_path / "d", states=states, **keys)) == []


def test_reduced_vocabulary_without_its_map(tmp_path: Path, target: Path) -> None:
    assert words("EAGLE3", target, eagle3(tmp_path / "d", known=500)) == [
        (True, "the draft D does not fit T: it knows 500 of 1000 tokens, and the map d2t is not among its tensors")
    ]


def test_whole_model_as_eagle_draft_may_be_meant_otherwise(tmp_path: Path, target: Path) -> None:
    ((certain, message),) = words("EAGLE", target, llama(tmp_path / "d", num_hidden_layers=1))
    assert not certain
    assert message.endswith("such a model drafts with algorithm = 'STANDALONE'")


def test_standalone_draft(tmp_path: Path, target: Path) -> None:
    assert words("STANDALONE", target, llama(tmp_path / "a", hidden_size=32)) == []
    ((certain, _),) = words("STANDALONE", target, llama(tmp_path / "b", vocab_size=1064))
    assert not certain
    assert words("STANDALONE", target, llama(tmp_path / "c", vocab_size=3000)) == [
        (True, "the draft D does not fit T: its vocabulary has 3000 tokens, the target's 1000")
    ]


def spec(target: Path, draft: Path, algorithm: str) -> ServerSpec:
    toml = f"model_path = '{target}'\n[speculative]\nalgorithm = '{algorithm}'\ndraft_model_path = '{draft}'\n"
    return parse(toml.encode(), Path("/s/demo.toml"))


def test_spec_is_told_by_key(tmp_path: Path, target: Path) -> None:
    found = pair(spec(target, eagle3(tmp_path / "d"), "EAGLE"))
    (finding,) = found.findings
    assert (finding.key, finding.is_error) == ("speculative.draft_model_path", True)
    assert found.target is not None


def test_models_that_are_elsewhere_hold_nothing_against_a_spec(tmp_path: Path) -> None:
    found = pair(spec(tmp_path / "nowhere", tmp_path / "neither", "EAGLE"))
    assert (found.target, found.draft, found.findings) == (None, None, ())


def test_bad_draft_is_told_with_its_path(tmp_path: Path, target: Path) -> None:
    draft = write(tmp_path / "d", config(), {})
    (draft / "model.safetensors").write_bytes(b"x")
    (finding,) = pair(spec(target, draft, "STANDALONE")).findings
    assert str(finding).startswith(
        f"speculative.draft_model_path: {draft}: model.safetensors is not a safetensors file"
    )
