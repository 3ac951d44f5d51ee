"""`inquest drill` as far as it goes without systemd; with it: tests/e2e/test_terminal.py."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.cli.drill import deaths
from forensics.cli.drill.play import Played, play
from forensics.cli.drill.scenes import SCENES, Scene
from forensics.errors import InquestError
from forensics.explanations import EXPLANATIONS
from tests.forensics.commandline import Inquest

SECONDS = 20.0


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a death says that it is ready, as systemd would be told."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield receiver


def die(cause: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-I", deaths.__file__, cause]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_exception_that_nobody_catches(told: socket.socket) -> None:
    with die("python-exception") as process:
        assert told.recv(100) == b"READY=1"
        assert process.communicate(timeout=SECONDS)[1].splitlines()[-1] == (
            "RuntimeError: a drill: this exception was asked for"
        )
        assert process.returncode == 1


def test_a_segmentation_fault(told: socket.socket) -> None:
    with die("native-crash") as process:
        assert told.recv(100) == b"READY=1"
        assert process.wait(SECONDS) == -signal.SIGSEGV


def test_one_that_does_not_stop(told: socket.socket) -> None:
    with die("stop-timeout") as process:
        assert told.recv(100) == b"READY=1"
        status = Path(f"/proc/{process.pid}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        assert ignored & 1 << signal.SIGTERM - 1
        process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("cause", ["external-signal", "hang"])
def test_one_that_lives_until_it_is_killed(told: socket.socket, cause: str) -> None:
    with die(cause) as process:
        assert told.recv(100) == b"READY=1"
        process.terminate()
        assert process.wait(SECONDS) == -signal.SIGTERM


def test_the_scenes_are_causes_and_each_has_its_death() -> None:
    causes = [scene.cause for scene in SCENES]
    assert len(causes) == len(set(causes))
    assert set(causes) <= set(EXPLANATIONS)
    assert set(deaths.DEATHS) == {scene.cause for scene in SCENES if scene.starts}
    assert all(re.fullmatch(r"sglang-inquest-drill-[a-z-]+\.service", scene.unit) for scene in SCENES)


def test_what_cannot_be_played_here_is_skipped_with_its_reason() -> None:
    scene = replace(SCENES[0], hindrance=lambda: "there is none here")
    played = play(scene)
    assert (played.outcome, played.words, played.told) == ("skipped", "there is none here", None)
    assert played.good


@pytest.mark.parametrize(
    ("outcome", "told", "good"),
    [("right", True, True), ("right", False, False), ("wrong", True, False), ("abstained", True, False)],
)
def test_only_a_right_verdict_that_was_told_is_good(outcome: str, told: bool, good: bool) -> None:
    assert Played(cause="hang", what="", outcome=outcome, words="", told=told).good is good


# --- the command ---------------------------------------------------------------------------------------------


def test_a_death_that_there_is_no_drill_for(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("drill", "--cause", "gpu-fault") == 2
    assert "no drill for 'gpu-fault'" in capsys.readouterr().err


def test_it_needs_root(
    inquest: Inquest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert inquest("drill") == 1
    assert capsys.readouterr().err.endswith("sudo inquest drill\n")


@pytest.mark.usefixtures("api")
def test_what_the_daemon_does_not_watch_is_not_drilled(
    inquest: Inquest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("forensics.cli.drill.client.get", lambda path: {"units": ["llm-*.service"]})
    monkeypatch.setattr("forensics.cli.drill.play", _never)
    assert inquest("drill", "--cause", "hang") == 1
    err = capsys.readouterr().err
    assert "inquestd watches llm-*.service, and so not sglang-inquest-drill-hang.service" in err
    assert '"sglang-inquest-drill-*.service"' in err


def _never(scene: Scene) -> Played:
    raise AssertionError(scene)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    ("outcome", "told", "status"),
    [("right", True, 0), ("right", False, 1), ("wrong", True, 1), ("no verdict", None, 1)],
)
def test_the_exit_status_tells_whether_all_went_well(
    inquest: Inquest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: str,
    told: bool | None,
    status: int,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("forensics.cli.drill.play", lambda scene: _played(scene, outcome, told))
    assert inquest("drill", "--cause", "hang", "--cause", "native-crash") == status
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["death", "outcome", "verdict", "told", "seconds", "crash", "words"]
    assert [row.split()[0] for row in rows] == ["native-crash", "hang"]
    assert "hang: no sign of life" in err


def _played(scene: Scene, outcome: str, told: bool | None) -> Played:
    return Played(cause=scene.cause, what=scene.what, outcome=outcome, words="it died", told=told)


@pytest.mark.usefixtures("api")
def test_an_interrupted_drill_says_so(
    inquest: Inquest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(scene: Scene) -> Played:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        raise InquestError("not-interrupted", "it went on")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("forensics.cli.drill.play", interrupted)
    former = signal.getsignal(signal.SIGTERM)
    assert inquest("drill", "--cause", "hang") == 130
    assert "interrupted; the scratch unit is gone" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is former
