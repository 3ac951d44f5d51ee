import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from forensics.errors import StoreError
from forensics.model import Crash
from forensics.public import when
from forensics.runs import record
from forensics.runs.shapes import RunDetailShape, TuningShape
from forensics.store import Query, Store
from forensics.store.database import MIGRATIONS
from tests.forensics.runs.lives import Machine, decode, start


def campaign(store: Store) -> tuple[Machine, list[str]]:
    """Steps 1, 3, 5; the last one dies."""
    machine, ids = Machine(), []
    for steps, speed in ((1, 150), (3, 220), (5, 190)):
        arguments = {"speculative_num_steps": str(steps), "speculative_num_draft_tokens": str(steps + 1)}
        crash = machine.life([*start(**arguments), decode(1, speed), decode(8, 4 * speed)], asked=steps != 5)
        store.save(crash)
        ids.append(crash.run.invocation_id)
    return machine, ids


def test_runs_are_listed_newest_first_with_what_changed(store: Store) -> None:
    _, ids = campaign(store)
    newest, middle, oldest = store.runs.page().runs
    assert [one["invocation_id"] for one in (oldest, middle, newest)] == ids
    assert (oldest["before_id"], oldest["changes"]) == (None, [])
    assert newest["before_id"] == ids[1][:12]
    assert newest["changes"] == [
        {"name": "speculative_num_draft_tokens", "before": "4", "after": "6"},
        {"name": "speculative_num_steps", "before": "3", "after": "5"},
    ]
    assert newest["end"] is not None
    assert middle["end"] is not None
    assert (newest["end"]["is_crash"], middle["end"]["is_crash"]) == (True, False)
    assert "configuration" not in newest


def test_one_run_has_its_whole_configuration(store: Store) -> None:
    _, ids = campaign(store)
    whole = store.runs.one(ids[2])
    assert whole is not None
    TypeAdapter(RunDetailShape).validate_python(whole, strict=True)
    assert whole["configuration"]["speculative_num_steps"] == "5"
    assert "random_seed" not in whole["configuration"]
    assert store.runs.one("ffff") is None
    assert store.runs.one("../etc") is None


def test_an_id_that_several_begin_with_is_refused(store: Store) -> None:
    campaign(store)
    with pytest.raises(StoreError, match="several runs begin with"):
        store.runs.one("0000")


def test_pages_follow_one_another(store: Store) -> None:
    _, ids = campaign(store)
    first = store.runs.page(Query(limit=2))
    rest = store.runs.page(Query(limit=2, before=first.next))
    assert [one["invocation_id"] for one in (*first.runs, *rest.runs)] == ids[::-1]
    assert rest.next is None


def test_a_living_run_stands_first_with_its_figures_so_far(store: Store) -> None:
    machine, ids = campaign(store)
    living = machine.begin([*start(speculative_num_steps="9"), decode(2, 300), decode(2, 310)])
    store.checkpoint("c", 1, machine.tracker.records())
    page = store.runs.page(Query(server="demo"))
    assert [one["invocation_id"] for one in page.runs] == [living, *ids[::-1]]
    run = page.runs[0]
    assert (run["end"], run["before_id"], run["ready_after_seconds"]) == (None, ids[2][:12], pytest.approx(30, abs=0.1))
    assert run["decoding"] is not None
    assert run["decoding"]["throughput"][0]["best"] == 310
    assert "speculative_num_steps" in [change["name"] for change in run["changes"]]
    assert store.runs.page(Query(before=store.runs.page(Query(limit=1)).next)).runs[0]["invocation_id"] == ids[1]
    one = store.runs.one(living)
    assert one is not None
    assert one["configuration"]["speculative_num_steps"] == "9"


def test_a_run_that_ended_since_the_last_checkpoint_is_listed_once(store: Store) -> None:
    machine = Machine()
    invocation_id = machine.begin(start())
    store.checkpoint("c", 1, machine.tracker.records())
    store.save(machine.end(invocation_id))
    (run,) = store.runs.page().runs
    one = store.runs.one(invocation_id)
    assert run["end"] is not None
    assert one is not None
    assert one["end"] == run["end"]
    table = store.runs.tuning("demo")
    assert table is not None
    assert [row["runs"] for row in table["rows"]] == [[invocation_id[:12]]]


