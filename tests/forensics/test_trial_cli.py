"""What a trial refuses and how it goes back, without systemd: that is a stand-in that writes down what it was told.
The trial itself runs in tests/e2e/test_runs.py."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from forensics.cli import campaign, guard, trial, variants
from forensics.cli.campaign import Tried
from forensics.cli.guard import Guard
from forensics.cli.systemctl import UnitNow
from forensics.errors import InputError, InquestError
from forensics.runs.dropin import directives
from forensics.runs.overrides import parse, parse_sweep
from tests.forensics.commandline import Inquest
from tests.forensics.runs.test_compare import steps

UNIT = "sglang-demo.service"
SPEC = """
model_path = "org/model"
port = 30000
[speculative]
algorithm = "EAGLE"
draft_model_path = "org/draft"
num_steps = 3
eagle_topk = 1
num_draft_tokens = 4
"""
RESTS = UnitNow(
    active_state="inactive", invocation_id="", status_text="", load_state="loaded", need_daemon_reload=False, since=0
)
SERVES = replace(RESTS, active_state="active", invocation_id="ab" * 16)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spec of the server demo; nothing on this machine is held against it."""
    made = tmp_path / "demo.toml"
    made.write_text(SPEC)
    monkeypatch.setattr(variants, "spec_path", lambda server: tmp_path / f"{server}.toml")
    monkeypatch.setattr(variants, "preflight", lambda spec, by_hand: ())
    return made


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A stand-in for systemctl that writes down what it was told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/told\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: (folder / "told").read_text().splitlines() if (folder / "told").exists() else []


def test_a_variant_is_the_changed_spec_as_a_drop_in(path: Path) -> None:
    made = variants.variant("demo", [parse("speculative.num_steps=10")], None)
    found = directives(made.dropin)
    assert "--speculative-num-steps 10" in found["[Service]", "ExecStart"][-1]
    assert found["[Service]", "Restart"][-1] == "no"
    assert path.read_text() == SPEC


def test_the_time_to_become_ready_can_be_bounded(path: Path) -> None:
    made = variants.variant("demo", [parse("speculative.num_steps=10")], "90s")
    assert directives(made.dropin)["[Service]", "TimeoutStartSec"][-1] == "90s"
    assert str(made) == "speculative.num_steps=10"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "speculative.num_stepz=10"], "did you mean"),
        (["--set", "speculative.num_steps=-1"], "speculative.num_steps"),
        (["--set", "speculative.num_steps"], "KEY=VALUE"),
        (["--sweep", "speculative.num_steps=3"], "KEY=VALUE,VALUE"),
        (["--set", "port=1", "--for", "soon"], "not a time"),
        ([], "nothing to try"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_is_touched(
    path: Path,
    inquest: Inquest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[], list[str]],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(trial.os, "geteuid", lambda: 0)
    assert inquest("try", "demo", *arguments) == 2
    assert said in capsys.readouterr().err
    assert told() == []


def test_it_needs_root(
    path: Path, inquest: Inquest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial.os, "geteuid", lambda: 1000)
    assert inquest("try", "demo", "--set", "speculative.num_steps=10") == 1
    assert "needs root" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (replace(RESTS, load_state="not-found"), "not known to systemd"),
        (replace(SERVES, active_state="activating"), "is activating"),
        (replace(SERVES, need_daemon_reload=True), "was changed after"),
        (replace(SERVES, since=1_000_000), "was changed after"),
    ],
)
def test_without_a_spec_that_served_there_is_no_way_back(path: Path, now: UnitNow, said: str) -> None:
    with pytest.raises(InquestError, match=said):
        variants.check_there_is_a_way_back(UNIT, now, path)


def test_with_one_there_is(path: Path) -> None:
    variants.check_there_is_a_way_back(UNIT, replace(SERVES, since=int(path.stat().st_mtime) + 5), path)
    variants.check_there_is_a_way_back(UNIT, RESTS, path)


# --- the way back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("was_active", "then"), [(True, "restart"), (False, "stop")])
def test_the_way_back_takes_the_drop_in_away_and_restores_what_was(
    tmp_path: Path, told: Callable[[], list[str]], was_active: bool, then: str
) -> None:
    made = Guard(UNIT, was_active=was_active, run=tmp_path / "run")
    made.write_way_back()
    made.put("[Service]\nRestart=no\n")
    assert told() == ["daemon-reload"]
    subprocess.run(["/bin/sh", made.way_back], check=True)
    assert not made.dropin.parent.exists()
    assert told()[1:] == ["daemon-reload", f"reset-failed {UNIT}", f"--no-block {then} {UNIT}"]


