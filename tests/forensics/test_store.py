import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.errors import StoreError
from forensics.model import Evidence, Role, Strength
from forensics.redact import redact
from forensics.store import Query, Store
from forensics.store.rows import now_usec
from forensics.store.telling import Channel
from forensics.timeline import Timeline
from tests.forensics import full_disk
from tests.forensics.channels import everybody
from tests.forensics.factories import EPOCH, clean, crash, invocation, open_run, traceback

SINKS = ("journal", "pager")
LATER = 2**62


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return everybody(*SINKS)


def ids(store: Store, **filters: object) -> list[str]:
    return [shown["invocation_id"] for shown in store.crashes(Query(**filters)).crashes]  # type: ignore[arg-type]


# --- saving --------------------------------------------------------------------------------------------------


def test_a_crash_comes_back_as_it_was_saved(store: Store) -> None:
    assert store.save(crash(1)) == crash(1)
    assert store.crash(invocation(1)) == crash(1)


def test_the_same_verdict_again_is_no_news(store: Store) -> None:
    store.save(crash(1))
    assert store.save(crash(1)) is None
    assert len(store.crashes().crashes) == 1
    assert store.outbox.states() == {"journal": {"waiting": 1}, "pager": {"waiting": 1}}


@pytest.mark.parametrize(
    "change",
    [
        {"cause": "kernel-oom"},
        {"strength": Strength.LIKELY},
        {"strength": None},
        {"subclass": "ValueError"},
        {"is_crash": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_verdict_is_the_next_revision(store: Store, change: dict[str, object]) -> None:
    store.save(crash(1))
    amended = store.save(crash(1, **change))
    assert amended is not None
    assert amended.revision == 2
    assert store.crash(invocation(1)) == amended


def test_other_words_for_the_same_verdict_are_kept_but_not_told(store: Store) -> None:
    store.save(crash(1))
    assert store.save(crash(1, summary="The same, in other words")) is None
    shown = store.shown(invocation(1))
    assert shown is not None
    assert (shown["summary"], shown["revision"]) == ("The same, in other words", 1)


def test_later_evidence_for_the_same_verdict_is_kept_but_not_told(store: Store) -> None:
    first = crash(1)
    late = traceback(61_500_000, "late record")
    more = replace(
        first,
        timeline=Timeline.of((*first.timeline.events, late), sources=first.timeline.sources),
        verdict=replace(first.verdict, notes=("a core was written",)),
    )
    store.save(first)
    assert store.save(more) is None
    kept = store.crash(invocation(1))
    assert kept == more
    assert store.outbox.states() == {"journal": {"waiting": 1}, "pager": {"waiting": 1}}


@pytest.mark.parametrize("change", [{}, {"cause": "unknown", "strength": None}], ids=["same verdict", "another"])
def test_a_judgement_from_less_evidence_changes_nothing(store: Store, change: dict[str, object]) -> None:
    """As of a daemon that was killed and has lost what it had sampled since its last checkpoint."""
    full = crash(1)
    store.save(full)
    poorer = replace(crash(1, **change), timeline=Timeline.of(full.timeline.events[1:]))
    assert store.save(poorer) is None
    assert store.crash(invocation(1)) == full


def test_a_judgement_that_lost_something_and_learnt_something_counts(store: Store) -> None:
    full = crash(1)
    store.save(full)
    late = traceback(61_500_000, "a record that came late")
    other = replace(crash(1, cause="kernel-oom"), timeline=Timeline.of((*full.timeline.events[1:], late)))
    amended = store.save(other)
    assert amended is not None
    assert amended.revision == 2


def test_what_comes_when_all_of_a_run_was_forgotten_is_no_new_verdict(store: Store) -> None:
    """PID 1 names the last run when it refuses a start, however long ago that was."""
    full = crash(1)
    store.save(full)
    late = traceback(900_000_000, "Start request repeated too quickly.")
    alone = replace(crash(1, cause="unknown", strength=None), timeline=Timeline.of((late,)))
    assert store.save(alone) is None
    assert store.crash(invocation(1)) == full


def test_new_rules_may_judge_the_same_timeline_otherwise(store: Store) -> None:
    store.save(crash(1))
    amended = store.save(crash(1, cause="hang"))
    assert amended is not None
    assert amended.revision == 2


def test_an_amended_verdict_keeps_its_place_in_the_order(store: Store) -> None:
    for number in (1, 2, 3):
        store.save(crash(number))
    store.save(crash(2, cause="kernel-oom"))
    assert ids(store) == [invocation(3), invocation(2), invocation(1)]


def test_secrets_reach_neither_file_nor_checkpoint(store: Store, tmp_path: Path) -> None:
    secret = "hf_" + "Q7" * 17
    leaky = traceback(message=f"OSError: token {secret} was refused")
    store.save(crash(1, evidence=(Evidence(role=Role.INITIATING, event=leaky),), summary=f"refused {secret}"))
    record = open_run(2)
    record.events.append(leaky)
    store.checkpoint("cursor", 1, [record])
    shown = store.shown(invocation(1))
    assert shown is not None
    assert "[removed]" in shown["summary"]
    assert "[removed]" in shown["evidence"][0]["message"]
    store.close()
    assert not [path for path in tmp_path.iterdir() if secret.encode() in path.read_bytes()]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.text(st.characters(exclude_categories=()), max_size=200))
def test_any_text_can_be_stored(store: Store, message: str) -> None:
    """Also lone surrogates, NUL and what is not a character."""
    odd = traceback(message=message)
    store.save(crash(1, evidence=(Evidence(role=Role.INITIATING, event=odd),), summary=message))
    shown = store.shown(invocation(1))
    assert shown is not None
    assert shown["summary"] == redact(message)


# --- reading -------------------------------------------------------------------------------------------------


def test_newest_death_first_whatever_the_order_of_saving(store: Store) -> None:
    for number in (2, 3, 1):
        store.save(crash(number))
    assert ids(store) == [invocation(3), invocation(2), invocation(1)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [4, 3, 2, 1]),
        ({"server": "demo"}, [4, 3, 1]),
        ({"server": "sglang-other.service"}, [2]),
        ({"server": "nobody"}, []),
        ({"cause": "kernel-oom"}, [3]),
        ({"family": "traceback", "server": "demo"}, [4, 3, 1]),
        ({"strength": "likely"}, [4]),
        ({"phase": "startup"}, []),
        ({"fingerprint": "v1-ffff"}, [1]),
        ({"since": EPOCH + timedelta(seconds=62)}, [4, 3, 2]),
        ({"until": EPOCH + timedelta(seconds=62)}, [1]),
        ({"since": EPOCH + timedelta(seconds=62), "until": EPOCH + timedelta(seconds=64)}, [3, 2]),
        ({"limit": 2}, [4, 3]),
    ],
    ids=str,
)
def test_filters(store: Store, filters: dict[str, object], expected: list[int]) -> None:
    store.save(crash(1, fingerprint="v1-ffff"))
    store.save(crash(2, unit="sglang-other.service"))
    store.save(crash(3, cause="kernel-oom"))
    store.save(crash(4, strength=Strength.LIKELY))
    store.save(clean(5))
    assert ids(store, **filters) == [invocation(number) for number in expected]


