import pytest

from forensics.events import Batch
from forensics.runs.record import facts
from forensics.timeline import Timeline
from tests.forensics.runs.lives import Machine, decode, start

GIB = 2**30


def test_a_run_is_remembered_with_its_start_memory_and_speed() -> None:
    crash = Machine().life([*start(), *(decode(1, speed) for speed in (90, 100, 110)), decode(6, 800, 3.0, 0.6, 2)])
    known = facts(crash.run, crash.timeline)
    assert known["ready_after_seconds"] == pytest.approx(30, abs=0.1)
    assert (known["max_total_num_tokens"], known["max_running_requests"]) == (210400, 48)
    assert [(one["what"], one["size_bytes"] / GIB) for one in known["memory"]] == [
        ("target weights", 15.0),
        ("draft weights", pytest.approx(0.7)),
        ("target KV cache (210400 tokens)", 41.0),
        ("draft KV cache (210400 tokens)", 2.5),
        ("graphs", 0.75),
        ("left after the start", pytest.approx(33.05)),
    ]
    decoded = known["decoding"]
    assert decoded is not None
    groups = {one["running_requests"]: one for one in decoded["throughput"]}
    assert list(groups) == ["1", "5-16"]
    assert (groups["1"]["lines"], groups["1"]["best"]) == (3, 110.0)
    assert groups["1"]["median"] == pytest.approx(100, rel=0.02)
    assert (decoded["accept_length"], decoded["peak_running_requests"], decoded["peak_queued_requests"]) == (
        2.833,
        6,
        2,
    )
    assert decoded["tokens"] == 40 * (3 * 2.5 + 6 * 3)


def test_ranks_of_tensor_parallelism_do_not_count_as_draft_models() -> None:
    plain = Machine().life([*start(tag=" TP0|", draft=False), *start(tag=" TP1|", draft=False)])
    assert [one["what"] for one in facts(plain.run, plain.timeline)["memory"]] == [
        "target weights",
        "target KV cache (210400 tokens)",
        "graphs",
        "left after the start",
    ]


def test_several_pools_of_one_model_are_added_up() -> None:
    lines = start(draft=False)
    pool = next(line for line in lines if line.startswith("KV Cache"))
    crash = Machine().life([*lines[: lines.index(pool)], pool, *lines[lines.index(pool) :]])
    sizes = {one["what"]: one["size_bytes"] for one in facts(crash.run, crash.timeline)["memory"]}
    assert sizes["target KV cache (210400 tokens)"] == 82 * GIB


def test_a_run_that_died_in_its_start_has_no_speed_and_was_never_ready() -> None:
    crash = Machine().life(start()[:4], asked=False)
    known = facts(crash.run, crash.timeline)
    assert (known["ready_after_seconds"], known["decoding"], known["max_running_requests"]) == (None, None, None)
    assert [one["what"] for one in known["memory"]] == ["target weights", "left after that"]


def test_a_run_that_logged_nothing_is_remembered_all_the_same() -> None:
    crash = Machine().life([], asked=False)
    assert facts(crash.run, crash.timeline)["memory"] == []


def test_a_flood_of_lines_is_tallied_whole_though_few_are_kept() -> None:
    crash = Machine().life([*start(), *(decode(1, 100 + number % 10) for number in range(1000))])
    assert sum(1 for _ in crash.timeline.all(Batch)) < 200
    decoded = facts(crash.run, crash.timeline)["decoding"]
    assert decoded is not None
    assert decoded["lines"] == 1000


def test_a_timeline_from_before_tallies_were_kept_gives_what_its_lines_give() -> None:
    crash = Machine().life([*start(), decode(1, 100), decode(1, 120)])
    old = Timeline.of(event for event in crash.timeline.events if event.kind != "decode-stats")
    assert facts(crash.run, old)["decoding"] == facts(crash.run, crash.timeline)["decoding"]
