"""The verdict as a whole: pure, the same for the same death, unknown of nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.classify import classify
from forensics.events import HostMemory
from forensics.model import Phase, Verdict
from forensics.sources.export import read_json
from forensics.timeline import Timeline
from tests.cases import build
from tests.cases.replay import replay
from tests.cases.story import Journal
from tests.forensics.factories import record, run
from tests.forensics.test_cases import FOLDERS, judged, name_of


def test_nothing_is_unknown() -> None:
    nothing = replace(run(), exit_code=None, exit_status=None, result=None, main_pid=None, pids={})
    verdict = classify(nothing, Timeline())
    assert (verdict.cause, verdict.strength, verdict.is_crash) == ("unknown", None, True)
    assert verdict.phase is Phase.BEFORE_LOGGING
    assert not verdict.ruled_out
    assert not verdict.settled


@pytest.mark.parametrize("folder", FOLDERS[::7], ids=name_of)
def test_judging_again_changes_nothing(folder: Path) -> None:
    """Neither without news, nor with a late fact that says nothing of the death."""
    _, found = judged(folder)
    for one in found:
        assert classify(one.run, one.timeline) == one.verdict
        idle = HostMemory(
            record=record("", one.run.started_usec, source="host"),
            total_bytes=1, available_bytes=1, swap_free_bytes=0, vmstat_oom_kill=None,
        )  # fmt: skip
        more = Timeline.of([*one.timeline.events, idle], one.timeline.gaps, one.timeline.sources)
        assert replace(classify(one.run, more), memory=None) == replace(one.verdict, memory=None)


def verdicts(path: str, journal: Journal) -> list[Verdict]:
    from io import BytesIO

    from forensics.events import Gap

    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in journal.gaps]
    units = {one.unit for one in journal.expected}
    return [one.verdict for one in replay(read_json(BytesIO(journal.dump().encode())), units, gaps)]


def test_the_same_death_has_the_same_fingerprint_whatever_its_numbers() -> None:
    """Told again with other pids, invocation ids, boots and times of day."""
    for path, journal in build.told():
        again = Journal(name=f"{path}/again", usec=7_200_000_000)
        build.CASES[path](again)
        once, twice = verdicts(path, journal), verdicts(path, again)
        assert [v.fingerprint for v in once] == [v.fingerprint for v in twice], (
            path, [v.signature for v in once], [v.signature for v in twice],
        )  # fmt: skip
        assert journal.dump() != again.dump()


def test_other_deaths_have_other_fingerprints() -> None:
    """Two cases share a fingerprint only when they are one death in two circumstances: same cause, same subclass."""
    seen: dict[str, tuple[str, str]] = {}
    for path, journal in build.told():
        for verdict in verdicts(path, journal):
            kind = (verdict.cause, verdict.subclass)
            assert seen.setdefault(verdict.fingerprint, kind) == kind, path


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_verdict_can_be_read_at_night(folder: Path) -> None:
    """One paragraph, sentences that end, no line breaks, advice of at most two steps."""
    _, found = judged(folder)
    for one in found:
        verdict = one.verdict
        for text in (verdict.summary, *verdict.notes, *verdict.advice):
            assert text[:1].isupper() or text[:1].isdigit() or text.startswith(("systemd", "earlyoom", "nohang")), text
            assert text.endswith((".", "…", "?")), text
            assert ".." not in text.replace("...", ""), text
            assert "\n" not in text
            assert ": :" not in text
            assert " None" not in text, text
        assert len(verdict.advice) <= 2
        assert len(verdict.summary) < 600
        if verdict.cause not in ("unknown", "clean-stop"):
            assert verdict.advice, "what to do next?"
            assert verdict.evidence
        wordings = " ".join(verdict.advice).lower()
        for setting in ("mem_fraction_static", "memory_max"):
            assert not (f"raise {setting}" in wordings and f"lower {setting}" in wordings)
