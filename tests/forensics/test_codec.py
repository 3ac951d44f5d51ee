"""What is written is what is read, for every fact there is."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.codec import (
    dump_crash,
    dump_event,
    dump_run_record,
    load_crash,
    load_event,
    load_run_record,
)
from forensics.events import EVENT_TYPES, Event, Gap, Record
from forensics.model import MemoryFigure, MemoryStory
from forensics.store.rows import event_text
from tests.forensics.factories import clean, crash, open_run, traceback

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
st.register_type_strategy(str, TEXT)
st.register_type_strategy(datetime, st.datetimes(timezones=st.just(UTC)))


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("kind", sorted(EVENT_TYPES))
def test_every_fact_comes_back_as_it_was(kind: str) -> None:
    cls = EVENT_TYPES[kind]

    @settings(max_examples=30)
    @given(st.from_type(cls))
    def comes_back(event: Event) -> None:
        data = dump_event(event)
        assert data["kind"] == kind
        assert load_event(through_json(data)) == event
        json.loads(event_text(event))

    comes_back()


@given(st.from_type(Record), st.from_type(Gap))
def test_an_open_run_comes_back_as_it_was(record: Record, gap: Gap) -> None:
    run = open_run(1)
    run.events.append(traceback(message=record.message))
    run.gaps.append(gap)
    assert load_run_record(through_json(dump_run_record(run))) == run


@pytest.mark.parametrize(
    "made",
    [
        crash(1),
        clean(2),
        crash(3, strength=None, evidence=(), exit_code=None, exit_status=None, main_pid=None, n_restarts=None),
        crash(4, memory=MemoryStory(sentence="s", figures=(MemoryFigure(what="w", size_bytes=1, source="cgroup"),))),
        crash(5, awaits=("kernel",)),
    ],
    ids=["crash", "clean", "bare", "memory", "awaits"],
)
def test_a_crash_comes_back_as_it_was(made: Any) -> None:
    assert load_crash(through_json(dump_crash(made))) == made


def test_a_kind_of_a_newer_version_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        load_event({**dump_event(traceback()), "kind": "from-the-future"})
