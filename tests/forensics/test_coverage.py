"""What can be heard on this machine."""

from pathlib import Path

from forensics.coverage import RECORDED, read_core_pattern, recorded_gaps
from forensics.timeline import Timeline

CAUGHT = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h"


def test_a_machine_on_which_all_is_heard_has_no_gaps() -> None:
    assert recorded_gaps(None, None, CAUGHT) == ()


def test_without_a_journal_nothing_is_heard() -> None:
    gaps = recorded_gaps("no right to read it", None, CAUGHT)
    assert {gap.source for gap in gaps} == RECORDED


def test_each_deaf_ear_is_named_with_its_reason() -> None:
    gaps = recorded_gaps(None, "a container", "core")
    assert {gap.source: gap.reason for gap in gaps} == {
        "kernel": "a container",
        "coredump": "core dumps do not go to systemd-coredump (core_pattern: core)",
    }
    timeline = Timeline.of((), gaps, RECORDED)
    assert not timeline.covers("kernel")
    assert timeline.why_not_covered("kernel") == "a container"
    assert timeline.covers("systemd")


def test_the_core_pattern_of_a_machine_without_one(tmp_path: Path) -> None:
    assert read_core_pattern(tmp_path / "absent") == ""
    (tmp_path / "core_pattern").write_text("core\n")
    assert read_core_pattern(tmp_path / "core_pattern") == "core"
