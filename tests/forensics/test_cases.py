"""Each case of `tests/cases` through the real pipeline: cause, strength, phase, the decisive record, what is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.events import Gap
from forensics.model import Role, Verdict
from forensics.sources.export import read_json
from tests.cases import build
from tests.cases.replay import Judged, replay

FOLDERS = tuple(build.folders())


def name_of(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def judged(folder: Path) -> tuple[list[dict[str, Any]], list[Judged]]:
    expected = json.loads((folder / "expected.json").read_text())
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in expected.get("gaps", ())]
    units = {run["unit"] for run in expected["runs"]}
    return expected["runs"], replay(read_json(folder / "journal.jsonl"), units, gaps)


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_case(folder: Path) -> None:
    runs, found = judged(folder)
    for run in runs:
        own = next((one for one in found if one.run.invocation_id == run["invocation_id"]), None)
        if not run["invocation_id"]:
            own = next((one for one in found if one.run.unit == run["unit"]), None)
        if not run["cause"]:
            assert own is None, f"a verdict on a run that goes on: {own and own.verdict.cause}"
            continue
        assert own is not None, "no verdict"
        check(own.verdict, run)


def check(verdict: Verdict, run: dict[str, Any]) -> None:
    told = f"{verdict.cause} {verdict.strength} {verdict.subclass}: {verdict.summary} {verdict.notes}"
    assert verdict.cause == run["cause"], told
    if "strength" in run:
        assert verdict.strength == run["strength"], told
    for word in ("subclass", "phase"):
        if word in run:
            assert getattr(verdict, word) == run[word], told
    if "decisive" in run:
        initiating = [piece.event.record.message for piece in verdict.evidence if piece.role is Role.INITIATING]
        assert any(run["decisive"] in message for message in initiating), initiating
    ruled_out = {ruled.cause for ruled in verdict.ruled_out}
    assert set(run.get("ruled_out", ())) <= ruled_out, f"{ruled_out} of {told}"
    assert not {verdict.cause, *run.get("left_open", ())} & ruled_out
    words = " ".join((verdict.summary, *verdict.notes))
    for said in run.get("says", ()):
        assert said in words, words
    for said in run.get("says_not", ()):
        assert said not in words, words


def test_the_folders_are_what_the_stories_tell() -> None:
    """`python -m tests.cases` writes them anew."""
    told = dict(build.told())
    assert {name_of(folder) for folder in FOLDERS} == set(told)
    for folder in FOLDERS:
        journal = told[name_of(folder)]
        assert (folder / "journal.jsonl").read_text() == journal.dump(), name_of(folder)
        assert (folder / "expected.json").read_text() == journal.dump_expected(), name_of(folder)


def test_every_rule_has_a_case_and_a_near_miss() -> None:
    from forensics.rules import RULES

    shown = {folder.parent.name for folder in FOLDERS if not folder.name.startswith("near-miss")}
    assert {rule.cause for rule in RULES} <= shown
    missed = {folder.parent.name for folder in FOLDERS if folder.name.startswith("near-miss")}
    needed = {rule.cause for rule in RULES} - {"preflight-refused"}  # silent-exit/near-miss-forged-preflight is its
    assert needed <= missed
