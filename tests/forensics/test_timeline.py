"""The facts of a run in order."""

from hypothesis import given
from hypothesis import strategies as st

from forensics.events import Gap, ProcessExit, StopRequested
from forensics.timeline import Timeline
from tests.forensics.factories import main_exit, record


def stop(usec: int, ref: str = "") -> StopRequested:
    return StopRequested(record=record("Stopping", usec, ref=ref), job_type="stop")


@given(st.lists(st.integers(0, 5)))
def test_facts_are_ordered_by_their_stamps_and_keep_their_order_where_these_are_equal(stamps: list[int]) -> None:
    timeline = Timeline.of([stop(usec, ref=str(place)) for place, usec in enumerate(stamps)])
    keys = [(event.usec, int(event.record.ref)) for event in timeline.events]
    assert keys == sorted(keys)
    assert len(keys) == len(stamps)


def test_first_and_last_by_class_and_stamp() -> None:
    timeline = Timeline.of([stop(3), main_exit(2), stop(1)])
    first, last = timeline.first(StopRequested), timeline.last(StopRequested)
    assert first is not None
    assert last is not None
    assert (first.usec, last.usec) == (1, 3)
    assert timeline.first(StopRequested, after=2) is last
    assert timeline.last(StopRequested, before=2) is first
    assert timeline.first(ProcessExit, after=3) is None


def test_a_source_is_covered_when_it_was_read_without_a_gap() -> None:
    gaps = [Gap(source="kernel", reason="missed"), Gap(source="kernel", reason="missed")]
    timeline = Timeline.of((), gaps, ["kernel", "systemd"])
    assert [timeline.covers(name) for name in ("systemd", "kernel", "gpu")] == [True, False, False]
    assert timeline.why_not_covered("kernel") == "missed"
    assert timeline.why_not_covered("gpu") == "gpu was not read"
