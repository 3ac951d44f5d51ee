import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forensics import alerts
from forensics.alerts import Courier, Sink
from forensics.alerts.courier import LONGEST_WAIT_SECONDS, back_off_seconds
from forensics.alerts.journal import CRASH_JUDGED, VERDICT_CHANGED, JournalSink, fields
from forensics.alerts.webhook import WebhookSink
from forensics.errors import InquestError, SettingsError
from forensics.model import Family, Strength
from forensics.settings import Settings
from forensics.store import Delivery, Store
from tests.forensics.factories import clean, crash, invocation
from tests.forensics.receiver import Receiver, receiving

Eventually = Callable[[Callable[[], bool]], None]
LINK = "http://127.0.0.1:8642"


def webhook(url: str, name: str = "pager", timeout_seconds: float = 5.0, **headers: str) -> WebhookSink:
    return WebhookSink(name, url, timeout_seconds=timeout_seconds, headers=headers, host="gpu7", link=LINK)


@contextmanager
def courier(store: Store, *sinks: Sink) -> Iterator[Courier]:
    running = Courier(store.outbox, sinks)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.alerts.courier.back_off_seconds", lambda attempts: 0.01)


class Listening:
    """A sink that remembers what it was given."""

    def __init__(self, name: str = "pager") -> None:
        self.name = name
        self.got: list[Delivery] = []

    def send(self, delivery: Delivery) -> None:
        self.got.append(delivery)


# --- the webhook ---------------------------------------------------------------------------------------------


def test_a_crash_arrives_once_with_its_text_and_its_shape(store: Store, eventually: Eventually) -> None:
    with receiving(Receiver()) as receiver, courier(store, webhook(receiver.url)) as running:
        store.save(crash(1), ["pager"])
        running.wake()
        eventually(lambda: store.outbox.states() == {"pager": {"delivered": 1}})
        store.save(crash(1), ["pager"])
        running.wake()
        store.save(crash(2), ["pager"])
        running.wake()
        eventually(lambda: store.outbox.states() == {"pager": {"delivered": 2}})
    first, second = receiver.got
    assert first["path"] == "/hook?team=gpu"
    assert first["headers"]["Content-Type"] == "application/json"
    assert first["headers"]["Idempotency-Key"] == f"{invocation(1)[:12]}-1"
    assert first["body"]["event"] == "crash"
    assert first["body"]["host"] == "gpu7"
    assert first["body"]["link"] == f"{LINK}/crashes/{invocation(1)[:12]}"
    assert first["body"]["text"].startswith("demo on gpu7 died: The scheduler died of RuntimeError")
    assert first["body"]["crash"] == store.shown(invocation(1))
    assert second["body"]["crash"]["id"] == invocation(2)[:12]


@pytest.mark.usefixtures("impatient")
def test_a_receiver_that_fails_first_gets_it_in_the_end(store: Store, eventually: Eventually) -> None:
    with (
        receiving(Receiver(answers=[500, 429, 301, 404])) as receiver,
        courier(store, webhook(receiver.url)) as running,
    ):
        store.save(crash(1), ["pager"])
        running.wake()
        eventually(lambda: store.outbox.states() == {"pager": {"delivered": 1}})
    assert [request["answer"] for request in receiver.got] == [500, 429, 301, 404, 204]
    assert len({request["headers"]["Idempotency-Key"] for request in receiver.got}) == 1
    assert all(request["path"] == "/hook?team=gpu" for request in receiver.got), "a redirect is not followed"


@pytest.mark.usefixtures("impatient")
def test_an_alert_outlives_a_restart_of_the_daemon(tmp_path: Path, eventually: Eventually) -> None:
    with receiving(Receiver()) as receiver:
        url, port = receiver.url, int(receiver.url.split(":")[2].split("/")[0])
    # Nobody listens there now.
    before = Store(tmp_path / "inquest.sqlite")
    with courier(before, webhook(url)) as running:
        before.save(crash(1), ["pager"])
        running.wake()
        eventually(lambda: _attempts(before) > 0)
    before.close()
    after = Store(tmp_path / "inquest.sqlite")
    with receiving(Receiver(), port) as receiver, courier(after, webhook(url)):
        eventually(lambda: after.outbox.states() == {"pager": {"delivered": 1}})
    after.close()
    assert len(receiver.got) == 1


def _attempts(store: Store) -> int:
    delivery = store.outbox.due("pager", 2**62)
    return 0 if delivery is None else delivery.attempts


def test_a_sink_that_hangs_holds_up_no_other(store: Store, eventually: Eventually) -> None:
    quick = Listening("journal")
    with (
        receiving(Receiver(hang=threading.Event())) as receiver,
        courier(store, webhook(receiver.url, timeout_seconds=30), quick) as running,
    ):
        for number in range(1, 6):
            store.save(crash(number), ["pager", "journal"])
            running.wake()
        eventually(lambda: len(quick.got) == 5)
        assert store.outbox.states()["pager"] == {"waiting": 5}
        assert receiver.hang is not None
        receiver.hang.set()


