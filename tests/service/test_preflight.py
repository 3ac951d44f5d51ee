"""Checks before a start: each refusal in its words, and what is let pass."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service import installed
from service import preflight as module
from service.checks import draft_model_path, interpreter, model_path, models, options, port
from service.exit_status import PREFLIGHT_REFUSED
from service.load import digest_of, parse
from service.preflight import CHECKS, preflight
from service.row import Row
from service.spec import ServerSpec
from tests.service.models import eagle, eagle3, llama


def spec(toml: str = "", **keys: object) -> ServerSpec:
    keys = {"model_path": "/m"} | keys
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return parse("\n".join([*lines, toml]).encode(), Path("/s/demo.toml"))


def passes(row: Row | None) -> bool:
    return row is not None and row.state == "ok"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that passes for a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """This interpreter by another name, seeing a package sglang that must never be imported."""
    package = tmp_path / "site/sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    path = tmp_path / "python"
    path.symlink_to(os.path.realpath(sys.executable))
    return path


class TestInterpreter:
    def test_with_sglang_passes(self, python: Path, tmp_path: Path) -> None:
        assert passes(interpreter(spec(f"[env]\nPYTHONPATH = '{tmp_path}/site'", python=str(python))))

    def test_without_sglang(self, python: Path) -> None:
        assert str(interpreter(spec(python=str(python)))) == (
            f"inquest: preflight refused: interpreter: {python} has no package 'sglang'; "
            f"install it: {python} -m pip install sglang"
        )

    def test_missing(self) -> None:
        assert str(interpreter(spec(python="/nowhere/python"))) == (
            "inquest: preflight refused: interpreter: /nowhere/python does not exist; "
            "install SGLang's environment there or correct 'python'"
        )

    def test_folder(self, tmp_path: Path) -> None:
        refusal = interpreter(spec(python=str(tmp_path)))
        assert refusal is not None
        assert refusal.message.startswith(f"{tmp_path} cannot be executed by user ")

    def test_not_executable(self, tmp_path: Path) -> None:
        (tmp_path / "python").write_text("#!/bin/sh\n")
        refusal = interpreter(spec(python=str(tmp_path / "python")))
        assert refusal is not None
        assert "cannot be executed by user" in refusal.message

    def test_no_program(self, tmp_path: Path) -> None:
        (tmp_path / "python").write_bytes(b"\x00\x01")
        (tmp_path / "python").chmod(0o755)
        refusal = interpreter(spec(python=str(tmp_path / "python")))
        assert refusal is not None
        assert refusal.message == f"{tmp_path}/python cannot be executed: Exec format error"

    def test_broken(self, tmp_path: Path) -> None:
        (tmp_path / "python").write_text("#!/bin/sh\necho 'libpython3.so: cannot open' >&2\nexit 127\n")
        (tmp_path / "python").chmod(0o755)
        refusal = interpreter(spec(python=str(tmp_path / "python")))
        assert refusal is not None
        assert refusal.message == f"{tmp_path}/python does not run: libpython3.so: cannot open"

    def test_slow_one_passes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installed, "DEADLINE_SECONDS", 0.1)
        (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / "python").chmod(0o755)
        assert getattr(interpreter(spec(python=str(tmp_path / "python"))), "state", None) == "unknown"


class TestModel:
    def test_model_passes(self, model: Path) -> None:
        assert passes(model_path(spec(model_path=str(model))))

    @pytest.mark.parametrize("reference", ["Qwen/Qwen3-8B", "s3://bucket/model"])
    def test_what_sglang_fetches_passes(self, reference: str) -> None:
        assert passes(model_path(spec(model_path=reference)))

    def test_gguf_file_passes(self, tmp_path: Path) -> None:
        (tmp_path / "model.gguf").touch()
        assert passes(model_path(spec(model_path=str(tmp_path / "model.gguf"))))

    def test_mistral_format_passes(self, tmp_path: Path) -> None:
        (tmp_path / "params.json").touch()
        assert passes(model_path(spec(model_path=str(tmp_path))))

    def test_missing(self) -> None:
        assert str(model_path(spec(model_path="/nowhere/model"))) == (
            "inquest: preflight refused: model-path: /nowhere/model: No such file or directory; "
            "correct 'model_path' or put the model there"
        )

    def test_file(self, model: Path) -> None:
        refusal = model_path(spec(model_path=str(model / "config.json")))
        assert refusal is not None
        assert refusal.message == f"{model}/config.json is a file, not a model's folder"

    def test_empty_folder(self, tmp_path: Path) -> None:
        refusal = model_path(spec(model_path=str(tmp_path)))
        assert refusal is not None
        assert refusal.message == f"{tmp_path} is an empty folder"
        assert refusal.advice.endswith("is it a mount point with nothing mounted?")

    def test_no_config(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").touch()
        refusal = model_path(spec(model_path=str(tmp_path)))
        assert refusal is not None
        assert refusal.message == f"{tmp_path} holds no model: there is no config.json in it"

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ("version https://git-lfs.github.com/spec/v1", "config.json is not valid JSON: Expecting value"),
            ("", "config.json is not valid JSON: Expecting value"),
            ("[]", "config.json is not a model's configuration"),
        ],
    )
    def test_bad_config(self, model: Path, config: str, words: str) -> None:
        (model / "config.json").write_text(config)
        refusal = model_path(spec(model_path=str(model)))
        assert refusal is not None
        assert words in refusal.message

    def test_draft_is_told_by_its_own_key(self) -> None:
        toml = "[speculative]\nalgorithm = 'EAGLE'\ndraft_model_path = '/nowhere/draft'"
        assert str(draft_model_path(spec(toml))) == (
            "inquest: preflight refused: draft-model-path: /nowhere/draft: No such file or directory; "
            "correct 'speculative.draft_model_path' or put the model there"
        )

    def test_no_draft_passes(self) -> None:
        assert draft_model_path(spec()) is None

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
    def test_unreadable_for_the_servers_user(self, model: Path) -> None:
        model.parent.chmod(0o700)
        script = (
            "import os, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
            "from service.checks import model_path; from service.load import parse\n"
            "os.setresuid(65534, 65534, 65534)\n"
            "print(model_path(parse(f'model_path = \"{sys.argv[1]}\"'.encode(), Path('/s/demo.toml'))))"
        )
        argv = [sys.executable, "-c", script, str(model), str(Path(__file__).parents[2])]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout == (
            f"inquest: preflight refused: model-path: {model} is not readable for user nobody; "
            f"check it with: namei -l {model}\n"
        )


class TestOptions:
    @pytest.fixture
    def sglang(self, python: Path, tmp_path: Path) -> str:
        """A spec's lines for an SGLang that knows few options."""
        args = tmp_path / "site/sglang/srt/server_args.py"
        args.parent.mkdir()
        args.write_text("for o in (): p.add_argument('--model-path', '--host'); p.add_argument('--port')\n")
        return f"[env]\nPYTHONPATH = '{tmp_path}/site'\n"

    def test_known(self, python: Path, sglang: str) -> None:
        assert passes(options(spec(sglang, python=str(python))))

    def test_unknown(self, python: Path, sglang: str) -> None:
        row = options(spec(sglang + "[memory]\npage_size = 16", python=str(python)))
        assert str(row) == (
            "inquest: preflight refused: options: memory.page_size: --page-size is no option of the installed SGLang, "
            "which would refuse to start; correct the spec, or install another release"
        )

    def test_not_to_be_read(self, python: Path, tmp_path: Path) -> None:
        row = options(spec(f"[env]\nPYTHONPATH = '{tmp_path}/site'", python=str(python)))
        assert row is not None
        assert row.state == "unknown"

    def test_no_sglang_is_told_elsewhere(self) -> None:
        assert options(spec(python="/nowhere/python")) is None


