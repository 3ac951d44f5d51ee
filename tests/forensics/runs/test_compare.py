from typing import Any

from forensics.runs.compare import compared, tuning
from forensics.runs.shapes import RunDetailShape

BASE = {"speculative_num_steps": "3", "speculative_num_draft_tokens": "4", "mem_fraction_static": "0.7", "tp_size": "1"}


def run(
    number: int, cause: str | None = "clean-stop", best: float = 0.0, lines: int = 3, **arguments: str
) -> RunDetailShape:
    decoding = {
        "lines": lines,
        "tokens": 1000 * lines,
        "throughput": [{"running_requests": "1", "lines": lines, "median": best * 0.9, "best": best}],
        "accept_length": 2.0 + number / 10,
        "accept_length_least": 1.5,
        "accept_length_most": 3.0,
        "accept_rate": 0.4,
        "peak_running_requests": 1,
        "peak_queued_requests": 0,
        "peak_token_usage": 0.1,
    }
    made: Any = {
        "id": f"{number:012x}",
        "unit": "sglang-demo.service",
        "server": "demo",
        "invocation_id": f"{number:012x}" + "0" * 20,
        "boot_id": "b0" * 16,
        "started_at": f"2026-03-01T12:00:{number:02d}.000000Z",
        "end": None if cause is None else {
            "ended_at": "2026-03-01T13:00:00.000000Z",
            "is_crash": cause != "clean-stop",
            "cause": cause,
            "strength": "confirmed",
            "became_ready": best > 0,
            "summary": cause,
        },
        "before_id": None,
        "changes": [],
        "ready_after_seconds": 21.5 if best else None,
        "max_total_num_tokens": 1000,
        "max_running_requests": 48 if best else None,
        "memory": [{"what": f"target KV cache ({number} tokens)", "size_bytes": number * 2**30, "source": "SGLang"}],
        "peaks": [],
        "decoding": decoding if best else None,
        "benches": [],
        "remark": None,
        "configuration": BASE | arguments,
    }  # fmt: skip
    detail: RunDetailShape = made
    return detail


def steps(number: int, count: int, best: float, cause: str | None = "clean-stop") -> RunDetailShape:
    both = {"speculative_num_steps": str(count), "speculative_num_draft_tokens": str(count + 1)}
    return run(number, cause, best, **both)


def test_one_row_a_value_in_the_order_of_numbers() -> None:
    runs = [
        steps(1, 10, 90, "cuda-oom"),
        steps(2, 3, 120),
        steps(3, 3, 130),
        steps(4, 2, 110, None),
        steps(5, 1, 0, "cuda-oom"),
    ]
    table = tuning("demo", runs, "speculative_num_steps")
    assert [row["value"] for row in table["rows"]] == ["1", "2", "3", "10"]
    first, second, third, last = table["rows"]
    assert (first["best"], first["accept_length"], first["max_running_requests"], first["ready"]) == ({}, None, None, 0)
    assert (second["ends"], second["crashes"]) == ({"running": 1}, 0)
    assert (third["best"], third["runs"], third["accept_length"]) == (
        {"1": 130},
        ["000000000002", "000000000003"],
        2.25,
    )
    assert (last["ends"], last["crashes"], last["ready"]) == ({"cuda-oom": 1}, 1, 1)
    assert table["also_varied"] == []


def test_without_a_name_the_most_varied_argument_of_speculation_is_taken() -> None:
    runs = [steps(1, 1, 90), steps(2, 3, 120), run(3, best=1, mem_fraction_static="0.8")]
    table = tuning("demo", runs)
    assert table["by"] == "speculative_num_steps"
    assert table["also_varied"] == ["mem_fraction_static"]


def test_words_stand_behind_numbers_and_what_is_unset_last() -> None:
    runs = [run(n, best=1, kind=value) for n, value in enumerate(["None", "'b'", "2", "'a'", "10"])]
    assert [row["value"] for row in tuning("demo", runs, "kind")["rows"]] == ["2", "10", "a", "b", "None"]


def test_an_argument_that_nobody_knows_gives_one_row_of_it_unset() -> None:
    table = tuning("demo", [steps(1, 3, 100)], "speculative_num_stepz")
    assert [(row["value"], row["runs"]) for row in table["rows"]] == [(None, ["000000000001"])]


def test_runs_without_a_configuration_are_left_out() -> None:
    unknown = run(2)
    unknown["configuration"] = {}
    assert [row["runs"] for row in tuning("demo", [steps(1, 3, 1), unknown])["rows"]] == [["000000000001"]]


def test_two_runs_side_by_side() -> None:
    pairs = {pair.name: (pair.first, pair.second) for pair in compared(steps(1, 3, 100), steps(2, 10, 150, "cuda-oom"))}
    assert pairs["speculative_num_steps"] == ("3", "10")
    assert pairs["ended"] == ("clean-stop, confirmed", "cuda-oom, confirmed")
    assert pairs["target KV cache"] == ("1.0 GiB", "2.0 GiB")
    assert pairs["tokens/s at 1 running"] == ("90 (best 100)", "135 (best 150)")
    assert "mem_fraction_static" not in pairs


def test_what_a_run_has_not_is_left_empty() -> None:
    pairs = {pair.name: (pair.first, pair.second) for pair in compared(steps(1, 3, 0, "cuda-oom"), steps(2, 3, 150))}
    assert pairs["accept length"] == (None, "2.20")
    assert pairs["ready after"] == (None, "22 s")