def test_pages_neither_skip_nor_repeat_while_crashes_arrive(store: Store) -> None:
    for number in range(1, 51):
        store.save(crash(number))
    seen: list[str] = []
    before = None
    arriving = 51
    while True:
        page = store.crashes(Query(limit=7, before=before))
        seen += [shown["invocation_id"] for shown in page.crashes]
        if (before := page.next) is None:
            break
        for _ in range(3):
            store.save(crash(arriving))
            arriving += 1
        store.save(crash(20, subclass=f"amended at {arriving}"))
    assert seen == [invocation(number) for number in range(50, 0, -1)]


def test_deaths_in_the_same_microsecond_are_paged_one_by_one(store: Store) -> None:
    for number in range(1, 6):
        store.save(crash(number, usec=60_000_000))
    seen: list[str] = []
    before = None
    while True:
        page = store.crashes(Query(limit=1, before=before))
        seen += [shown["invocation_id"] for shown in page.crashes]
        if (before := page.next) is None:
            break
    assert sorted(seen) == [invocation(number) for number in range(1, 6)]


@pytest.mark.parametrize("cursor", ["", "x", "====", "MTIz", "MTIzLjQ1Ljc", "MTIzLjR4", "ä"])
def test_a_cursor_of_somebody_else_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(StoreError) as error:
        store.crashes(Query(before=cursor))
    assert error.value.code == "bad-cursor"


