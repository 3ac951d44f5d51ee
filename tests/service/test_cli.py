"""``inquest preflight`` and ``inquest command``, and the steps' own command line."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.exit_status import PREFLIGHT_REFUSED, SPEC_REFUSED

runner = CliRunner()


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "demo.toml"
    path.write_text("model_path = '/nowhere/model'\npython = '/nowhere/python'\n[env]\nX = 'a b'\n")
    return path


def test_preflight_tells_what_speaks_against_a_start(spec: Path) -> None:
    result = runner.invoke(app, ["preflight", str(spec)])
    assert result.exit_code == PREFLIGHT_REFUSED
    assert "refused  /nowhere/python does not exist; install" in result.output
    assert "refused  /nowhere/model: No such file or directory" in result.output


def test_preflight_as_json_is_the_checks_and_nothing_else(spec: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "forensics", "preflight", str(spec), "--format", "json"], capture_output=True, text=True
    )
    assert done.returncode == PREFLIGHT_REFUSED
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert rows["interpreter"]["state"] == "refused"
    assert rows["interpreter"]["advice"]


def test_command_is_ready_for_a_shell(spec: Path) -> None:
    result = runner.invoke(app, ["command", str(spec)])
    assert result.exit_code == 0
    words = shlex.split(result.output)
    assert words[0] == "env"
    assert "X=a b" in words
    assert words[words.index("/nowhere/python") :][1:3] == ["-m", "sglang.launch_server"]


@pytest.mark.parametrize("command", ["preflight", "command"])
def test_bad_spec_is_told(spec: Path, command: str) -> None:
    spec.write_text("prot = 3\n")
    result = runner.invoke(app, [command, str(spec)])
    assert result.exit_code == SPEC_REFUSED
    assert result.output.splitlines() == [
        f"{spec}: model_path: is missing: every server needs it",
        f"{spec}: prot: is not a key; did you mean 'port'?",
    ]


def test_unknown_server_is_told() -> None:
    result = runner.invoke(app, ["command", "nosuchserver"])
    assert result.exit_code == SPEC_REFUSED
    assert result.output.startswith("/etc/inquest/servers/nosuchserver.toml: does not exist")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["preflight"],
        ["wait-ready", "demo"],
        ["wait-ready", "demo", "--host", "h", "--port", "x"],
        ["remains"],
        ["dance", "demo"],
    ],
)
def test_step_with_wrong_words_shows_usage(argv: list[str]) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "service", *argv], capture_output=True, text=True, cwd=root)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m service leftovers NAME")