def test_a_receiver_that_does_not_answer_in_time_counts_as_failed(store: Store, eventually: Eventually) -> None:
    with (
        receiving(Receiver(hang=threading.Event())) as receiver,
        courier(store, webhook(receiver.url, timeout_seconds=0.1)) as running,
    ):
        store.save(crash(1), ["pager"])
        running.wake()
        eventually(lambda: _attempts(store) == 1)


def test_a_changed_verdict_is_told_as_such(store: Store, eventually: Eventually) -> None:
    with receiving(Receiver()) as receiver, courier(store, webhook(receiver.url)) as running:
        store.save(crash(1), ["pager"])
        running.wake()
        eventually(lambda: len(receiver.got) == 1)
        store.save(crash(1, cause="kernel-oom", family=Family.KERNEL_OOM), ["pager"])
        running.wake()
        eventually(lambda: len(receiver.got) == 2)
    assert [request["body"]["event"] for request in receiver.got] == ["crash", "verdict-changed"]
    assert receiver.got[1]["headers"]["Idempotency-Key"] == f"{invocation(1)[:12]}-2"
    assert receiver.got[1]["body"]["text"].startswith("Corrected: ")


def test_headers_and_the_urls_password_go_along(store: Store) -> None:
    store.save(crash(1), ["pager"])
    delivery = store.outbox.due("pager", 2**62)
    assert delivery is not None
    with receiving(Receiver()) as receiver:
        url = receiver.url.replace("http://", "http://me:p%40ss@")
        webhook(url, **{"X-Team": "gpu"}).send(delivery)
        webhook(url, Authorization="Bearer t").send(delivery)
    assert receiver.got[0]["headers"]["Authorization"] == "Basic bWU6cEBzcw=="
    assert receiver.got[0]["headers"]["X-Team"] == "gpu"
    assert receiver.got[1]["headers"]["Authorization"] == "Bearer t"


def test_what_a_receiver_says_is_kept_without_secrets(store: Store, eventually: Eventually) -> None:
    class Chatty(Listening):
        def send(self, delivery: Delivery) -> None:
            raise InquestError("webhook-refused", "401: api_key=s3cret is wrong")

    with courier(store, Chatty()) as running:
        store.save(crash(1), ["pager"])
        running.wake()
        eventually(lambda: _attempts(store) == 1)
    with store._database.reading() as db:
        assert db.execute("SELECT last_error FROM outbox").fetchone()[0] == (
            "InquestError: 401: api_key=[removed] is wrong"
        )


def test_the_post_starts_within_20_ms_of_the_save(store: Store, eventually: Eventually) -> None:
    delays = []
    with receiving(Receiver()) as receiver, courier(store, webhook(receiver.url)) as running:
        for number in range(1, 41):
            store.save(crash(number), ["pager"])
            saved = time.monotonic()
            running.wake()
            eventually(lambda number=number: len(receiver.got) == number)  # type: ignore[misc]
            delays.append(receiver.got[-1]["at"] - saved)
    assert statistics.median(delays) < 0.020, delays


# --- the courier ---------------------------------------------------------------------------------------------


def test_what_was_stored_while_no_courier_ran_goes_out_at_its_start(store: Store, eventually: Eventually) -> None:
    store.save(crash(1), ["pager"])
    sink = Listening()
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 1)


def test_alerts_go_out_in_the_order_of_their_crashes(store: Store, eventually: Eventually) -> None:
    for number in range(1, 31):
        store.save(crash(number), ["pager"])
    sink = Listening()
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 30)
    assert [int(delivery.crash["id"], 16) for delivery in sink.got] == list(range(1, 31))


def test_closing_does_not_wait_for_a_hanging_receiver(store: Store) -> None:
    with receiving(Receiver(hang=threading.Event())) as receiver:
        store.save(crash(1), ["pager"])
        running = Courier(store.outbox, [webhook(receiver.url, timeout_seconds=30)])
        started = time.monotonic()
        running.close(timeout_seconds=0.1)
        assert time.monotonic() - started < 5


def test_a_store_that_fails_for_a_moment_does_not_end_the_courier(
    store: Store, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("forensics.alerts.courier.STORE_RETRY_SECONDS", 0.01)
    due, failures = store.outbox.due, iter([OSError("disk"), OSError("disk")])

    def sometimes(sink: str, now_usec: int) -> Delivery | None:
        for error in failures:
            raise error
        return due(sink, now_usec)

    monkeypatch.setattr(store.outbox, "due", sometimes)
    store.save(crash(1), ["pager"])
    sink = Listening()
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 1)
    assert "the outbox failed" in caplog.text


def test_back_off_grows_to_a_limit_with_jitter() -> None:
    for attempts, most in [(0, 1), (1, 2), (5, 32), (20, LONGEST_WAIT_SECONDS), (10**9, LONGEST_WAIT_SECONDS)]:
        waits = [back_off_seconds(attempts) for _ in range(200)]
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 100


# --- the journal ---------------------------------------------------------------------------------------------


def delivery_of(store: Store) -> Delivery:
    delivery = store.outbox.due("journal", 2**62)
    assert delivery is not None
    return delivery