def test_a_crash_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    one, other = (crash(1, invocation_id=digits * 2) for digits in ("abcd" + "0" * 12, "abce" + "f" * 12))
    store.save(one)
    store.save(other)
    assert store.crash("abcd") == one
    assert store.crash("abce") == other
    assert store.crash(one.run.invocation_id) == one
    assert store.crash(one.crash_id) == one
    assert store.crash("abcf") is None
    assert store.crash("") is None
    assert store.crash("%") is None
    with pytest.raises(StoreError) as error:
        store.crash("abc")
    assert error.value.code == "ambiguous-id"


def test_a_timeline_shows_the_role_of_what_is_evidence(store: Store) -> None:
    store.save(crash(1))
    timeline = store.timeline(invocation(1))
    assert timeline is not None
    assert [(fact["kind"], fact["role"]) for fact in timeline["events"]] == [
        ("traceback", "initiating"),
        ("process-exit", "cascade"),
        ("unit-result", None),
    ]
    assert timeline["events"][1]["values"] == {
        "process": "Main",
        "command": "ExecStart",
        "exit_code": "killed",
        "exit_status": 9,
    }
    assert timeline["events"][1]["pid"] == 1
    assert timeline["events"][1]["at"] == "2026-03-01T12:01:01.000000Z"


def test_servers_are_those_that_ran_and_those_that_run(store: Store) -> None:
    store.save(crash(1))
    store.save(clean(2))
    store.save(crash(3, unit="sglang-other.service"))
    ended = open_run(8, "sglang-other.service")
    ended.ended_usec = 70_000_000
    store.checkpoint("cursor", 1, [ended, open_run(9), open_run(10, "sglang-young.service")])
    demo, other, young = store.servers()
    assert (demo["server"], demo["runs"], demo["crashes"]) == ("demo", 2, 1)
    assert demo["running"] == {
        "invocation_id": invocation(9),
        "since": "2026-03-01T12:00:10.000000Z",
        "not_answering_since": None,
    }
    assert demo["last_run"] is not None
    assert demo["last_run"]["cause"] == "clean-stop"
    assert demo["last_crash"] is not None
    assert demo["last_crash"]["id"] == invocation(1)[:12]
    assert other["running"] is None
    assert (young["runs"], young["crashes"], young["last_run"], young["last_crash"]) == (0, 0, None, None)


def test_a_reader_sees_whole_crashes_while_the_writer_writes(store: Store) -> None:
    """A reader in another thread never waits, and never sees a crash without its alert."""
    stop = threading.Event()
    wrong: list[str] = []
    seen = 0

    def read() -> None:
        nonlocal seen
        while not stop.is_set():
            total = sum(store.outbox.states().get("pager", {}).values())
            page = store.crashes(Query(limit=500))
            if len(page.crashes) < total:
                wrong.append(f"{total} alerts, then {len(page.crashes)} crashes")
            seen = max(seen, len(page.crashes))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 81):
        store.save(crash(number))
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert seen > 0
    assert len(ids(store, limit=500)) == 80


# --- the checkpoint ------------------------------------------------------------------------------------------


def test_there_is_no_checkpoint_at_first(store: Store) -> None:
    assert store.load_checkpoint() is None


def test_a_checkpoint_replaces_the_one_before(store: Store) -> None:
    store.checkpoint("one", 1, [open_run(1), open_run(2)])
    store.checkpoint("two", 2, [open_run(2)])
    last = store.load_checkpoint()
    assert last is not None
    assert (last.cursor, last.realtime_usec, last.open_runs) == ("two", 2, (open_run(2),))


def test_checkpoints_write_only_what_is_new_and_drop_what_is_gone(store: Store) -> None:
    """Each is loaded as a whole, whatever the ones before it wrote."""
    record = open_run(1)
    other = open_run(2)
    for second in range(1, 30):
        record.events.append(traceback(second * 1_000_000, f"line {second}"))
        if second % 7 == 0:
            del record.events[:5]
        if second == 20:
            other.ended_usec = 1
        runs = [record, other] if second < 25 else [record]
        store.checkpoint(str(second), second, runs)
        last = store.load_checkpoint()
        assert last is not None
        assert (last.cursor, list(last.open_runs)) == (str(second), runs)


def test_a_restarted_daemon_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    record = open_run(1)
    for restart in range(3):
        store = Store(tmp_path / "inquest.sqlite")
        last = store.load_checkpoint()
        if last is not None:
            [record] = last.open_runs
            assert len(record.events) == 1 + 2 * restart
        for number in (1, 2):
            record.events.append(traceback(restart * 10 + number))
            store.checkpoint(str(number), 1, [record])
        store.close()


