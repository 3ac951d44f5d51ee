"""Runs, and trials that go back by themselves, with real SGLang and its own bench_serving. A start takes half a
minute: few of them are made.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.inquest import Inquest, Server, until
from tests.e2e.test_sglang import DEMO

pytestmark = [pytest.mark.e2e, pytest.mark.sglang]

SPEC = (
    DEMO
    + """
SGLANG_CUDA_COREDUMP_BEFORE_CRASH = "0"
SGLANG_PYSPY_DUMP_BEFORE_CRASH = "0"
"""
)
SMALL = ("--concurrency", "1,4", "--rounds", "2", "--input-tokens", "32", "--output-tokens", "64")
BY = "speculative_num_draft_tokens"


@pytest.fixture(scope="module")
def server(inquest: Inquest) -> Iterator[Server]:
    """The demonstration server, serving what its spec says."""
    demo = inquest.server("demo")
    demo.put_spec(SPEC)
    demo.restart()
    yield demo
    demo.put_spec(DEMO)


def drafts(inquest: Inquest, invocation_id: str) -> str:
    """With how many draft tokens a run was started."""
    return str(inquest.get(f"/runs/{invocation_id}")["configuration"][BY])


def try_(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return server.machine.run("inquest", "try", server.name, *arguments, check=False, timeout=900)


def is_back(inquest: Inquest, server: Server) -> None:
    """The old spec serves, and nothing of the trial is left."""
    until(lambda: server.show("ActiveState") == "active", f"{server.unit} serves again", seconds=400)
    assert server.show("DropInPaths") == ""
    guards = server.machine.run("systemctl", "list-units", "--all", "--no-legend", "inquest-trial-*").stdout
    assert guards == ""
    run = server.current()
    until(lambda: known(inquest, run.invocation_id), "the run's arguments are known", seconds=20)
    assert drafts(inquest, run.invocation_id) == "4"


def known(inquest: Inquest, invocation_id: str) -> bool:
    runs: list[dict[str, Any]] = inquest.get("/runs")["runs"]
    return any(run["invocation_id"] == invocation_id and run["max_running_requests"] for run in runs)


def test_a_try_that_cannot_start_goes_back_and_says_why(inquest: Inquest, server: Server) -> None:
    done = try_(server, "--set", "memory.max_total_tokens=1")
    assert done.returncode == 1
    assert "memory.max_total_tokens=1: did not become ready; " in done.stdout
    assert "serves again with the old spec" in done.stdout
    is_back(inquest, server)
    (crash, *_) = inquest.crashes(server.unit)
    assert crash["cause"] == "configuration-error"


def test_a_sweep_whose_process_is_killed_goes_back_by_itself(inquest: Inquest, server: Server) -> None:
    command = f"echo $$; exec inquest try {server.name} --sweep speculative.num_draft_tokens=2,6,8 {' '.join(SMALL)}"
    argv = server.machine.argv(["/bin/sh", "-c", command])
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as sweep:
        assert sweep.stdout is not None
        pid = int(sweep.stdout.readline())
        said = next(line for line in sweep.stdout if "num_draft_tokens=6: starting" in line or "going back" in line)
        assert "going back" not in said
        until(lambda: server.show("ActiveState") == "activating", "the second value starts", seconds=120)
        server.kill(pid, "KILL")
    is_back(inquest, server)


def test_runs_are_in_a_table_by_what_was_varied(inquest: Inquest, server: Server) -> None:
    table = json.loads(server.machine.run("inquest", "runs", server.name, "--by", BY, "--format", "json").stdout)
    rows = {row["value"]: row for row in table["rows"]}
    assert set(rows) >= {"2", "4"}
    assert rows["2"]["best"]["2-4"] > 0
    assert 1 < rows["2"]["accept_length"] <= 2
    assert rows["4"]["ends"]["configuration-error"] == 1
    plain = server.machine.run("inquest", "runs", server.name).stdout
    assert "speculative_num_draft_tokens 4 → 2" in plain


def test_what_a_bench_measured_stays_with_its_run(inquest: Inquest, server: Server) -> None:
    runs = inquest.get("/runs")["runs"]
    (swept,) = [run for run in runs if run["benches"]]
    assert [bench["figures"]["concurrency"] for bench in swept["benches"]] == [1, 4]
    assert all(bench["figures"]["completed"] == bench["figures"]["requested"] for bench in swept["benches"])
    side_by_side = server.machine.run("inquest", "diff", server.name, swept["id"]).stdout
    row = next(line for line in side_by_side.splitlines() if line.startswith("speculative_num_draft_tokens"))
    assert row.split()[1:] == ["4", "2"]
