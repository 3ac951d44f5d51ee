"""The generator against folders with good, bad and hopeless specs."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.units.systemd_syntax import c_unescaped, specified, values
from units.generator import complain, generate, generated

ROOT = Path(__file__).parents[2]


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    folder = tmp_path / "servers"
    folder.mkdir()
    (folder / "good.toml").write_text("model_path = '/m'\n")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "generator"
    folder.mkdir()
    return folder


def told(unit: str) -> list[str]:
    """What a refusal prints when it is started."""
    lines = [specified(c_unescaped(line)) for line in values(unit, "StandardInputText")]
    assert all(line.startswith("<3>inquest: spec refused: ") for line in lines)
    return [line.removeprefix("<3>inquest: spec refused: ") for line in lines]


def test_every_spec_becomes_a_unit(servers: Path, target: Path) -> None:
    (servers / "bad.toml").write_text("prot = 1\n")
    (servers / "broken.toml").write_text("model_path = \n")
    (servers / "binary.toml").write_bytes(bytes(range(256)))
    (servers / "empty.toml").touch()
    (servers / "folder.toml").mkdir()
    (servers / "dangling.toml").symlink_to("/nowhere")
    (servers / "loop.toml").symlink_to("loop.toml")
    (servers / "my model@home.toml").write_text("model_path = '/m'\n")
    (servers / "evil\nExecStart=.toml").write_text("model_path = '/m'\n")
    (servers / os.fsdecode(b"latin-\xe9.toml")).write_text("model_path = '/m'\n")
    complaints = generate(target, servers)
    assert sorted(path.name for path in target.iterdir()) == [
        "sglang-bad.service",
        "sglang-binary.service",
        "sglang-broken.service",
        "sglang-dangling.service",
        "sglang-empty.service",
        "sglang-evil\\x0aExecStart\\x3d.service",
        "sglang-folder.service",
        "sglang-good.service",
        "sglang-latin\\x2d\\xe9.service",
        "sglang-loop.service",
        "sglang-my\\x20model\\x40home.service",
    ]
    assert len(complaints) == 11  # bad.toml has two
    for path in target.iterdir():
        text = path.read_text(encoding="utf-8")
        good = path.name == "sglang-good.service"
        assert values(text, "Type") == (["exec"] if good else ["oneshot"])
        assert good == (not told(text))


def test_refusal_tells_the_mistakes(servers: Path, target: Path) -> None:
    (servers / "bad.toml").write_text("model_path = '/m'\nport = 0\nprot = 1\n")
    generate(target, servers)
    assert told((target / "sglang-bad.service").read_text()) == [
        f"{servers}/bad.toml: port: must be at least 1; it is 0",
        f"{servers}/bad.toml: prot: is not a key; did you mean 'port'?",
        "nothing was started; correct the file, then 'systemctl daemon-reload', and start again",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_unreadable_spec_is_told() -> None:
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
        "from units.generator import generate; os.setresuid(65534, 65534, 65534)\n"
        "print(*generate(Path(sys.argv[1]), Path(sys.argv[1])))"
    )
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        Path(folder).chmod(0o777)
        (Path(folder) / "secret.toml").touch(mode=0)
        (Path(folder) / "good.toml").write_text("model_path = '/m'\n")
        argv = [sys.executable, "-c", script, folder, str(ROOT)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout == f"{folder}/secret.toml: cannot be read: Permission denied\n"
        assert sorted(path.name for path in Path(folder).glob("*.service")) == [
            "sglang-good.service",
            "sglang-secret.service",
        ]


def test_what_is_no_spec_is_passed_over(servers: Path, target: Path) -> None:
    for name in (".good.toml.swp", ".hidden.toml", "good.toml~", "good.toml.bak", "README"):
        (servers / name).write_text("model_path = '/m'\n")
    assert generate(target, servers) == ()
    assert [path.name for path in target.iterdir()] == ["sglang-good.service"]


def test_unit_that_cannot_be_written_costs_no_other(servers: Path, target: Path) -> None:
    (servers / "a.toml").write_text("model_path = '/m'\n")
    (target / "sglang-a.service").mkdir()
    (complaint,) = generate(target, servers)
    assert complaint.startswith(f"{servers}/a.toml: IsADirectoryError")
    assert (target / "sglang-good.service").is_file()


def test_no_folder_is_no_complaint(tmp_path: Path, target: Path) -> None:
    assert generate(target, tmp_path / "none") == ()


def test_enabled_server_starts_with_the_machine(servers: Path, target: Path) -> None:
    (servers / "on.toml").write_text("model_path = '/m'\nenabled = true\n")
    (servers / "bad.toml").write_text("enabled = true\n")
    generate(target, servers)
    wants = target / "multi-user.target.wants"
    assert sorted(path.name for path in wants.iterdir()) == ["sglang-bad.service", "sglang-on.service"]
    assert (wants / "sglang-on.service").resolve() == target / "sglang-on.service"


def test_steps_run_in_the_generators_own_environment(servers: Path) -> None:
    text = generated(servers / "good.toml", inquest_python="/venv/bin/python").text
    steps = [v for name in ("ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost") for v in values(text, name)]
    assert len(steps) == 6
    for step in steps:
        assert step.lstrip("+-").startswith("/venv/bin/python -I -m service ")


class TestProgram:
    """As systemd calls it: three folders, hardly any environment."""

    def run(self, *folders: Path, servers: Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "units.generator", *map(str, folders)]
        env = {"INQUEST_SERVERS": str(servers), "PYTHONPATH": str(ROOT)}
        return subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True)

    def test_three_folders(self, servers: Path, target: Path) -> None:
        done = self.run(target, target / "early", target / "late", servers=servers)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert [path.name for path in target.iterdir()] == ["sglang-good.service"]

    def test_no_folder(self, servers: Path) -> None:
        done = self.run(servers=servers)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: ")

    def test_imports_stay_few(self, servers: Path, target: Path) -> None:
        """It runs at every boot before everything else, and at every daemon-reload."""
        script = "import sys, units.generator; print(*{m.split('.')[0] for m in sys.modules})"
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
        assert not {"typer", "rich", "fastapi", "uvicorn", "psutil", "systemd", "forensics"} & set(done.stdout.split())


def test_complaints_reach_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "socket"))
        complain(("a.toml: bad",), str(tmp_path / "socket"), str(tmp_path / "kmsg"))
        assert journal.recv(4096) == b"MESSAGE=a.toml: bad\nPRIORITY=3\nSYSLOG_IDENTIFIER=inquest-generator\n"
    assert capsys.readouterr().err == "inquest-generator: a.toml: bad\n"
    assert not (tmp_path / "kmsg").exists()


def test_complaints_before_journald_go_to_the_kernels_buffer(tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    complain(("a.toml: bad",), str(tmp_path / "none"), str(tmp_path / "kmsg"))
    assert (tmp_path / "kmsg").read_text() == "<3>inquest-generator: a.toml: bad"
    began = time.monotonic()
    complain(("a.toml: bad",), str(tmp_path / "none"), str(tmp_path / "no" / "kmsg"))
    assert time.monotonic() - began < 1