def test_a_checkpoint_that_failed_is_made_up_for_by_the_next(store: Store) -> None:
    record = open_run(1)
    store.checkpoint("one", 1, [record])
    record.events.append(traceback(7, "x" * 200_000))
    full_disk.limit(store)
    with pytest.raises(StoreError):
        store.checkpoint("two", 2, [record])
    full_disk.lift(store)
    record.events.append(traceback(8))
    store.checkpoint("three", 3, [record])
    last = store.load_checkpoint()
    assert last is not None
    assert last.open_runs == (record,)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_point_no_crash_is_lost_and_none_is_there_twice(tmp_path: Path, seed: int) -> None:
    """A process saves crash after crash; it is killed with SIGKILL at moments that nobody chose, again and again."""
    path = tmp_path / "inquest.sqlite"
    chance = random.Random(seed)
    reached = 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forensics.saving", str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        # Let it do a few, then strike while it works on the next.
        for _ in range(chance.randint(1, 40)):
            reached = int(process.stdout.readline())
        for _ in range(chance.randint(0, 20_000)):
            pass
        process.kill()
        rest = process.stdout.read().split()
        process.stdout.close()
        assert process.wait() == -9
        # The last line may have been cut in the middle; a number that came whole was saved.
        reached = max([reached, *(int(line) for line in rest[:-1])])
        store = Store(path)
        try:
            page = store.crashes(Query(limit=500))
            found = [int(shown["id"], 16) for shown in reversed(page.crashes)]
            assert page.next is None
            assert found == list(range(1, len(found) + 1))
            assert len(found) >= reached
            assert store.outbox.states() == {sink: {"waiting": len(found)} for sink in SINKS}
            last = store.load_checkpoint()
            assert (0 if last is None else int(last.cursor)) in (len(found) - 1, len(found))
            assert all(shown["revision"] == 1 for shown in page.crashes)
        finally:
            store.close()


# --- the outbox ----------------------------------------------------------------------------------------------


def test_an_alert_is_in_the_outbox_as_soon_as_its_crash_is_stored(store: Store) -> None:
    store.save(crash(1))
    delivery = store.outbox.take("pager", now_usec())
    assert delivery is not None
    assert delivery.crash["id"] == invocation(1)[:12]
    assert delivery.key == f"{invocation(1)[:12]}-1"
    assert (delivery.attempts, delivery.kind) == (1, "crash")


def test_a_clean_stop_and_what_happened_before_our_time_are_quiet(store: Store) -> None:
    store.save(clean(1))
    store.save(crash(2), alert=False)
    assert store.outbox.states() == {}
    shown = store.shown(invocation(2))
    assert shown is not None
    assert shown["backfilled"]


def test_delivered_is_delivered(store: Store) -> None:
    store.save(crash(1))
    delivery = store.outbox.take("pager", now_usec())
    assert delivery is not None
    store.outbox.delivered(delivery, now_usec())
    assert store.outbox.take("pager", LATER) is None
    assert store.outbox.take("journal", now_usec()) is not None


def test_a_failed_try_waits_for_its_time(store: Store) -> None:
    store.save(crash(1))
    now = now_usec()
    delivery = store.outbox.take("pager", now)
    assert delivery is not None
    store.outbox.failed(delivery, "refused", now + 1_000_000)
    assert store.outbox.take("pager", now) is None
    assert store.outbox.next_try_usec("pager", now) == now + 1_000_000
    again = store.outbox.take("pager", now + 1_000_000)
    assert again is not None
    assert (again.key, again.attempts) == (delivery.key, 2)


def test_a_clock_that_was_set_back_does_not_silence_a_sink(store: Store) -> None:
    store.save(crash(1))
    now = now_usec()
    delivery = store.outbox.take("pager", now)
    assert delivery is not None
    store.outbox.failed(delivery, "refused", now + 1_000_000)
    assert store.outbox.take("pager", now - 86_400_000_000) is not None


def test_a_sink_that_is_back_gets_the_rest_at_once(store: Store) -> None:
    now = now_usec()
    for number in (1, 2):
        store.save(crash(number, unit=f"sglang-{number}.service"))
        delivery = store.outbox.take("pager", now_usec())
        assert delivery is not None
        store.outbox.failed(delivery, "refused", now + 900_000_000 + number)
    store.save(crash(3))
    third = store.outbox.take("pager", now_usec())
    assert third is not None
    assert third.crash is not None
    assert third.crash["id"] == invocation(3)[:12]
    store.outbox.delivered(third, now)
    following = store.outbox.take("pager", now)
    assert following is not None
    assert following.crash["id"] == invocation(1)[:12]