def test_the_journal_record_has_our_message_id_and_the_verdict_in_fields(store: Store) -> None:
    sent: list[tuple[str, dict[str, str]]] = []
    store.save(crash(1), ["journal"])
    JournalSink(host="gpu7", link=LINK, send=lambda text, **given: sent.append((text, given))).send(delivery_of(store))
    [(text, given)] = sent
    assert text.startswith("demo on gpu7 died: ")
    assert given == {
        "MESSAGE_ID": CRASH_JUDGED,
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "inquestd",
        "INQUEST_UNIT": "sglang-demo.service",
        "INQUEST_CAUSE": "python-exception",
        "INQUEST_FAMILY": "traceback",
        "INQUEST_STRENGTH": "confirmed",
        "INQUEST_CRASH_ID": invocation(1)[:12],
        "INQUEST_FINGERPRINT": "v1-0123456789abcdef",
        "INQUEST_INVOCATION_ID": invocation(1),
        "INQUEST_REVISION": "1",
    }


@pytest.mark.parametrize(
    ("told", "then", "message_id", "priority"),
    [
        (crash(1), None, CRASH_JUDGED, "3"),
        (crash(1, cause="stop-timeout"), None, CRASH_JUDGED, "4"),
        (crash(1, cause="unknown", strength=None), None, CRASH_JUDGED, "3"),
        (crash(1), crash(1, strength=Strength.LIKELY), VERDICT_CHANGED, "5"),
        (crash(1), clean(1), VERDICT_CHANGED, "5"),
    ],
)
def test_priorities(store: Store, told: Any, then: Any, message_id: str, priority: str) -> None:
    store.save(told, ["journal"])
    if then is not None:
        store.outbox.delivered(delivery_of(store), 1)
        store.save(then, ["journal"])
    given = fields(delivery_of(store))
    assert (given["MESSAGE_ID"], given["PRIORITY"]) == (message_id, priority)


SEND_ONE = """
import sys
from pathlib import Path
from forensics.alerts.journal import JournalSink
from forensics.store import Store
store = Store(Path(sys.argv[1]))
delivery = store.outbox.due("journal", 2**62)
JournalSink(host="gpu7", link="http://127.0.0.1:8642").send(delivery)
store.close()
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare for a /run of its own"
)
def test_libsystemd_writes_the_record_to_journalds_socket(store: Store, tmp_path: Path) -> None:
    """The real systemd.journal.send, in a mount namespace where journald's socket is ours."""
    store.save(crash(1), ["journal"])
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(path))
        journald.settimeout(20)
        script = (
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && touch /run/systemd/journal/socket && "
            f"mount --bind {path} /run/systemd/journal/socket && "
            f'exec {sys.executable} -c "$0" {tmp_path / "inquest.sqlite"}'
        )
        subprocess.run(["unshare", "--mount", "sh", "-c", script, SEND_ONE], check=True, timeout=60)
        datagram = journald.recv(1 << 16)
    simple = dict(line.split(b"=", 1) for line in datagram.split(b"\n") if b"=" in line)
    assert simple[b"MESSAGE_ID"].decode() == CRASH_JUDGED
    assert simple[b"PRIORITY"] == b"3"
    assert simple[b"INQUEST_CAUSE"] == b"python-exception"
    # A message of several lines goes in the binary form: the name, a length, the text.
    assert b"MESSAGE\n" in datagram
    assert b"demo on gpu7 died: The scheduler died of RuntimeError" in datagram


# --- from settings -------------------------------------------------------------------------------------------


def test_the_journal_is_always_told() -> None:
    assert [sink.name for sink in alerts.sinks(Settings())] == ["journal"]


def test_webhooks_come_from_the_settings(store: Store, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer s3cret\n")
    store.save(crash(1), ["pager"])
    delivery = store.outbox.due("pager", 2**62)
    assert delivery is not None
    with receiving(Receiver()) as receiver:
        (tmp_path / "url").write_text(receiver.url + "\n")
        settings = Settings.model_validate(
            {
                "alerts": {
                    "link": "https://gpu7.example/",
                    "webhooks": [
                        {
                            "name": "pager",
                            "url": {"file": str(tmp_path / "url")},
                            "headers": {"Authorization": {"file": str(tmp_path / "token")}},
                        }
                    ],
                }
            }
        )
        journal, pager = alerts.sinks(settings)
        pager.send(delivery)
    assert (journal.name, pager.name) == ("journal", "pager")
    assert receiver.got[0]["headers"]["Authorization"] == "Bearer s3cret"
    assert receiver.got[0]["body"]["link"] == f"https://gpu7.example/crashes/{invocation(1)[:12]}"
    assert receiver.got[0]["body"]["host"] == socket.gethostname()


def test_a_secret_that_is_no_url_is_told_at_start_without_the_secret(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("s3cret\n")
    settings = Settings.model_validate(
        {"alerts": {"webhooks": [{"name": "pager", "url": {"file": str(tmp_path / "url")}}]}}
    )
    with pytest.raises(SettingsError) as error:
        alerts.sinks(settings)
    assert "'pager'" in error.value.message
    assert "s3cret" not in json.dumps([error.value.message, error.value.hint])