class TestModels:
    def spec(self, target: Path, draft: Path, algorithm: str) -> ServerSpec:
        draft_keys = f"[speculative]\nalgorithm = '{algorithm}'\ndraft_model_path = '{draft}'"
        return spec(draft_keys, model_path=str(target))

    def test_pair_that_fits(self, tmp_path: Path) -> None:
        row = models(self.spec(llama(tmp_path / "t"), eagle(tmp_path / "d"), "EAGLE"))
        assert row == Row("models", "ok", "the draft fits the target")

    def test_pair_that_does_not(self, tmp_path: Path) -> None:
        target, draft = llama(tmp_path / "t"), eagle3(tmp_path / "d")
        row = models(self.spec(target, draft, "EAGLE"))
        assert row is not None
        assert row.state == "refused"
        assert row.message.startswith(f"the draft {draft} for {target} is an EAGLE3 draft")

    def test_pair_that_may_work_badly(self, tmp_path: Path) -> None:
        draft = llama(tmp_path / "d", vocab_size=1010)
        row = models(self.spec(llama(tmp_path / "t"), draft, "STANDALONE"))
        assert row is not None
        assert row.state == "warning"

    def test_models_elsewhere(self) -> None:
        assert models(spec(model_path="org/name")) is None


def test_running_server_is_not_held_against_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_running", lambda spec: 7)
    rows = {row.check: row for row in preflight(spec(), by_hand=True)}
    assert rows["unit"].message == "it runs now as pid 7: its port and GPU memory are not checked"
    assert not {"port", "left-over", "gpu-memory"} & set(rows)


