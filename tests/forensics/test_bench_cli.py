"""The bench without SGLang: the interpreter and systemctl are stand-ins that say what the real ones would."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from forensics.cli import bench
from forensics.cli.bench import BenchFailed, Load, argv, measure, parse_concurrency
from forensics.cli.systemctl import UnitNow
from forensics.errors import InputError
from forensics.events import BenchResult
from forensics.runs.record import facts
from forensics.sources.bench import MESSAGE_ID, parse
from service.spec import ServerSpec
from tests.forensics.runs.lives import Machine, start

RUN = "ab" * 16
SERVES = UnitNow(
    active_state="active",
    invocation_id=RUN,
    status_text="ready after 20 s",
    load_state="loaded",
    need_daemon_reload=False,
    since=1,
)
GONE = UnitNow(
    active_state="failed",
    invocation_id=RUN,
    status_text="",
    load_state="loaded",
    need_daemon_reload=False,
    since=1,
)
RESULT = {
    "completed": 8,
    "output_throughput": 412.25,
    "mean_ttft_ms": 12.5,
    "accept_length": 2.75,
    "request_rate": float("inf"),
    "server_info": {"api_key": "sk-secret"},
}
WRITES = 'printf \'%s\\n\' \'{result}\' > "$(echo "$@" | sed "s/.*--output-file \\([^ ]*\\).*/\\1/")"'


def spec(python: Path) -> ServerSpec:
    return ServerSpec(name="demo", model_path="/models/target", python=str(python), user=os.environ.get("USER", "root"))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would be told to the journal."""
    from systemd import journal

    records: list[dict[str, Any]] = []
    monkeypatch.setattr(journal, "send", lambda message, **fields: records.append({"MESSAGE": message, **fields}))
    return records


@pytest.fixture(autouse=True)
def as_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as another user, whom a test machine need not have."""
    monkeypatch.setattr(bench.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(bench, "look", lambda unit: SERVES)


def interpreter(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_figures_of_each_concurrency_are_tied_to_the_run(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    python = interpreter(tmp_path / "python", WRITES.format(result=json.dumps(RESULT)))
    measured = measure(spec(python), Load(concurrency=(1, 2), rounds=4))
    assert [one["concurrency"] for one in measured] == [1, 2]
    assert measured[1] == {
        "concurrency": 2, "requested": 8, "completed": 8, "output_throughput": 412.25, "mean_ttft_ms": 12.5,
        "accept_length": 2.75,
    }  # fmt: skip
    assert [record["INQUEST_INVOCATION_ID"] for record in sent] == [RUN, RUN]
    assert "secret" not in json.dumps(sent)


def test_what_was_measured_is_remembered_with_the_run(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    python = interpreter(tmp_path / "python", WRITES.format(result=json.dumps(RESULT)))
    measure(spec(python), Load(concurrency=(2,), arguments=("--dataset-name", "sharegpt")))
    machine = Machine()
    invocation_id = machine.begin(start())
    fields = {**sent[0], "INQUEST_INVOCATION_ID": invocation_id, "_UID": "0", "_PID": "77"}
    machine.tracker.feed(machine.entry(fields, fields["MESSAGE"]))
    crash = machine.end(invocation_id)
    (one,) = facts(crash.run, crash.timeline)["benches"]
    assert one["figures"]["output_throughput"] == 412.25
    assert one["options"] == "256 tokens in, 256 out; --dataset-name sharegpt"


@pytest.mark.parametrize(
    "fields",
    [
        {"_UID": "1000"},
        {"_UID": ""},
        {"INQUEST_BENCH_FIGURES": "no"},
        {"INQUEST_BENCH_FIGURES": '{"a": "b"}'},
        {"MESSAGE_ID": "0" * 32},
    ],
)
def test_a_record_that_root_did_not_write_or_that_is_damaged_is_none(fields: dict[str, str]) -> None:
    whole = {"MESSAGE_ID": MESSAGE_ID, "_UID": "0", "INQUEST_BENCH_FIGURES": '{"a": 1}', "INQUEST_BENCH_OPTIONS": "x"}
    assert isinstance(parse(Machine().entry(whole, "")), BenchResult)
    assert parse(Machine().entry({**whole, **fields}, "")) is None


def test_a_server_that_does_not_run_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "look", lambda unit: GONE)
    with pytest.raises(BenchFailed, match="is failed, not active"):
        measure(spec(interpreter(tmp_path / "python", "exit 1")), Load())


def test_the_death_of_the_server_ends_the_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[dict[str, Any]]
) -> None:
    python = interpreter(tmp_path / "python", "sleep 60")
    states = iter([SERVES, SERVES, GONE])
    monkeypatch.setattr(bench, "look", lambda unit: next(states))
    monkeypatch.setattr(bench, "_LOOK_SECONDS", 0.05)
    began = time.monotonic()
    with pytest.raises(BenchFailed, match="died during the bench: run abababababab"):
        measure(spec(python), Load())
    assert time.monotonic() - began < 20
    assert sent == []


def test_a_bench_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_LOOK_SECONDS", 0.05)
    python = interpreter(tmp_path / "python", "sleep 60")
    with pytest.raises(BenchFailed, match="longer than it may"):
        measure(spec(python), Load(within_seconds=0.1))


def test_a_bench_that_fails_says_its_last_words(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "python", "echo \"ModuleNotFoundError: No module named 'datasets'\" >&2; exit 1")
    with pytest.raises(BenchFailed, match="No module named 'datasets'") as failed:
        measure(spec(python), Load())
    assert f"{python} -m pip install datasets" in failed.value.hint


def test_answers_that_all_failed_are_no_measurement(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "python", WRITES.format(result=json.dumps(RESULT | {"completed": 0})))
    with pytest.raises(BenchFailed, match="no request was answered well"):
        measure(spec(python), Load())


def test_the_command_line_is_that_of_bench_serving(tmp_path: Path) -> None:
    given = argv(
        spec(tmp_path / "python").model_copy(update={"host": "::", "port": 31000}),
        Load(rounds=3, arguments=("--seed", "7")),
        4,
        tmp_path / "result",
    )
    assert given[:3] == [str(tmp_path / "python"), "-m", "sglang.bench_serving"]
    assert given[given.index("--base-url") + 1] == "http://[::1]:31000"
    assert given[given.index("--num-prompts") + 1] == "12"
    assert given[-2:] == ["--seed", "7"]


def test_concurrencies_are_numbers() -> None:
    assert parse_concurrency("1, 4,4,16") == (1, 4, 16)
    for text in ("", "0", "a", "1,,2", "-1", "9999"):
        with pytest.raises(InputError):
            parse_concurrency(text)
