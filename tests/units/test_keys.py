"""The list of keys tells the truth: each key really sets what it is said to set."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.command import command
from service.load import load
from tests.units.systemd_syntax import directives
from units.cli import app
from units.keys import DIRECTIVES, Key, keys
from units.render import render

EVERYTHING = Path(__file__).parent / "specs/everything.toml"


def test_each_key_is_listed_once() -> None:
    names = [key.name for key in keys()]
    assert len(names) == len(set(names))
    assert {"model_path", "speculative.num_steps", "memory.page_size", "limits.restart", "env"} <= set(names)
    assert "name" not in names


@pytest.mark.parametrize(
    ("name", "default", "becomes"),
    [
        ("model_path", "must be given", "--model-path"),
        ("port", "30000", "--port"),
        ("trust_remote_code", "false", "--trust-remote-code"),
        ("speculative.num_steps", "", "--speculative-num-steps"),
        ("parallel.tp_size", "", "--tp-size"),
        ("limits.memory_max", "", "MemoryMax="),
        ("limits.restart", "on-failure", "Restart="),
        ("extra_args", "", "ExecStart=, at its end"),
    ],
)
def test_key_is_told(name: str, default: str, becomes: str) -> None:
    assert Key(name, default, becomes) in tuple(keys())


def test_each_directive_named_is_set(tmp_path: Path) -> None:
    shutil.copy(EVERYTHING, tmp_path / "demo.toml")
    text = render(load(tmp_path / "demo.toml"), tmp_path / "demo.toml", digest="0")
    named = {becomes.partition("=")[0] for becomes in DIRECTIVES.values() if "=" in becomes}
    assert named <= {name for name, _ in directives(text)}


def test_each_option_named_is_the_commands(tmp_path: Path) -> None:
    shutil.copy(EVERYTHING, tmp_path / "demo.toml")
    argv = command(load(tmp_path / "demo.toml")).argv
    given = argv[3 : argv.index("--json-model-override-args")]
    assert {word for word in given if word.startswith("--")} <= {key.becomes for key in keys()}


def test_list_is_printed() -> None:
    result = CliRunner().invoke(app, ["keys"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["key", "default", "sets"]
    assert len(lines) == 1 + len(tuple(keys()))


def test_the_keys_as_json() -> None:
    listed = json.loads(CliRunner().invoke(app, ["keys", "--format", "json"]).output)
    assert {"name": "port", "default": "30000", "becomes": "--port"} in listed
    assert len(listed) == len(tuple(keys()))
