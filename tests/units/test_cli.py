"""``inquest units show | check | write``."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.service.models import eagle3, llama
from units import cli
from units.cli import app
from units.generator import Generated, generated
from units.write import write

runner = CliRunner()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "servers"
    folder.mkdir()
    monkeypatch.setattr(cli, "SERVERS_DIR", folder)
    monkeypatch.setattr(cli, "spec_path", lambda name: folder / f"{name}.toml")
    monkeypatch.setattr(cli, "verify", lambda units: ())  # the programs that the units name are not on this machine
    text = f"model_path = 'org/name'\npython = '{sys.executable}'\n[speculative]\nnum_steps = 3\n"
    (folder / "good.toml").write_text(text)
    return folder


def test_show_prints_what_the_generator_makes(servers: Path) -> None:
    result = runner.invoke(app, ["show", "good"])
    assert (result.exit_code, result.output) == (0, generated(servers / "good.toml").text)
    assert runner.invoke(app, ["show", str(servers / "good.toml")]).output == result.output


def test_show_of_a_bad_spec_is_its_refusal(servers: Path) -> None:
    (servers / "bad.toml").write_text("prot = 1\n")
    result = runner.invoke(app, ["show", "bad"])
    assert result.exit_code == 1
    assert "Type=oneshot" in result.output


def test_check_of_good_specs(servers: Path) -> None:
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        f"{servers}/good.toml: note: speculative: has no effect without 'algorithm' (given: num_steps)",
        f"{servers}/good.toml: good, makes sglang-good.service",
    ]


def test_check_tells_what_sglang_makes_of_it(servers: Path) -> None:
    numbers = "num_steps = 10\neagle_topk = 1\nnum_draft_tokens = 8\n"
    speculative = f"algorithm = 'EAGLE'\ndraft_model_path = 'o/d'\n{numbers}"
    (servers / "good.toml").write_text(f"model_path = '/m'\npython = '/nowhere'\n[speculative]\n{speculative}")
    result = runner.invoke(app, ["check", "good"])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        f"{servers}/good.toml: note: memory.max_running_requests: max running requests become 48 for speculation",
        f"{servers}/good.toml: note: speculative.num_draft_tokens: topk 1: draft tokens become steps + 1 = 11 "
        "(not the 8 given)",
        f"{servers}/good.toml: note: python: /nowhere does not exist on this machine: a start here would be refused",
        f"{servers}/good.toml: note: model_path: /m does not exist on this machine: a start here would be refused",
        f"{servers}/good.toml: good, makes sglang-good.service",
    ]


def test_check_looks_into_the_models(servers: Path, tmp_path: Path) -> None:
    target, draft = llama(tmp_path / "t"), eagle3(tmp_path / "d")
    speculative = f"algorithm = 'EAGLE'\ndraft_model_path = '{draft}'\n"
    (servers / "good.toml").write_text(f"model_path = '{target}'\npython = '/nowhere'\n[speculative]\n{speculative}")
    result = runner.invoke(app, ["check", "good"])
    assert result.exit_code == 1
    mistake = f"{servers}/good.toml: speculative.draft_model_path: the draft {draft} for {target} is an EAGLE3 draft"
    assert any(line.startswith(mistake) for line in result.output.splitlines())
    assert f"{servers}/good.toml: makes sglang-good.service" in result.output.splitlines()


def test_check_tells_every_mistake(servers: Path) -> None:
    (servers / "bad.toml").write_text("model_path = '/m'\nport = 0\nprot = 1\n")
    result = runner.invoke(app, ["check", "bad", "good"])
    assert result.exit_code == 1
    assert f"{servers}/bad.toml: port: must be at least 1; it is 0" in result.output.splitlines()
    assert f"{servers}/bad.toml: prot: is not a key; did you mean 'port'?" in result.output.splitlines()
    assert f"{servers}/good.toml: good, makes sglang-good.service" in result.output.splitlines()


def test_check_passes_on_what_systemd_says(servers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "verify", lambda units: ("sglang-good.service: no such program",))
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 1
    assert "systemd-analyze verify: sglang-good.service: no such program" in result.output


def test_check_without_systemd_says_so(servers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "verify", lambda units: None)
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0
    assert "systemd-analyze is not installed" in result.output


def test_check_tells_two_servers_with_one_port(servers: Path) -> None:
    (servers / "other.toml").write_text("model_path = '/m'\n")
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0
    assert "note: port 30000 is that of good as well: only one of them can run at a time" in result.output


def test_check_of_nothing(servers: Path) -> None:
    (servers / "good.toml").unlink()
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0
    assert result.output == f"no spec in {servers}: there is nothing to check\n"


def test_write_puts_good_units_in_place(servers: Path, tmp_path: Path) -> None:
    (servers / "bad.toml").write_text("prot = 1\n")
    result = runner.invoke(app, ["write", "--dir", str(tmp_path / "units")])
    assert result.exit_code == 1
    assert [path.name for path in (tmp_path / "units").iterdir()] == ["sglang-good.service"]
    assert f"wrote {tmp_path}/units/sglang-good.service" in result.output
    assert "bad.toml: prot: is not a key" in result.output


def test_write_replaces_a_unit_whole(tmp_path: Path) -> None:
    (tmp_path / "x.service").write_text("a much longer text than the new one")
    assert write(Generated("x.service", "new\n", enabled=False), tmp_path) == tmp_path / "x.service"
    assert (tmp_path / "x.service").read_text() == "new\n"
    assert (tmp_path / "x.service").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["x.service"]


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "x.service").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(Generated("x.service", "new\n", enabled=False), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x.service"]
