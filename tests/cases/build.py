"""Stories → folders of `journal.jsonl` and `expected.json`, which is what the tests and the bench read."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.cases.stories import CASES, doubts, failures, gpu, memory, one_writer, outside, races, signals, stops
from tests.cases.story import Journal

ROOT = Path(__file__).parent
MODULES = (memory, stops, signals, gpu, failures, doubts, one_writer, outside, races)


def told() -> Iterator[tuple[str, Journal]]:
    """Each case's path and its journal."""
    for path, story in sorted(CASES.items()):
        journal = Journal(name=path, about=" ".join((story.__doc__ or "").split()))
        story(journal)
        yield path, journal


def folders() -> Iterator[Path]:
    """The cases that are there."""
    yield from sorted(path.parent for path in ROOT.glob("*/*/expected.json"))


def write_all() -> None:
    for folder in folders():
        shutil.rmtree(folder)
    for path, journal in told():
        folder = ROOT / path
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").write_text(journal.dump(), encoding="utf-8")
        (folder / "expected.json").write_text(journal.dump_expected(), encoding="utf-8")
