from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from forensics.events import Batch, NotAnswering, RestartScheduled
from forensics.model import Family, Strength
from forensics.store import Store
from forensics.store.rows import now_usec
from forensics.store.telling import Channel
from forensics.timeline import Timeline
from tests.forensics.channels import everybody
from tests.forensics.factories import clean, crash, open_run, record


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return everybody("pager")


def samples(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def value(client: TestClient, name: str, **labels: str) -> float:
    return samples(client)[name, frozenset(labels.items())]


def crashes(client: TestClient, cause: str, family: str, server: str = "demo") -> float:
    return value(client, "inquest_crashes_total", server=server, cause=cause, family=family)


def test_every_server_has_every_cause_from_the_start(client: TestClient, store: Store) -> None:
    store.checkpoint("here", 1, [open_run(1)])
    assert crashes(client, "kernel-oom", "kernel-oom") == 0
    assert crashes(client, "unknown", "unknown") == 0
    assert value(client, "inquest_restarts_total", server="demo") == 0
    store.save(crash(1, cause="kernel-oom", family=Family.KERNEL_OOM))
    assert crashes(client, "kernel-oom", "kernel-oom") == 1


def test_counters_never_fall(client: TestClient, store: Store) -> None:
    for number in (1, 2, 3):
        store.save(crash(number))
    store.save(clean(4))
    store.save(crash(3, strength=Strength.LIKELY, cause="kernel-oom", family=Family.KERNEL_OOM))
    store.prune(1, 36500)
    assert crashes(client, "python-exception", "traceback") == 3, "each is counted once, by its first verdict"
    assert crashes(client, "kernel-oom", "kernel-oom") == 0
    assert value(client, "inquest_verdicts_amended_total", server="demo") == 1


def test_a_restart_is_counted_once_however_late_it_is_told(client: TestClient, store: Store) -> None:
    early = crash(1)
    store.save(early)
    restart = RestartScheduled(record=record("Scheduled restart job", 90_000_000, source="systemd"), n_restarts=1)
    late = replace(early, timeline=Timeline.of((*early.timeline.events, restart)))
    store.save(late)
    store.save(late)
    assert value(client, "inquest_restarts_total", server="demo") == 1
    assert client.get("/lives?since=2026-03-01T00:00:00Z").json()["lives"][0]["restarted"] is True


def test_sources_and_what_could_not_be_seen(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    assert value(client, "inquest_source_up", source="journal") == 1
    assert value(client, "inquest_source_up", source="gpu") == 0
    assert value(client, "inquest_source_gaps_total", source="gpu") == 1
    assert value(client, "inquest_source_gaps_total", source="journal") == 0
    assert value(client, "inquest_build_info", version="1.2.3") == 1


def test_alerts(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    assert value(client, "inquest_alerts_waiting", sink="pager") == 1
    assert value(client, "inquest_alert_deliveries_total", sink="pager", outcome="failed") == 0
    delivery = store.outbox.take("pager", 1 << 60)
    assert delivery is not None
    store.outbox.failed(delivery, "refused", 1)
    store.outbox.delivered(delivery, 2)
    assert value(client, "inquest_alerts_waiting", sink="pager") == 0
    assert value(client, "inquest_alert_deliveries_total", sink="pager", outcome="failed") == 1
    assert value(client, "inquest_alert_deliveries_total", sink="pager", outcome="delivered") == 1


def test_what_a_living_server_printed_last(client: TestClient, store: Store) -> None:
    run = open_run(1)
    for number, speed in enumerate(("100.5", "1650.25")):
        at = record("Decode batch", 70_000_000 + number)
        run.events.append(
            Batch(
                record=at, phase="decode", values=(("gen throughput (token/s)", speed), ("accept len", f"2.{number}"))
            )
        )
    store.checkpoint("here", 1, [run])
    assert value(client, "inquest_server_up", server="demo") == 1
    assert value(client, "inquest_server_generation_tokens_per_second", server="demo") == 1650.25
    assert value(client, "inquest_server_accept_length_tokens", server="demo") == 2.1


def test_a_living_server_that_does_not_answer(client: TestClient, store: Store) -> None:
    run = open_run(1)
    store.checkpoint("here", 1, [run])
    assert value(client, "inquest_server_hangs", server="demo") == 0
    at = record("runs but does not answer", 70_000_000)
    silent = NotAnswering(
        record=at, since_usec=at.realtime_usec, probe="nothing", processes=(), lost=(), stacks="", on_hang="tell"
    )
    run.events.append(silent)
    store.checkpoint("there", 2, [run])
    assert value(client, "inquest_server_hangs", server="demo") == 1
    assert value(client, "inquest_server_up", server="demo") == 1


def test_the_time_to_a_verdict_is_that_of_deaths_that_were_watched(client: TestClient, store: Store) -> None:
    store.save(crash(1), alert=False)
    assert value(client, "inquest_verdict_seconds_count") == 0
    store.save(crash(2))
    store.save(crash(2, strength=Strength.LIKELY))
    assert value(client, "inquest_verdict_seconds_count") == 1


def test_what_is_gathered_for_a_later_message_does_not_wait_for_its_receiver(client: TestClient, store: Store) -> None:
    store.save(crash(1))
    with store._database.writing() as db:
        db.execute("UPDATE outbox SET due_usec = ?", (now_usec() + 60_000_000,))
    assert value(client, "inquest_alerts_waiting", sink="pager") == 0


def test_openmetrics_when_asked_for(client: TestClient) -> None:
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
