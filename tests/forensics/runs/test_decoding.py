import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.runs.decoding import Decoding, Throughput, concurrency, dump, load

LINES = st.lists(
    st.tuples(st.integers(1, 300), st.floats(1, 30_000), st.floats(1, 8), st.floats(0, 1)), min_size=1, max_size=60
)


def figures(running: int, speed: float, accept: float | None = None, rate: float | None = None) -> dict[str, str]:
    made = {"running-req": str(running), "token usage": "0.25", "gen throughput (token/s)": f"{speed:.2f}"}
    if accept is not None:
        made["accept len"] = f"{accept:.2f}"
    if rate is not None:
        made["accept rate"] = f"{rate:.2f}"
    return made | {"queue-req": "7"}


def tally(*lines: dict[str, str]) -> Decoding:
    made = Decoding()
    for line in lines:
        made.add(line)
    return made


def test_requests_fall_into_four_groups() -> None:
    assert [concurrency(running) for running in (1, 2, 4, 5, 16, 17, 400)] == [
        "1",
        "2-4",
        "2-4",
        "5-16",
        "5-16",
        "17+",
        "17+",
    ]


@given(st.lists(st.floats(0.5, 50_000), min_size=1, max_size=99))
def test_a_median_is_right_to_three_percent_and_the_best_exactly(speeds: list[float]) -> None:
    made = Throughput()
    for speed in speeds:
        made.add(speed)
    assert made.best == max(speeds)
    busy = [speed for speed in speeds if speed >= max(speeds) / 10]
    # One at the border may be taken either way: its bucket is a few percent wide.
    near = [speed for speed in speeds if speed >= max(speeds) / 10.3]
    exact = [statistics.median_low(busy), statistics.median_low(near)]
    assert any(abs(made.median - one) <= 0.03 * one + 0.01 for one in exact)


def test_a_pause_before_a_line_does_not_count_as_slowness() -> None:
    """As a server printed it that had been idle for a minute before each short answer."""
    made = Throughput()
    for speed in (0.02, 59.68, 148.88, 168.68, 0.13, 141.68, 0.05, 0.07):
        made.add(speed)
    assert made.median == pytest.approx(145, rel=0.03)


@given(LINES)
def test_a_tally_comes_back_from_json_and_goes_on_as_if_never_saved(
    lines: list[tuple[int, float, float, float]],
) -> None:
    half = len(lines) // 2
    whole, saved = tally(*(figures(*line) for line in lines)), tally(*(figures(*line) for line in lines[:half]))
    resumed = load(json.loads(json.dumps(dump(saved))))
    for line in lines[half:]:
        resumed.add(figures(*line))
    assert resumed == whole


def test_the_mean_accept_length_is_one_over_sequences() -> None:
    made = tally(figures(9, 900, 2.0, 0.5), figures(1, 100, 3.0, 1.0))
    assert (made.accept_length, made.accept_rate) == (2.1, 0.55)
    assert (made.accept_length_least, made.accept_length_most) == (2.0, 3.0)


def test_without_speculation_there_is_no_accept_length() -> None:
    made = tally(figures(1, 100))
    assert (made.accept_length, made.accept_rate, made.speculative_lines) == (None, None, 0)


def test_peaks_of_whatever_pool_is_fullest() -> None:
    swa = {
        "running-req": "3",
        "full token usage": "0.10",
        "swa token usage": "0.80",
        "gen throughput (token/s)": "9.00",
    }
    made = tally(figures(12, 100), swa)
    assert (made.peak_running_requests, made.peak_queued_requests, made.peak_token_usage) == (12, 7, 0.8)


def test_what_is_no_decode_line_of_this_world_is_passed_over() -> None:
    odd = [{}, {"running-req": "0"}, {"running-req": "many"}, {"running-req": "-1"}, {"queue-req": "1"}]
    assert tally(*odd) == Decoding()
    made = tally({"running-req": "2", "gen throughput (token/s)": "nan", "accept len": "inf", "token usage": "x"})
    assert (made.lines, made.throughput, made.accept_length, made.peak_token_usage) == (1, {}, None, None)