def test_without_a_drop_in_nothing_is_restarted(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    made = Guard(UNIT, was_active=True, run=tmp_path / "run")
    made.write_way_back()
    subprocess.run(["/bin/sh", made.way_back], check=True)
    assert told() == []


def test_what_others_put_beside_the_drop_in_stays(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    made = Guard(UNIT, was_active=True, run=tmp_path / "run")
    made.write_way_back()
    made.put("[Service]\n")
    (made.dropin.parent / "other.conf").touch()
    subprocess.run(["/bin/sh", made.way_back], check=True)
    assert [path.name for path in made.dropin.parent.iterdir()] == ["other.conf"]


def test_two_trials_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "look", lambda unit: SERVES)
    made = Guard(UNIT, was_active=True, run=tmp_path / "run")
    with pytest.raises(InquestError, match="another trial"):
        made.start()
    assert not made.way_back.exists()


def test_a_bad_name_of_a_server_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        variants.variant("nobody", [parse("port=1")], None)


def test_it_is_back_when_another_run_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, stops = SERVES, replace(SERVES, active_state="deactivating")
    old = replace(SERVES, invocation_id="cd" * 16, status_text="ready after 20 s")
    states = iter([mine, stops, replace(old, active_state="activating"), old])
    monkeypatch.setattr(trial, "look", lambda unit: next(states))
    monkeypatch.setattr(trial, "LOOK_SECONDS", 0.0)
    assert trial._back(UNIT, SERVES, {mine.invocation_id})
    assert "serves again with the old spec: ready after 20 s" in capsys.readouterr().out


def test_an_old_spec_that_does_not_come_back_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial, "look", lambda unit: replace(RESTS, active_state="failed"))
    assert not trial._back(UNIT, SERVES, {SERVES.invocation_id})
    assert "did not come back" in capsys.readouterr().err


def test_a_server_that_rested_rests_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert trial._back(UNIT, RESTS, set())
    assert "stopped, as it was before" in capsys.readouterr().out


# --- what is told --------------------------------------------------------------------------------------------


def test_a_sweep_ends_with_its_tuning_table(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept = parse_sweep("speculative.num_steps=1,3,10")
    runs = [steps(1, 1, 150), steps(2, 3, 220), steps(3, 10, 0, "cuda-oom")]
    failures = ["", "", "did not become ready"]
    tried = [
        Tried(variant=variants.variant("demo", [one], None), invocation_id=run["invocation_id"], failure=failure)
        for one, run, failure in zip(swept, runs, failures, strict=True)
    ]
    trial._tell("demo", tried, runs, None, swept, tmp_path / "tuning.svg")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "speculative.num_steps=1: served to its end (000000000001)"
    assert lines[2].startswith("speculative.num_steps=10: did not become ready; cuda-oom, confirmed: cuda-oom")
    assert lines[3].startswith("speculative_num_steps  best tok/s, 1 running")
    assert [line.split()[:2] for line in lines[4:7]] == [["1", "150"], ["3", "220"], ["10", "-"]]
    assert (tmp_path / "tuning.svg").exists()


def test_a_single_trial_ends_with_a_comparison(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = variants.variant("demo", [parse("speculative.num_steps=10")], None)
    run = steps(2, 10, 150)
    trial._tell(
        "demo", [Tried(variant=one, invocation_id=run["invocation_id"], failure="")], [run], steps(1, 3, 100), (), None
    )
    lines = capsys.readouterr().out.splitlines()
    assert ["speculative_num_steps", "3", "10"] in [line.split() for line in lines]


def test_a_trial_of_which_the_daemon_knows_nothing_is_told_all_the_same(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = variants.variant("demo", [parse("speculative.num_steps=10")], None)
    trial._tell("demo", [Tried(variant=one, invocation_id="", failure="died")], [None], None, (), None)
    assert capsys.readouterr().out == "speculative.num_steps=10: died (no run)\n"


# --- interrupted ---------------------------------------------------------------------------------------------


class WatchedGuard(Guard):
    """A guard that writes down what was asked of it instead of asking systemd."""

    asked: ClassVar[list[str]] = []

    def start(self) -> None:
        self.asked.append("start")

    def put(self, text: str) -> None:
        self.asked.append("put")

    def release(self) -> None:
        self.asked.append("release")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_ends_a_campaign_gets_the_old_spec_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    def interrupted(unit: str, variant: variants.Variant, hold: float, load: object) -> Tried:
        if str(variant).endswith("=3"):
            os.kill(os.getpid(), signum)
            signal.pause()
        return Tried(variant=variant, invocation_id="aa" * 16, failure="")

    monkeypatch.setattr(WatchedGuard, "asked", [])
    monkeypatch.setattr(campaign, "Guard", WatchedGuard)
    monkeypatch.setattr(campaign, "_try_one", interrupted)
    monkeypatch.setattr(campaign, "look", lambda unit: SERVES)
    former = signal.getsignal(signum)
    made = [variants.variant("demo", [one], None) for one in parse_sweep("speculative.num_steps=1,3,10")]
    tried = campaign.campaign(UNIT, SERVES, made, 1.0, None)
    assert [one.failure for one in tried] == ["", "interrupted"]
    assert WatchedGuard.asked == ["start", "put", "put", "release"]
    assert signal.getsignal(signum) == former


def test_a_mistake_of_ours_goes_back_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Tried:
        raise ValueError("broken")

    monkeypatch.setattr(WatchedGuard, "asked", [])
    monkeypatch.setattr(campaign, "Guard", WatchedGuard)
    monkeypatch.setattr(campaign, "_try_one", broken)
    with pytest.raises(ValueError, match="broken"):
        campaign.campaign(UNIT, SERVES, [variants.variant("demo", [parse("port=30009")], None)], 1.0, None)
    assert WatchedGuard.asked == ["start", "put", "release"]