def test_only_of_one_server_and_time(store: Store) -> None:
    campaign(store)
    assert store.runs.page(Query(server="other")).runs == ()
    ends = [one["end"] for one in store.runs.page().runs]
    assert ends[0] is not None
    assert [end["ended_at"] for end in ends if end] == sorted([end["ended_at"] for end in ends if end], reverse=True)


def test_the_tuning_table_of_a_server(store: Store) -> None:
    campaign(store)
    table = store.runs.tuning("demo")
    assert table is not None
    TypeAdapter(TuningShape).validate_python(table, strict=True)
    assert table["by"] == "speculative_num_steps"
    assert [(row["value"], row["best"]["1"], row["crashes"]) for row in table["rows"]] == [
        ("1", 150, 0),
        ("3", 220, 0),
        ("5", 190, 1),
    ]
    assert store.runs.tuning("nobody") is None


def test_a_killed_daemon_tallies_each_line_once(store: Store, tmp_path: Path) -> None:
    """The checkpoint and the journal behind it give what the daemon would have had that was not killed."""
    whole = Machine()
    lines = [*start(), *(decode(3, 100 + number) for number in range(50))]
    crash = whole.life(lines)
    machine = Machine()
    invocation_id = machine.begin(lines[:-20])
    store.checkpoint("c", 1, machine.tracker.records())
    taken = store.load_checkpoint()
    assert taken is not None
    machine.tracker = type(machine.tracker)(["sglang-*.service"], taken.open_runs)
    for text in lines[-20:]:
        machine.tracker.feed(machine.line(invocation_id, text))
    again = machine.end(invocation_id)
    assert record.facts(again.run, again.timeline)["decoding"] == record.facts(crash.run, crash.timeline)["decoding"]


def test_runs_from_before_facts_were_stored_are_made_of_their_timelines(store: Store, tmp_path: Path) -> None:
    _, ids = campaign(store)
    before = store.runs.one(ids[0])
    with closing(sqlite3.connect(tmp_path / "inquest.sqlite")) as db, db:
        db.execute("UPDATE runs SET facts = ''")
    assert store.runs.one(ids[0]) == before


def test_the_schema_of_the_release_before_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as db:
        without = list(takewhile(lambda script: "ADD COLUMN facts" not in script, MIGRATIONS))
        for script in without:
            db.executescript(script)
        db.execute(f"PRAGMA user_version = {len(without)}")
    opened = Store(path)
    assert opened.runs.page().runs == ()
    opened.close()


def test_a_run_of_which_no_record_can_be_made_is_stored_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("forensics.store.runs.facts", broken)
    crash = Machine().life(start(), asked=False)
    assert store.save(crash) is not None
    monkeypatch.undo()
    shown = store.runs.one(crash.run.invocation_id)
    assert shown is not None
    assert shown["max_running_requests"] == 48


def test_secrets_stay_out_of_the_record(store: Store) -> None:
    crash = Machine().life([*start(api_key="'sk-verysecret123456'"), decode(1, 10)])
    store.save(crash)
    assert "verysecret" not in json.dumps(store.runs.one(crash.run.invocation_id))


def test_servers_say_what_is_odd_about_their_speculation(store: Store) -> None:
    lines = [*start(), *(decode(4, 900, 1.02, 0.01) for _ in range(20))]
    machine = Machine()
    store.save(machine.life(lines))
    (server,) = store.servers()
    assert server["remark"] is not None
    assert "useless" in server["remark"]
    machine.begin([*start(), *(decode(4, 900, 2.5) for _ in range(20))])
    store.checkpoint("c", 1, machine.tracker.records())
    (server,) = store.servers()
    assert server["remark"] is None


def shifted(crash: Crash, unit: str) -> Crash:
    return replace(crash, run=replace(crash.run, unit=unit))


def test_runs_of_other_units_are_not_the_run_before(store: Store) -> None:
    machine = Machine()
    store.save(shifted(machine.life(start(speculative_num_steps="7")), "sglang-other.service"))
    store.save(machine.life(start()))
    newest = store.runs.page(Query(server="demo")).runs[0]
    assert newest["before_id"] is None
    assert when(0) < newest["started_at"]
