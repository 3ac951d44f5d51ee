"""The unit's text: as expected to the letter, as systemd reads it, and as systemd judges it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.load import Problem, digest_of, parse
from service.spec import ServerSpec
from tests.units.systemd_syntax import argv, directives, values, words
from units.generator import Generated
from units.render import render, render_refusal
from units.verify import verify

HERE = Path(__file__).parent
SPECS = sorted((HERE / "specs").glob("*.toml"))


def unit(toml: str = "") -> str:
    raw = f"model_path = '/m'\n{toml}".encode()
    spec = parse(raw, Path("/etc/inquest/servers/demo.toml"))
    return render(spec, Path("/etc/inquest/servers/demo.toml"), digest=digest_of(raw))


def rendered(path: Path) -> str:
    raw = path.read_bytes()
    source = Path("/etc/inquest/servers") / path.name
    return render(parse(raw, source), source, digest="0123456789abcdef")


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_unit_is_as_expected(path: Path) -> None:
    """After a wanted change: UPDATE_EXPECTED=1 pytest tests/units, then read the difference."""
    golden = HERE / "golden" / f"sglang-{path.stem}.service"
    if os.environ.get("UPDATE_EXPECTED"):
        golden.write_text(rendered(path))
    assert rendered(path) == golden.read_text()


def test_refusal_is_as_expected() -> None:
    source = Path("/etc/inquest/servers/bad.toml")
    problems = (
        Problem(str(source), "port", "must be at most 65535; it is 70000"),
        Problem(str(source), "", "100% \\o/"),
    )
    golden = HERE / "golden" / "sglang-bad.service"
    text = render_refusal("sglang-bad.service", source, problems)
    if os.environ.get("UPDATE_EXPECTED"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_strings_arrive_as_written() -> None:
    text = rendered(HERE / "specs/everything.toml")
    (exec_start,) = values(text, "ExecStart")
    assert argv(exec_start)[-7:] == ["--json-model-override-args", '{"a": "$HOME\\\\n"}', "-q", "", "--", "%n;", "~"]
    assert argv(exec_start)[3:5] == ["--model-path", "/srv/models/Qwen 2.5 (100%)"]
    environment = [word for value in values(text, "Environment") for word in words(value)]
    assert environment == [
        "PATH=/opt/sglang-0.5/bin:/usr/local/cuda/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED=1",
        'QUOTED=say "hi" \\ $HOME %h',
        "EMPTY=",
    ]
    assert [words(value) for value in values(text, "RequiresMountsFor")] == [
        ["/srv/models/Qwen 2.5 (100%)", "/srv/models/draft"]
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]))), st.dictionaries(
    st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(lambda k: k not in {"PATH", "MAINPID"}),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]))))  # fmt: skip
def test_any_argument_and_variable_survives(extra: list[str], env: dict[str, str]) -> None:
    spec = ServerSpec(name="demo", model_path="/m", extra_args=["--first", *extra], env=env)
    text = render(spec, Path("/x.toml"), digest="0")
    (exec_start,) = values(text, "ExecStart")
    arguments = argv(exec_start)
    assert arguments[arguments.index("--first") + 1 :] == extra
    environment = [word for value in values(text, "Environment") for word in words(value)]
    assert {f"{key}={value}" for key, value in env.items()} <= set(environment)
    assert {name for name, _ in directives(text)} == {name for name, _ in directives(unit())}


RELIED_ON = (
    "Type",
    "KillMode",
    "LogRateLimitIntervalSec",
    "MemoryAccounting",
    "OOMPolicy",
    "SyslogIdentifier",
    "Slice",
    "NotifyAccess",
    "TimeoutStopSec",
    "ExecStopPost",
)


@pytest.mark.parametrize("directive", RELIED_ON)
def test_what_the_verdicts_rely_on_is_set_once(directive: str) -> None:
    assert len(values(unit(), directive)) == 1


def test_no_line_is_out_of_sight() -> None:
    for line in rendered(HERE / "specs/demo.toml").splitlines():
        assert len(line) <= 120


def test_comment_never_hides_a_directive() -> None:
    """A comment between continued lines would be skipped; after a value it would be part of it."""
    for line in rendered(HERE / "specs/everything.toml").splitlines():
        assert line.startswith("#") or " # " not in line


def test_other_user_keeps_his_own_home() -> None:
    text = rendered(HERE / "specs/everything.toml")
    assert not values(text, "StateDirectory")
    assert not any("HOME=" in value.split('"')[0] for value in values(text, "Environment"))
    assert values(unit(), "StateDirectory") == ["sglang"]


def test_notes_stand_in_the_unit() -> None:
    assert "# Note: speculative: has no effect without 'algorithm'" in unit("[speculative]\nnum_steps = 3")


def test_hub_model_needs_no_mount() -> None:
    spec = parse(b"model_path = 'Qwen/Qwen3-8B'", Path("/s/demo.toml"))
    assert not values(render(spec, Path("/s/demo.toml"), digest="0"), "RequiresMountsFor")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
class TestVerify:
    """systemd's own opinion. The programs that a unit names do not exist here, so this interpreter stands for them."""

    def judged(self, name: str, text: str) -> tuple[str, ...]:
        text = re.sub(r"^(Exec\w+=[-+]*)/opt/\S+", r"\1/bin/true", text, flags=re.MULTILINE)
        complaints = verify([Generated(name, text, enabled=False)])
        assert complaints is not None
        return complaints

    @pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
    def test_unit_is_accepted(self, path: Path) -> None:
        assert self.judged(f"sglang-{path.stem}.service", rendered(path)) == ()

    def test_least_unit_is_accepted(self) -> None:
        assert self.judged("sglang-demo.service", unit()) == ()

    def test_refusal_is_accepted(self) -> None:
        text = (HERE / "golden/sglang-bad.service").read_text()
        assert self.judged("sglang-bad.service", text) == ()

    def test_mistake_would_be_seen(self) -> None:
        text = unit() + "[Service]\nKillMode=gently\nNoSuchDirective=1\n"
        complaints = self.judged("sglang-demo.service", text)
        assert any("gently" in complaint for complaint in complaints)
        assert any("NoSuchDirective" in complaint for complaint in complaints)


def test_refusal_prints_every_mistake_and_fails() -> None:
    text = (HERE / "golden/sglang-bad.service").read_text()
    (exec_start,) = values(text, "ExecStart")
    done = subprocess.run(argv(exec_start), input="one\ntwo\n", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (78, "one\ntwo\n")