class TestPort:
    def test_free_port_passes(self, free_port: int) -> None:
        assert passes(port(spec(port=free_port)))

    @pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
    def test_taken(self, serve: Callable[..., tuple[subprocess.Popen[str], int]], host: str) -> None:
        process, number = serve()
        refusal = port(spec(port=number, host=host))
        assert refusal is not None
        assert refusal.message.startswith(f"port {number} of {host} is taken by pid {process.pid} (python")
        assert refusal.advice == "stop it or change 'port'"

    def test_taken_without_listening(self) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            number = sock.getsockname()[1]
            refusal = port(spec(port=number))
        assert refusal is not None
        assert refusal.message == f"port {number} of 127.0.0.1 is taken by a socket that does not listen yet"

    def test_last_lifes_connections_do_not_matter(self) -> None:
        """A closed server leaves connections in TIME_WAIT; SGLang can listen beside them."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            number = server.getsockname()[1]
            client = socket.create_connection(("127.0.0.1", number))
            accepted, _ = server.accept()
        accepted.close()
        client.recv(1)
        client.close()
        assert passes(port(spec(port=number)))

    def test_address_of_another_machine(self) -> None:
        refusal = port(spec(host="192.0.2.1"))
        assert refusal is not None
        assert refusal.message == "192.0.2.1 is not an address of this machine"

    def test_unknown_name(self) -> None:
        refusal = port(spec(host="no such host.invalid"))
        assert refusal is not None
        assert refusal.message.startswith("host 'no such host.invalid' has no address: ")


def test_every_refusal_is_told(free_port: int) -> None:
    refused = preflight(spec(port=free_port, model_path="/nowhere/model", python="/nowhere/python"))
    assert [row.check for row in refused if row.state == "refused"] == ["interpreter", "model-path"]


def test_broken_check_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: ServerSpec) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "CHECKS", (broken,))
    (row,) = preflight(spec())
    assert row == Row("broken", "unknown", "could not be checked: ZeroDivisionError()")


def test_checks_are_listed_once() -> None:
    assert len(set(CHECKS)) == len(CHECKS)


class TestMain:
    """The step as the unit runs it, with the spec in a folder of the test's."""

    @pytest.fixture
    def server(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(module, "spec_path", lambda name: tmp_path / f"{name}.toml")
        monkeypatch.setattr(module.signal, "signal", lambda *_: None)  # this process has others to answer to
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        only = {"interpreter", "model_path", "port"}  # the machine that runs the test is not the test's
        monkeypatch.setattr(module, "CHECKS", tuple(check for check in CHECKS if check.__name__ in only))
        return tmp_path / "demo.toml"

    def test_refuses(self, server: Path, free_port: int, capsys: pytest.CaptureFixture[str]) -> None:
        server.write_text(f"model_path = '/nowhere/model'\npython = '/nowhere/python'\nport = {free_port}\n")
        assert module.main("demo", digest_of(server.read_bytes())) == PREFLIGHT_REFUSED
        lines = capsys.readouterr().err.splitlines()
        assert [line.split(": ")[:3] for line in lines] == [
            ["inquest", "preflight refused", "interpreter"],
            ["inquest", "preflight refused", "model-path"],
        ]

    def test_lines_have_a_priority_in_the_journal(
        self, server: Path, free_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JOURNAL_STREAM", "8:1")
        keys = f"model_path = '/nowhere/model'\npython = '/nowhere/python'\nport = {free_port}\n"
        server.write_text(keys + "[speculative]\nnum_steps = 3\n")
        assert module.main("demo") == PREFLIGHT_REFUSED
        lines = capsys.readouterr().err.splitlines()
        assert [line[:12] for line in lines] == ["<5>inquest: ", "<3>inquest: ", "<3>inquest: "]

    def test_edited_spec_refuses_nothing(self, server: Path, capsys: pytest.CaptureFixture[str]) -> None:
        server.write_text("model_path = '/nowhere/model'\n")
        digest = digest_of(server.read_bytes())
        server.write_text("model_path = '/nowhere/other'\nprot = 3\n")
        assert module.main("demo", digest) == 0
        assert "has changed since; systemctl daemon-reload makes it count" in capsys.readouterr().err

    def test_unreadable_spec_refuses_nothing(self, server: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert module.main("demo", "0" * 16) == 0
        assert capsys.readouterr().err.startswith("inquest: preflight: not checked: ")