def test_the_messages_of_one_server_keep_their_order(store: Store) -> None:
    now = now_usec()
    store.save(crash(1))
    store.save(crash(2))
    first = store.outbox.take("pager", now_usec())
    assert first is not None
    store.outbox.failed(first, "refused", now + 900_000_000)
    assert store.outbox.take("pager", now_usec()) is None, "the second waits for the first"
    assert store.outbox.next_try_usec("pager", now_usec()) == now + 900_000_000
    store.outbox.failed(first, "413: too large", now + 900_000_000, holds_up=False)
    second = store.outbox.take("pager", now_usec())
    assert second is not None
    assert second.key == f"{invocation(2)[:12]}-1", "what is refused for what is in it holds up no other"


def test_a_changed_verdict_takes_the_place_of_what_still_waits(store: Store) -> None:
    store.save(crash(1))
    store.save(crash(1, cause="kernel-oom"))
    assert store.outbox.states()["pager"] == {"superseded": 1, "waiting": 1}
    delivery = store.outbox.take("pager", LATER)
    assert delivery is not None
    assert (delivery.crash["cause"], delivery.key) == ("kernel-oom", f"{invocation(1)[:12]}-2")
    assert delivery.kind == "crash", "nobody was told the first verdict"


def test_a_changed_verdict_amends_what_was_told(store: Store) -> None:
    store.save(crash(1))
    first = store.outbox.take("pager", LATER)
    assert first is not None
    store.outbox.delivered(first, now_usec())
    store.save(clean(1))
    second = store.outbox.take("pager", LATER)
    assert second is not None
    assert (second.kind, second.crash["is_crash"], second.crash["revision"]) == ("amended", False, 2)


def test_alerts_for_sinks_that_are_gone_are_given_up(store: Store) -> None:
    store.save(crash(1))
    assert store.outbox.abandon_others(["journal"]) == 1
    assert store.outbox.states() == {"journal": {"waiting": 1}, "pager": {"abandoned": 1}}


# --- keeping and opening -------------------------------------------------------------------------------------


def test_prune_keeps_the_newest_and_counts_clean_runs_apart(store: Store) -> None:
    base = int((now_usec() - EPOCH.timestamp() * 1e6) - 3600e6)
    for number in range(1, 6):
        store.save(crash(number, usec=base + number))
    store.save(clean(6, usec=base))
    store.save(crash(7, usec=base - 40 * 86_400_000_000))
    assert store.prune(max_crashes=3, max_age_days=30) == 3
    assert ids(store) == [invocation(5), invocation(4), invocation(3)]
    assert [run["invocation_id"] for run in store.runs.page().runs if not run["end"]["is_crash"]] == [invocation(6)]
    assert store.outbox.states() == {"journal": {"waiting": 3}, "pager": {"waiting": 3}}
    assert store.prune(max_crashes=3, max_age_days=30) == 0


def test_the_file_is_not_for_everybody(tmp_path: Path) -> None:
    Store(tmp_path / "inquest.sqlite").close()
    assert (tmp_path / "inquest.sqlite").stat().st_mode & 0o007 == 0


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "inquest.sqlite"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError) as error:
        Store(path)
    assert error.value.code == "store-too-new"


@pytest.mark.parametrize("what", ["a directory", "no such directory", "no database"])
def test_a_file_that_cannot_be_the_store_is_told_by_name(tmp_path: Path, what: str) -> None:
    path = tmp_path / "inquest.sqlite"
    if what == "a directory":
        path.mkdir()
    elif what == "no such directory":
        path = tmp_path / "nowhere" / "inquest.sqlite"
    else:
        path.write_text("this is not a database, but long enough to be read as one\n" * 100)
    with pytest.raises(StoreError) as error:
        Store(path)
    assert error.value.code == "store-unusable"
    assert str(path) in error.value.message


def test_a_full_disk_is_a_store_error_and_the_store_works_on(store: Store) -> None:
    store.save(crash(1))
    full_disk.limit(store)
    with pytest.raises(StoreError) as error:
        full_disk.fill(store)
    assert error.value.code == "store-write-failed"
    full_disk.lift(store)
    store.save(crash(500))
    assert ids(store, limit=1) == [invocation(500)]
