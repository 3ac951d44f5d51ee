"""The same death again: what the store remembers, and what is said of it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forensics.events import Process, ProcessTree, Record, ServerArgs
from forensics.history import Change, Past, changes, configuration, history
from forensics.model import Crash
from forensics.store import Store
from forensics.timeline import Timeline
from tests.forensics import factories

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def at(usec: int) -> Record:
    return Record(source="server", ref="r", boot_id="b" * 32, monotonic_usec=usec, realtime_usec=usec, message="m")


def args(**values: str) -> ServerArgs:
    return ServerArgs(record=at(1), args=tuple(values.items()))


def past(**values: str) -> Past:
    return Past(crash_id="aaaabbbbcccc", died_at=NOON, configuration=values)


def test_configuration_is_what_sglang_printed_without_what_varies_by_itself() -> None:
    timeline = Timeline.of([args(speculative_num_steps="3", random_seed="81726354", port="30000")])
    assert configuration(timeline) == {"speculative_num_steps": "3", "port": "30000"}


def test_configuration_falls_back_to_the_command_line_of_main() -> None:
    cmdline = "/opt/sglang/bin/python -m sglang.launch_server --tp-size 2 --disable-cuda-graph --cuda-graph-bs 1 2 4"
    main = Process(pid=7, ppid=1, comm="python", cmdline=cmdline, rss_bytes=1, start_ticks=1)
    timeline = Timeline.of([ProcessTree(record=at(1), main_pid=7, processes=(main,))])
    assert configuration(timeline) == {"tp_size": "2", "disable_cuda_graph": "True", "cuda_graph_bs": "1 2 4"}


def test_nothing_is_said_to_have_changed_when_one_side_was_not_recorded() -> None:
    assert changes({}, {"tp_size": "2"}) == ()


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"a": "3"}, {"a": "2"}, "`a` 3 → 2"),
        ({"a": "3", "b": "1"}, {"b": "1"}, "`a` 3 → (unset)"),
        ({"b": "1"}, {"a": "3", "b": "1"}, "`a` (unset) → 3"),
    ],
)
def test_a_change_reads_as_people_write_it(before: dict[str, str], after: dict[str, str], shown: str) -> None:
    assert [str(change) for change in changes(before, after)] == [shown]


def test_changes_are_those_of_values_not_of_quotes() -> None:
    before = {"a": "'x'", "b": "1", "c": "None", "d": "2"}
    assert changes(before, {"a": "x", "b": "2", "c": "None"}) == (
        Change(name="b", before="1", after="2"),
        Change(name="d", before="2", after=None),
    )


def test_a_command_line_is_compared_in_what_it_names() -> None:
    printed = {f"name_{number}": "None" for number in range(40)} | {"num_steps": "3"}
    assert changes(printed, {"num_steps": "10", "only_here": "1"}) == (
        Change(name="num_steps", before="3", after="10"),
    )


def test_a_change_that_did_not_cure_it_is_named() -> None:
    said = history({"speculative_num_steps": "2"}, 1, NOON, past(speculative_num_steps="3"), None)
    assert said.occurrence == 2
    assert said.since_previous == (Change(name="speculative_num_steps", before="3", after="2"),)
    assert said.sentence == (
        "The same death as before your change of `speculative_num_steps` 3 → 2: the change did not cure it."
    )


def test_an_unchanged_configuration_is_counted_from_the_first_time() -> None:
    said = history({"a": "1"}, 3, NOON, past(a="1"), None)
    assert said.sentence == (
        "The 4th death of this kind since 2026-05-04 12:00 UTC, with the configuration unchanged since the last."
    )


def test_the_last_run_that_served_is_compared() -> None:
    said = history({"max_running_requests": "48"}, 0, None, None, past(max_running_requests="4"))
    assert said.occurrence == 1
    assert said.sentence == (
        "The first death of this kind here. Since the last run that served, `max_running_requests` 4 → 48 changed."
    )


def ended(number: int, *, steps: str, fingerprint: str = "f" * 16, unit: str = "sglang-demo.service") -> Crash:
    made = factories.crash(number, unit=unit, fingerprint=fingerprint)
    timeline = Timeline.of([*made.timeline.events, args(speculative_num_steps=steps)])
    return replace(made, timeline=timeline)


def test_the_store_remembers_across_runs_of_the_unit(tmp_path: Path) -> None:
    store = Store(tmp_path / "inquest.sqlite")
    store.save(ended(1, steps="3"))
    store.save(ended(2, steps="3", unit="sglang-other.service"))
    store.save(ended(3, steps="4", fingerprint="e" * 16))
    store.save(ended(4, steps="2"))
    shown = store.shown(factories.invocation(4))
    assert shown is not None
    assert shown["history"] is not None
    assert shown["history"]["occurrence"] == 2
    assert shown["history"]["previous_id"] == factories.invocation(1)[:12]
    assert shown["history"]["since_previous"] == [{"name": "speculative_num_steps", "before": "3", "after": "2"}]
    first = store.shown(factories.invocation(1))
    assert first is not None
    assert first["history"] is not None
    assert first["history"]["occurrence"] == 1
    store.close()


def test_a_later_verdict_on_a_run_does_not_count_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "inquest.sqlite")
    store.save(ended(1, steps="3"))
    store.save(ended(1, steps="3"))
    shown = store.shown(factories.invocation(1))
    assert shown is not None
    assert shown["history"] is not None
    assert shown["history"]["occurrence"] == 1
    store.close()
