"""Read live a journal gives the verdict that its export gives: cases as journald keeps them, the daemon's reader."""

import json
from pathlib import Path

import pytest

from forensics.entry import Entry
from forensics.sources.journal import JournalReader
from forensics.tracker import Tracker
from tests.cases.replay import judge
from tests.forensics.sources.journals import write_lines
from tests.forensics.test_cases import FOLDERS, name_of
from tests.forensics.test_tracker import ended, entries_of, outcome

FIRST = {folder.parent.name: folder for folder in reversed(FOLDERS)}.values()
BOOTS = [folder for folder in FOLDERS if "reboot" in folder.name or folder.parent.name == "host-reset"]
DIFFICULT = [
    folder for folder in FOLDERS if folder.name in ("lines-without-unit", "behind-tee", "two-ranks-interleaved")
]


@pytest.mark.parametrize("folder", sorted({*FIRST, *BOOTS, *DIFFICULT}), ids=name_of)
def test_live_and_saved_a_death_has_one_verdict(folder: Path, tmp_path: Path) -> None:
    entries, units, gaps = entries_of(folder)
    write_lines(tmp_path, read_lines(folder))
    tracker, touched = Tracker(tuple(units)), dict[str, None]()
    reader = JournalReader(sorted(units), path=tmp_path, processes=tracker.processes)
    while reader.wait(0):
        for item in reader.read():
            touched |= dict.fromkeys(tracker.feed(item))
            if isinstance(item, Entry):
                tracker.flush_older(item.monotonic_usec - 1_000_000)
    reader.close()
    live = {one: outcome(judge(tracker, one, gaps).verdict) for one in touched}
    assert _invoked(live) == _invoked(ended(Tracker(tuple(units)), entries, gaps))


def read_lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def _invoked(outcomes: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """A start that never came to an invocation is named after its record's cursor, which a journal of its own gives."""
    return {one if not one.startswith("job-") else "job": outcome for one, outcome in outcomes.items()}
