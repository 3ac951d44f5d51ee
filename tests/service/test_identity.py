"""Which processes are a server's own, and what is left of them: ended, and nothing else."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from service import leftovers
from service.cgroup import Cgroup
from service.identity import Identity, Note, command_line, identity, note, noted, state
from service.leftovers import LeftOver, describe, end, find

Start = Callable[..., "subprocess.Popen[str]"]


def of(process: "subprocess.Popen[str]") -> Identity:
    found = identity(process.pid)
    assert found is not None
    return found


def test_identity_is_pid_and_start(start: Start) -> None:
    process = start("sleep", "60")
    ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert of(process) == Identity(process.pid, int(ticks))


def test_zombie_is_nobody(start: Start) -> None:
    process = start("sleep", "60")
    before = of(process)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity(process.pid) is None
    assert state(before) == "Z"


def test_another_process_of_the_same_pid_is_another(start: Start) -> None:
    process = of(start("sleep", "60"))
    assert state(Identity(process.pid, process.start_ticks + 1)) is None


def test_note_is_read_back(start: Start, tmp_path: Path) -> None:
    process = start("sleep", "60")
    note("demo", "run1", [process.pid, 2**22 + 1], tmp_path)
    assert noted("demo", tmp_path) == Note("run1", frozenset({of(process)}))
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


@pytest.mark.parametrize("text", ["", "run\n12\n", "run\n12 x\n"])
def test_damaged_note_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "demo").write_text(text)
    assert noted("demo", tmp_path) is None


def test_no_note(tmp_path: Path) -> None:
    assert noted("demo", tmp_path) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_note_that_another_user_wrote_is_not_believed(tmp_path: Path) -> None:
    note("demo", "run1", [os.getpid()], tmp_path)
    os.chown(tmp_path / "demo", 65534, 65534)
    assert noted("demo", tmp_path) is None


def test_left_over_is_found_by_note_and_by_cgroup(start: Start, tmp_path: Path) -> None:
    by_note, by_cgroup, other = start("sleep", "60"), start("sleep", "60"), start("sleep", "60")
    note("demo", "run1", [by_note.pid], tmp_path)
    found = find("demo", [by_cgroup.pid, os.getpid()], tmp_path)
    assert set(found) == {LeftOver(of(by_note), "run1"), LeftOver(of(by_cgroup))}
    assert other.poll() is None


def test_recycled_pid_is_no_left_over(start: Start, tmp_path: Path) -> None:
    process = of(start("sleep", "60"))
    (tmp_path / "demo").write_text(f"run1\n{process.pid} {process.start_ticks - 1}\n")
    assert find("demo", (), tmp_path) == ()


def test_polite_process_is_ended_politely(start: Start) -> None:
    process = start("sleep", "60")
    assert end([of(process)], polite=5, hard=0) == []
    assert process.wait() == -signal.SIGTERM


def test_stopped_process_is_ended_politely(start: Start) -> None:
    process = start("sleep", "60")
    process.send_signal(signal.SIGSTOP)
    assert end([of(process)], polite=5, hard=0) == []
    assert process.wait() == -signal.SIGTERM


def test_deaf_process_is_ended_hard(start: Start) -> None:
    process = start("bash", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done")
    assert process.stdout is not None
    process.stdout.readline()
    assert end([of(process)], polite=0.1, hard=5) == []
    assert process.wait() == -signal.SIGKILL


def test_wrong_start_time_is_never_signalled(start: Start) -> None:
    process = start("sleep", "60")
    here = of(process)
    assert end([Identity(here.pid, here.start_ticks + 1)], polite=0, hard=0) == []
    assert process.poll() is None


def test_description_names_what_an_operator_looks_for(start: Start) -> None:
    process = start("sleep", "61")
    until = time.monotonic() + 5
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes() and time.monotonic() < until:
        os.sched_yield()  # the kernel has not set it yet
    assert describe(of(process)).startswith(f"pid {process.pid} (sleep, started ")
    assert describe(of(process)).endswith("sleep 61)")


def test_command_line_ends_before_the_options(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes(b"python\0-m\0sglang.launch_server\0--api-key\0hunter2\0")
    assert command_line(7, tmp_path) == "python -m sglang.launch_server"
    (tmp_path / "7/cmdline").write_bytes(b"sglang::scheduler\0\0\0")
    assert command_line(7, tmp_path) == "sglang::scheduler"
    assert command_line(8, tmp_path) == ""


def test_step_touches_nothing_outside_of_the_units_cgroup(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("sleep", "60")
    (tmp_path / "cgroup.procs").write_text(f"{process.pid}\n")
    group = Cgroup("/user.slice/session-1.scope", "v2", processes=tmp_path, memory=None)
    monkeypatch.setattr("service.cgroup.own_cgroup", lambda: group)
    monkeypatch.setattr(leftovers.signal, "signal", lambda *_: None)
    monkeypatch.setattr(leftovers, "noted", lambda *_: None)
    assert leftovers.main("demo") == 0
    assert process.poll() is None


def test_step_ends_what_is_in_the_units_cgroup(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start("sleep", "60")
    (tmp_path / "cgroup.procs").write_text(f"{process.pid}\n")
    group = Cgroup("/sglang.slice/sglang-demo.service", "v2", processes=tmp_path, memory=None)
    monkeypatch.setattr("service.cgroup.own_cgroup", lambda: group)
    monkeypatch.setattr(leftovers.signal, "signal", lambda *_: None)
    monkeypatch.setattr(leftovers, "noted", lambda *_: None)
    assert leftovers.main("demo") == 0
    assert process.wait() == -signal.SIGTERM
    assert capsys.readouterr().err.startswith(f"<4>inquest: left over of an earlier run: pid {process.pid} (sleep, ")
