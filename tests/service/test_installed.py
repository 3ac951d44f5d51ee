"""What an interpreter's SGLang knows, from its files; written as 0.5.10 and as 0.5.23 have them."""

import os
import sys
from pathlib import Path

import pytest

from service.installed import Installed, NoInterpreter, NoSglang, find, options_in, parse_version
from service.load import parse
from service.release import against

BY_HAND = """
import argparse
QUANTIZATION_CHOICES = ["awq", "fp8"]
class ServerArgs:
    model_path: str
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True)
        parser.add_argument("--quantization", choices=QUANTIZATION_CHOICES)
        parser.add_argument("--speculative-algorithm", type=str, choices=["EAGLE", "EAGLE3", "NGRAM"])
        parser.add_argument("--speculative-num-steps", type=int)
        parser.add_argument("--cuda-graph-max-bs", type=int)
        parser.add_argument("--host", type=str)
        parser.add_argument("--port", type=int)
"""
CHOICES = 'LOAD_FORMAT_CHOICES = ["auto", "dummy"]\nOTHER = LOAD_FORMAT_CHOICES + ["x"]\n'
FIELDS = """
from typing import Literal, Optional
from sglang.srt.arg_groups.arg_utils import A, Arg
from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES
class Spec:
    _NS_PATH = "spec"
    plain: int = 3
    speculative_algorithm: A[Optional[str], "Any name."] = None
    speculative_draft_model_path: A[Optional[str], Arg(help="A path.", aliases=["--speculative-draft-model"])] = None
    speculative_boundary_reduction: A[Literal["ar", "rs"], Arg(no_cli=True)] = "rs"
    speculative_draft_load_format: A[Optional[str], Arg(help="x" "y", choices=LOAD_FORMAT_CHOICES)] = None
    tp_size: A[int, Arg(help="n", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    speculative_attention_mode: A[Literal["prefill", "decode"], "Mode."] = "prefill"
    cuda_graph_max_bs_decode: A[Optional[int], "n"] = None
    cuda_graph_max_bs_prefill: A[Optional[int], "n"] = None
"""


def package(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return package(tmp_path / "sglang", {"srt/server_args.py": BY_HAND, "__init__.py": "raise SystemExit(1)"})


@pytest.fixture
def new(tmp_path: Path) -> Path:
    files = {"srt/server_args.py": "", "srt/arg_groups/choices.py": CHOICES, "srt/arg_groups/fields/spec.py": FIELDS}
    return package(tmp_path / "sglang", files)


def test_options_added_by_hand(old: Path) -> None:
    assert options_in(old) == {
        "--model-path": (),
        "--model": (),
        "--quantization": ("awq", "fp8"),
        "--speculative-algorithm": ("EAGLE", "EAGLE3", "NGRAM"),
        "--speculative-num-steps": (),
        "--cuda-graph-max-bs": (),
        "--host": (),
        "--port": (),
    }


def test_options_from_annotated_fields(new: Path) -> None:
    assert options_in(new) == {
        "--speculative-algorithm": (),
        "--speculative-draft-model-path": (),
        "--speculative-draft-model": (),
        "--speculative-draft-load-format": ("auto", "dummy"),
        "--tensor-parallel-size": (),
        "--tp-size": (),
        "--speculative-attention-mode": ("prefill", "decode"),
        "--cuda-graph-max-bs-decode": (),
        "--cuda-graph-max-bs-prefill": (),
    }


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("--tp-size", True),
        ("--tp-size=2", True),
        ("--speculative-draft-load", True),  # the only one that begins so
        ("--no-speculative-attention-mode", True),  # argparse's BooleanOptionalAction makes such
        ("--cuda-graph-max-bs", False),  # two begin so
        ("--speculative-ngram-branch-length", False),
    ],
)
def test_option_is_known_as_argparse_would(new: Path, option: str, known: bool) -> None:
    assert Installed((0, 5, 23), options_in(new)).knows(option) is known


def test_unknown_options_hold_nothing_against_a_spec() -> None:
    assert Installed(None, {}).knows("--anything")


def test_damaged_files_know_nothing(tmp_path: Path) -> None:
    assert options_in(package(tmp_path / "sglang", {"srt/server_args.py": "def (:"})) == {}


