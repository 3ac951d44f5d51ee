"""`inquest analyze` as it is typed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forensics import __main__ as command
from forensics.cli import build
from forensics.errors import InputError
from tests.forensics.analyze.saved import Journal, child_died, exception, oom, served, stopped, write

KEYS = {
    "cause", "strength", "family", "subclass", "phase", "unit", "invocation_id", "died_at", "summary", "evidence",
    "ruled_out", "gaps", "also", "notes", "advice", "fingerprint", "run",
}  # fmt: skip


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(), ["analyze", *arguments])
    if isinstance(result.exception, InputError):
        raise result.exception
    return result.exit_code, result.stdout


def test_one_object_with_all_crashes(tmp_path: Path) -> None:
    path = write(
        tmp_path, [*served(), *exception(40, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.")]
    )
    code, out = run("--format", "json", path)
    found = json.loads(out)
    assert code == 0
    assert [crash["cause"] for crash in found["crashes"]] == ["cuda-oom"]
    assert set(found["crashes"][0]) >= KEYS
    piece = found["crashes"][0]["evidence"][0]
    assert set(piece) >= {"role", "source", "ref", "message"}
    name, _, number = piece["ref"].rpartition(":")
    assert name == path
    assert "OutOfMemoryError" in Path(path).read_text().splitlines()[int(number) - 1]


def test_no_crash_is_an_answer_with_its_reason(tmp_path: Path) -> None:
    path = write(tmp_path, [*served(), *stopped(40)])
    code, out = run("--format", "json", path)
    found = json.loads(out)
    assert (code, found["crashes"]) == (0, [])
    assert found["reason"]
    assert run(path) == (0, f"No crash: {found['reason']}.\n")


def test_the_report_reads_like_that_of_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    journal = Journal().started()
    for text in oom(4711, "python3"):
        journal.kernel(44, text)
    path.write_bytes(journal.exited(45).json())
    code, out = run(str(path))
    assert code == 0
    assert "kernel-oom, confirmed" in out
    assert "journalctl _SYSTEMD_INVOCATION_ID=" in out


def test_the_report_says_what_text_did_not_tell(tmp_path: Path) -> None:
    _, out = run(write(tmp_path, [*served(), *child_died(40, -9)]))
    assert "unexplained-kill, likely" in out
    assert "Read the kernel log around 2026-05-17 08:00 UTC" in out
    assert "_SYSTEMD_INVOCATION_ID" not in out
    _, out = run(write(tmp_path, ["TypeError: unhashable type: 'dict'"]))
    assert "was never ready" not in out


@pytest.mark.parametrize("content", [None, bytes(range(256)) * 30])
def test_what_cannot_be_read_ends_with_2(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["inquest", "analyze", str(path)])
    with pytest.raises(SystemExit) as left:
        command.main()
    assert left.value.code == 2
    assert str(path) in capsys.readouterr().err
