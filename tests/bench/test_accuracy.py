"""The bench itself: it reads each form of recording, and the project's own cases are all right by it."""

import json
from pathlib import Path

import pytest

from tests.bench.accuracy import gather, in_journalctl_u, main, recordings
from tests.cases import build


def test_d6_both_tools_are_scored_on_the_same_labelled_deaths() -> None:
    scored = list(gather(build.ROOT))
    assert len(scored) > 200
    assert [one.name for one in scored if one.outcome != "right"] == []
    for baseline in range(3):
        assert sum(one.baselines[baseline] for one in scored) < len(scored) / 2, "the cases are harder than that"
    broken = [one for one in scored if "gpu-fault" in one.right]
    assert len(broken) >= 5
    assert not any(any(one.baselines) for one in broken), "neither Result= nor a grep of the unit tells of a GPU"


def test_d6_journalctl_u_shows_no_record_of_the_kernel() -> None:
    """A grep of the unit sees no Xid, and of an OOM kill only systemd's count, without victim and size."""
    (oom,) = recordings(build.ROOT / "kernel-oom" / "memcg-main")
    (truth,) = oom.truths
    assert any(entry.from_kernel and "Killed process" in entry.message for entry in oom.entries)
    shown = [entry for entry in oom.entries if in_journalctl_u(entry, truth)]
    assert any("has been killed by the OOM killer" in entry.message for entry in shown)
    assert not any(entry.from_kernel or "Killed process" in entry.message for entry in shown)


def test_a_labelled_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "log.txt").write_text(
        "[2026-04-15 11:20:01] server_args=ServerArgs(model_path='/m')\n"
        "[2026-04-15 11:20:09] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/s/sglang/srt/managers/scheduler.py", line 1, in run\n'
        "torch.AcceleratorError: CUDA error: misaligned address\n"
        "[2026-04-15 11:20:09] Received sigquit from a child process. It usually means the child failed.\n"
    )
    for label, status in (("cuda_error", "right"), ("kernel_oom", "wrong likely")):
        (folder / "label.json").write_text(json.dumps({"class": label}))
        (one,) = gather(tmp_path)
        assert one.outcome == status
    assert main([str(tmp_path)]) == 0, "a wrong likely verdict is no wrong confirmed one"
    assert "wrong likely: one: kernel-oom" in capsys.readouterr().out


def test_an_empty_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no recordings" in capsys.readouterr().out