def test_found_without_importing_anything(old: Path, tmp_path: Path) -> None:
    (tmp_path / "sglang-0.5.10.post1.dist-info").mkdir()
    package(tmp_path / "torch", {"__init__.py": "raise SystemExit(1)", "version.py": VERSION})
    found = find(sys.executable, {"PYTHONPATH": str(tmp_path)})
    assert found is not None
    assert (found.version, found.torch, found.cuda) == ((0, 5, 10), "2.9.1+cu128", (12, 8))
    assert str(found) == "SGLang 0.5.10"
    assert "--speculative-num-steps" in found.options


VERSION = "from typing import Optional\n__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n"


def test_without_sglang(tmp_path: Path) -> None:
    with pytest.raises(NoSglang):
        find(sys.executable, {"PYTHONPATH": str(tmp_path)})


def test_interpreter_that_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    os.chmod(tmp_path / "python", 0o755)
    with pytest.raises(NoInterpreter, match="does not run: broken"):
        find(str(tmp_path / "python"), {})


@pytest.mark.parametrize(
    ("text", "version"), [("0.5.10.post1", (0, 5, 10)), ("v0.4", (0, 4, 0)), ("main", None), ("0.5.23rc1", (0, 5, 23))]
)
def test_version(text: str, version: object) -> None:
    assert parse_version(text) == version


def findings(toml: str, installed: Installed) -> list[tuple[bool, str]]:
    spec = parse(f"model_path = '/m'\n{toml}".encode(), Path("/s/demo.toml"))
    return [(found.is_error, str(found)) for found in against(spec, installed)]


def test_option_that_the_release_does_not_know_is_refused(old: Path) -> None:
    installed = Installed((0, 5, 10), options_in(old))
    assert findings("[speculative]\nalgorithm = 'NGRAM'\nnum_draft_tokens = 4", installed) == [
        (
            True,
            "speculative.num_draft_tokens: --speculative-num-draft-tokens is no option of the installed SGLang 0.5.10, "
            "which would refuse to start",
        )
    ]


def test_nearest_option_is_named(old: Path) -> None:
    ((_, words),) = findings("extra_args = ['--speculative-nums-steps', '3']", Installed(None, options_in(old)))
    assert words.endswith(
        "is no option of the installed SGLang, which would refuse to start; the nearest it knows is "
        "--speculative-num-steps"
    )


def test_option_without_a_key_is_told_by_where_it_stands(old: Path) -> None:
    ((is_error, words),) = findings("extra_args = ['--new-thing', '3']", Installed((0, 5, 10), options_in(old)))
    assert is_error
    assert words.startswith("extra_args: --new-thing is no option of the installed SGLang 0.5.10")


def test_algorithm_that_the_release_does_not_have_is_refused(old: Path) -> None:
    toml = "[speculative]\nalgorithm = 'DFLASH'\nnum_steps = 1"
    installed = Installed((0, 5, 10), options_in(old) | {"--speculative-draft-model-path": ()})
    ((is_error, words),) = findings(f"{toml}\ndraft_model_path = '/d'", installed)
    assert is_error
    assert words == (
        "speculative.algorithm: 'DFLASH' is not among the values that the installed SGLang 0.5.10 lists for "
        "--speculative-algorithm: EAGLE, EAGLE3, NGRAM"
    )


def test_other_value_may_come_from_a_plugin(old: Path) -> None:
    ((is_error, _),) = findings("quantization = 'mine'", Installed((0, 5, 10), options_in(old)))
    assert not is_error


@pytest.mark.parametrize(
    ("version", "backend", "errors"),
    [
        ((0, 5, 10), "triton", [True]),
        ((0, 5, 23), "triton", []),
        ((0, 5, 23), "flashmla", [True]),
        ((0, 5, 10), "flashinfer", []),
        ((0, 5, 23), None, [False]),
    ],
)
def test_trees_and_pages(version: tuple[int, int, int], backend: str | None, errors: list[bool]) -> None:
    given = f"attention_backend = '{backend}'\n" if backend else ""
    toml = f"{given}[speculative]\nalgorithm = 'EAGLE'\ndraft_model_path = '/d'\nnum_steps = 3\neagle_topk = 4\n"
    toml += "num_draft_tokens = 8\n[memory]\npage_size = 64"
    assert [is_error for is_error, _ in findings(toml, Installed(version, {}))] == errors


def test_pipeline_with_speculation_in_an_old_release() -> None:
    toml = "[speculative]\nalgorithm = 'NGRAM'\n[parallel]\npp_size = 2"
    assert findings(toml, Installed((0, 5, 6), {})) == [
        (True, "parallel.pp_size: must be 1 with speculation in SGLang 0.5.6")
    ]
    assert [error for error, _ in findings(toml, Installed((0, 5, 23), {}))] == [False]
