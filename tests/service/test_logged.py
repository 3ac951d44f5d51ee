"""What a run logs, as it comes. journalctl is a stand-in here: this machine may have no journal to read."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from service.ground import _last_line
from service.logged import Logged, ask_last_line, memory_lines

Journalctl = Callable[[str], Path]


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journalctl:
    """Put a script in its place; returns the file that its arguments go to."""

    def put(script: str) -> Path:
        (tmp_path / "journalctl").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/arguments\n{script}\n')
        (tmp_path / "journalctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "arguments"

    return put


def read(logged: Logged, count: int) -> list[str]:
    lines: list[str] = []
    until = time.monotonic() + 5
    while len(lines) < count and time.monotonic() < until:
        lines += logged.lines()
        os.sched_yield()
    return lines


def test_lines_come_whole_and_without_waiting(journalctl: Journalctl, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    arguments = journalctl(f"printf 'one\\ntw'; read x <{tmp_path}/go; printf 'o\\n'; exec sleep 60")
    with Logged("abc") as logged:
        assert read(logged, 1) == ["one"]
        assert logged.lines() == []
        (tmp_path / "go").write_text("\n")
        assert read(logged, 1) == ["two"]
    assert {"--follow", "_SYSTEMD_INVOCATION_ID=abc", "_TRANSPORT=stdout"} <= set(arguments.read_text().split())


@pytest.mark.parametrize("run", ["", "abc"])
def test_without_a_journal_there_are_no_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with Logged(run) as logged:
        assert logged.lines() == []
    assert memory_lines("sglang-demo.service") == []


def test_last_line(journalctl: Journalctl) -> None:
    ours = "1764428559.000000 host sglang-demo[9]: inquest: not ready after 3 s"
    journalctl(f"echo '1764428551.0 host sglang-demo[7]: a'; echo '1764428552.123456 host x[7]: b'; echo '{ours}'")
    gaps: list[str] = []
    assert _last_line(ask_last_line("abc"), gaps) == 1764428552123456
    assert gaps == []


@pytest.mark.parametrize(
    ("script", "gap"),
    [
        ("echo 1nonsense", ["the journal's answer was not understood"]),
        ("exit 1", []),
        ("echo '1.0 host x[9]: inquest: ready'", []),
    ],
)
def test_no_last_line(journalctl: Journalctl, script: str, gap: list[str]) -> None:
    journalctl(script)
    gaps: list[str] = []
    assert _last_line(ask_last_line("abc"), gaps) is None
    assert gaps == gap


def test_slow_journal_is_not_waited_for(journalctl: Journalctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.ground.JOURNAL_SECONDS", 0.1)
    journalctl("exec sleep 60")
    gaps: list[str] = []
    question = ask_last_line("abc")
    assert _last_line(question, gaps) is None
    assert gaps == ["the journal did not answer within 0.1 s"]
    assert question.returncode is not None
    assert question.stdout is not None
    question.stdout.close()


def test_memory_lines_are_in_the_order_of_the_log(journalctl: Journalctl) -> None:
    journalctl("printf 'max_total_num_tokens=1\\nLoad weight begin.\\n'")
    assert memory_lines("sglang-demo.service") == ["Load weight begin.", "max_total_num_tokens=1"]
