"""The one serialiser: whatever the model can hold comes back as it went."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.codec import dump_crash, dump_event, load_crash, load_event
from forensics.events import EVENT_TYPES, Event
from forensics.model import Crash
from tests.forensics.test_cases import FOLDERS, judged, name_of


@pytest.mark.parametrize("fact", EVENT_TYPES.values(), ids=lambda fact: fact.kind)
def test_every_kind_of_fact_comes_back(fact: type[Event]) -> None:
    @settings(max_examples=6, deadline=None)
    @given(st.builds(fact))
    def check(event: Event) -> None:
        assert load_event(json.loads(json.dumps(dump_event(event)))) == event

    check()


def test_kinds_are_unique() -> None:
    assert len({fact.kind for fact in EVENT_TYPES.values()}) == len(EVENT_TYPES)
    assert "" not in EVENT_TYPES


@pytest.mark.parametrize("folder", FOLDERS[::9], ids=name_of)
def test_a_crash_comes_back_whole(folder: Path) -> None:
    _, found = judged(folder)
    for one in found:
        crash = Crash(run=one.run, timeline=one.timeline, verdict=one.verdict)
        assert load_crash(json.loads(json.dumps(dump_crash(crash)))) == crash
