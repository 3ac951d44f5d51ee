"""What is told stands in the store with what it tells of, and nothing of it is only in memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.alerts.decide import Manner
from forensics.alerts.routing import Addressee
from forensics.errors import StoreError
from forensics.events import Batch, Milestone, StartLimitHit, UnitStarted
from forensics.model import Crash, RunRecord
from forensics.store import Store
from forensics.store.database import MIGRATIONS
from forensics.store.telling import Channel, Happening, Message, Past
from forensics.timeline import Timeline
from tests.forensics import full_disk
from tests.forensics.alerts.desk import MANNER
from tests.forensics.factories import crash, open_run, record

LATER = 2**61


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return (
        Addressee(name="journal", type="journal", manner=Manner(), everything=True),
        Addressee(name="pager", type="webhook", manner=MANNER),
    )


def waiting(store: Store, channel: str = "pager") -> list[tuple[str, int]]:
    """Kind and count of what waits, oldest first."""
    with store._database.reading() as db:
        found = db.execute(
            "SELECT kind, count FROM outbox WHERE sink = ? AND state = 'waiting' ORDER BY id", (channel,)
        ).fetchall()
    return [(row["kind"], row["count"]) for row in found]


def arrives(store: Store, channel: str = "pager") -> str:
    delivery = store.outbox.take(channel, LATER)
    assert delivery is not None
    store.outbox.delivered(delivery, 1)
    return delivery.kind


def ready(number: int, usec: int) -> RunRecord:
    run = open_run(number)
    run.events = [
        UnitStarted(record=record("Started", usec - 1, source="systemd")),
        Milestone(record=record("The server is fired up and ready to roll!", usec), name="ready"),
    ]
    return run


def given_up(death: Crash) -> Crash:
    hit = StartLimitHit(record=record("Start request repeated too quickly.", death.run.ended_usec + 1_000_000))
    return replace(death, timeline=Timeline.of((*death.timeline.events, hit), sources=death.timeline.sources))


def test_what_is_gathered_outlives_the_daemon(tmp_path: Path, channels: tuple[Channel, ...]) -> None:
    for number in range(1, 6):
        store = Store(tmp_path / "inquest.sqlite", channels)
        store.save(crash(number))
        store.close()
    store = Store(tmp_path / "inquest.sqlite", channels)
    assert waiting(store) == [("crash", 1), ("folded", 4)]
    assert waiting(store, "journal") == [("crash", 1)] * 5
    store.close()


def test_T_F5_a_daemon_that_starts_again_says_nothing_again(tmp_path: Path, channels: tuple[Channel, ...]) -> None:
    store = Store(tmp_path / "inquest.sqlite", channels)
    store.save(crash(1))
    store.checkpoint("a", 1, [ready(2, 90_000_000)])
    assert [arrives(store), arrives(store)] == ["crash", "recovered"]
    store.close()
    for _ in range(3):
        store = Store(tmp_path / "inquest.sqlite", channels)
        store.save(crash(1))
        store.checkpoint("a", 1, [ready(2, 90_000_000)])
        assert waiting(store) == []
        store.close()


def test_T_F6_a_restart_loop_into_the_start_limit_is_two_messages(store: Store) -> None:
    for number in range(1, 101):
        store.save(crash(number, usec=60_000_000 + number * 600_000))
    assert arrives(store) == "crash"
    store.save(given_up(crash(100, usec=120_000_000)))
    assert waiting(store) == [("start-limit", 100)]
    assert waiting(store, "journal") == [("crash", 1)] * 100 + [("start-limit", 100)]
    store.save(given_up(crash(100, usec=120_000_000)))
    assert waiting(store) == [("start-limit", 100)], "it is told once"


def test_a_server_that_flaps_for_long_is_still_one_story(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.store.outbox.LOOKED_BACK", 20)
    deaths = 50
    for number in range(1, deaths + 1):
        at_usec = 60_000_000 + number * 10_000_000
        store.save(crash(number, usec=at_usec))
        store.checkpoint(str(number), number, [ready(number + 1, at_usec + 5_000_000)])
        if number == 1:
            assert arrives(store) == "crash"
    assert [kind for kind, _ in waiting(store)] == ["recovered"]
    assert waiting(store)[0][1] == deaths - 1


def test_a_restart_loop_is_news_and_counted_when_it_is_given_up(store: Store) -> None:
    store.save(crash(1))
    store.save(given_up(crash(1)))
    assert [item.kind for item in store.news.after(0, 10)] == ["crash", "start-limit"]
    assert [tally.count for tally in store.news.tallies() if tally.name == "start_limits"] == [1]


def test_a_verdict_that_comes_after_the_server_is_back_tells_both(store: Store) -> None:
    """A daemon that was down reads on: the next run is ready before the death is judged."""
    store.checkpoint("a", 1, [ready(2, 90_000_000)])
    store.save(crash(1))
    assert waiting(store) == [("crash", 1), ("recovered", 0)]


def test_a_run_is_told_to_be_ready_once(store: Store) -> None:
    store.checkpoint("a", 1, [open_run(2)])
    store.checkpoint("b", 2, [ready(2, 90_000_000)])
    store.checkpoint("c", 3, [ready(2, 90_000_000)])
    assert [item.kind for item in store.news.after(0, 10)] == ["run-started", "run-ready"]
    assert store.news.after(0, 10)[1].data["at"] == "2026-03-01T12:01:30.000000Z"


def test_a_unit_that_systemd_calls_started_is_not_ready_before_it_says_so(store: Store) -> None:
    run = open_run(2)
    run.events = [UnitStarted(record=record("Started", 10_000_000, source="systemd"))]
    store.checkpoint("a", 1, [run])
    assert [item.kind for item in store.news.after(0, 10)] == ["run-started"]
    run.events = [*run.events, Batch(record=record("Decode batch", 95_000_000), phase="decode", values=())]
    store.checkpoint("b", 2, [run])
    assert [item.kind for item in store.news.after(0, 10)] == ["run-started", "run-ready"]


def test_a_hang_is_news_and_a_message_once_however_often_it_is_noted(store: Store) -> None:
    for _ in range(2):
        store.note("hang", "sglang-demo.service", "7" * 32, 1000, {"said": "no answer, api_key=s3cret"})
    store.note("answering", "sglang-other.service", "8" * 32, 2000, {})
    assert [item.kind for item in store.news.after(0, 10)] == ["hang", "answering"]
    assert store.news.after(0, 10)[0].data["said"] == "no answer, api_key=[removed]"
    assert waiting(store) == [("hang", 1)]
    delivery = store.outbox.take("pager", LATER)
    assert delivery is not None
    assert (delivery.crash, delivery.server, delivery.details["said"]) == (None, "demo", "no answer, api_key=[removed]")


def test_a_message_is_not_there_when_what_it_tells_of_could_not_be_stored(store: Store) -> None:
    store.save(crash(1))
    full_disk.limit(store)
    with pytest.raises(StoreError):
        full_disk.fill(store)
    with store._database.reading() as db:
        deaths = db.execute("SELECT count(*) FROM runs").fetchone()[0]
        told = db.execute("SELECT sum(count) FROM outbox WHERE sink = 'pager'").fetchone()[0]
    assert told == deaths


class Broken:
    """A channel whose decision fails."""

    name, type = "broken", "webhook"

    def decide(self, happening: Happening, past: Past) -> tuple[Message, ...]:
        raise KeyError("nobody thought of that")


def test_a_decision_that_fails_costs_neither_the_death_nor_the_alert(
    tmp_path: Path, channels: tuple[Channel, ...], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "inquest.sqlite", (Broken(), *channels))
    assert store.save(crash(1)) is not None
    store.note("hang", "sglang-demo.service", "7" * 32, 1000, {})
    assert waiting(store, "broken") == [("crash", 1)]
    assert waiting(store) == [("crash", 1), ("hang", 1)]
    assert "what broken is told of sglang-demo.service could not be decided" in caplog.text
    store.close()


def test_messages_of_a_store_of_before_are_carried_over(
    tmp_path: Path, channels: tuple[Channel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the version wrote it whose outbox knew deaths and sinks alone."""
    path = tmp_path / "inquest.sqlite"
    before = next(number for number, script in enumerate(MIGRATIONS) if "CREATE TABLE messages" in script)
    monkeypatch.setattr("forensics.store.database.MIGRATIONS", MIGRATIONS[:before])
    old = Store(path)
    with old._database.writing() as db:
        db.execute(
            "INSERT INTO runs (invocation_id, unit, is_crash, cause, family, phase, fingerprint, died_at_usec,"
            " saved_at_usec, revision, backfilled, run, verdict, timeline)"
            " VALUES ('aa', 'sglang-demo.service', 1, 'hang', 'hang', 'serving', 'f', 5, 6, 1, 0, '{}', '{}', x'')"
        )
        db.execute(
            "INSERT INTO outbox (invocation_id, revision, sink, state, next_try_usec, created_usec)"
            " VALUES ('aa', 1, 'pager', 'waiting', 7, 6)"
        )
        db.execute("INSERT INTO news (kind, invocation_id, unit, at_usec) VALUES ('crash', 'aa', 'u', 5)")
    old.close()
    monkeypatch.undo()
    store = Store(path, channels)
    assert waiting(store) == [("crash", 1)]
    store.note("hang", "sglang-demo.service", "7" * 32, 1000, {})
    assert store.news.bounds() == (0, 2), "numbers go on"
    store.close()
