"""Recorded entries through the real pipeline: export → tracker → rules. What the daemon does, without its clock."""

from collections.abc import Iterable
from dataclasses import dataclass

from forensics.classify import classify
from forensics.coverage import RECORDED
from forensics.entry import Entry
from forensics.events import Gap
from forensics.model import Run, Verdict
from forensics.timeline import Timeline
from forensics.tracker import Tracker


@dataclass(frozen=True, slots=True)
class Judged:
    run: Run
    timeline: Timeline
    verdict: Verdict


def replay(entries: Iterable[Entry], units: Iterable[str], gaps: Iterable[Gap] = ()) -> list[Judged]:
    """The last verdict on each run of these units that came to rest, in the order in which they did.

    `gaps` are those of the machine: a kernel log that cannot be read, core dumps that go elsewhere.
    """
    tracker = Tracker(tuple(units))
    ended: dict[str, None] = {}
    for entry in entries:
        ended |= dict.fromkeys(sorted(tracker.feed(entry)))
    return [judge(tracker, invocation_id, gaps) for invocation_id in ended]


def judge(tracker: Tracker, invocation_id: str, gaps: Iterable[Gap] = ()) -> Judged:
    run, timeline = tracker.judge_input(invocation_id, RECORDED, gaps)
    return Judged(run, timeline, classify(run, timeline))
