import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.alerts import Courier
from forensics.alerts.courier import LONGEST_WAIT_SECONDS, PATIENCE_TRIES, back_off_seconds
from forensics.alerts.sink import Refused
from forensics.errors import InquestError
from forensics.store import Delivery, Store
from tests.forensics.alerts.conftest import Employ
from tests.forensics.alerts.test_webhook import webhook
from tests.forensics.channels import everybody
from tests.forensics.factories import crash, invocation
from tests.forensics.receiver import Receiver, receiving

Eventually = Callable[[Callable[[], bool]], None]


class Listening:
    """A sink that remembers what it was given."""

    def __init__(self, name: str = "pager") -> None:
        self.name = name
        self.got: list[Delivery] = []

    def send(self, delivery: Delivery) -> str:
        self.got.append(delivery)
        return "heard"


class Failing(Listening):
    """A sink that fails as it is told for the deaths of one server."""

    def __init__(self, error: Exception, unit: str = "sglang-demo.service") -> None:
        super().__init__()
        self.error, self.unit = error, unit
        self.tried: set[str] = set()

    def send(self, delivery: Delivery) -> str:
        self.tried.add(delivery.key[:12])
        if delivery.unit == self.unit:
            raise self.error
        return super().send(delivery)


def last_error(store: Store) -> str:
    with store._database.reading() as db:
        row = db.execute("SELECT last_error FROM outbox WHERE sink = 'pager' ORDER BY id").fetchone()
    return "" if row is None else str(row[0])


def test_what_was_stored_while_no_courier_ran_goes_out_at_its_start(
    store: Store, courier: Employ, eventually: Eventually
) -> None:
    store.save(crash(1))
    sink = Listening()
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 1)


def test_alerts_go_out_in_the_order_of_their_crashes(store: Store, courier: Employ, eventually: Eventually) -> None:
    for number in range(1, 31):
        store.save(crash(number))
    sink = Listening()
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 30)
    assert [delivery.key for delivery in sink.got] == [f"{invocation(number)[:12]}-1" for number in range(1, 31)]


def test_an_alert_outlives_a_restart_of_the_daemon(tmp_path: Path, courier: Employ, eventually: Eventually) -> None:
    with receiving(Receiver()) as receiver:
        url, port = receiver.url, int(receiver.url.split(":")[2].split("/")[0])
    # Nobody listens there now.
    before = Store(tmp_path / "inquest.sqlite", everybody("pager"))
    with courier(before, webhook(url)):
        before.save(crash(1))
        eventually(lambda: last_error(before) != "")
    before.close()
    after = Store(tmp_path / "inquest.sqlite", everybody("pager"))
    with receiving(Receiver(), port) as receiver, courier(after, webhook(url)):
        eventually(lambda: after.outbox.states() == {"pager": {"delivered": 1}})
    after.close()
    assert len(receiver.got) == 1


def test_a_sink_that_hangs_holds_up_no_other(store: Store, courier: Employ, eventually: Eventually) -> None:
    quick = Listening("journal")
    with (
        receiving(Receiver(hang=threading.Event())) as receiver,
        courier(store, webhook(receiver.url, timeout_seconds=30), quick),
    ):
        for number in range(1, 6):
            store.save(crash(number))
        eventually(lambda: len(quick.got) == 5)
        assert store.outbox.states()["pager"] == {"waiting": 5}
        assert receiver.hang is not None
        receiver.hang.set()


def test_a_message_that_cannot_go_holds_up_those_of_its_server_only(
    store: Store, courier: Employ, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.alerts.courier.back_off_seconds", lambda attempts: 60.0)
    sink = Failing(InquestError("x", "no route to host"))
    for number, unit in enumerate(["sglang-demo.service", "sglang-demo.service", "sglang-other.service"], start=1):
        store.save(crash(number, unit=unit))
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 1)
        eventually(lambda: last_error(store) != "")
    assert [delivery.unit for delivery in sink.got] == ["sglang-other.service"]
    assert sink.tried == {invocation(1)[:12], invocation(3)[:12]}, "the second death waits behind the first, untried"


@pytest.mark.usefixtures("impatient")
def test_a_message_that_a_receiver_never_takes_does_not_hold_up_the_others_for_ever(
    store: Store, courier: Employ, eventually: Eventually
) -> None:
    """A receiver that falls over one kind of message: that one is tried on, and the next ones arrive."""

    class Picky(Listening):
        def __init__(self) -> None:
            super().__init__()
            self.tries: list[str] = []

        def send(self, delivery: Delivery) -> str:
            self.tries.append(delivery.key[:12])
            if delivery.key.startswith(invocation(1)[:12]):
                raise Refused("x", "the receiver answered 500")
            return super().send(delivery)

    sink = Picky()
    for number in (1, 2, 3):
        store.save(crash(number))
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 2 and sink.tries.count(invocation(1)[:12]) > PATIENCE_TRIES)
    assert sink.tries[:PATIENCE_TRIES] == [invocation(1)[:12]] * PATIENCE_TRIES, "it comes first as long as it may"


def test_what_a_receiver_says_is_kept_without_secrets(store: Store, courier: Employ, eventually: Eventually) -> None:
    with courier(store, Failing(InquestError("webhook-refused", "401: api_key=s3cret is wrong"))):
        store.save(crash(1))
        eventually(lambda: last_error(store) != "")
    assert last_error(store) == "401: api_key=[removed] is wrong"


def test_closing_does_not_wait_for_a_hanging_receiver(store: Store) -> None:
    with receiving(Receiver(hang=threading.Event())) as receiver:
        store.save(crash(1))
        running = Courier(store.outbox, [webhook(receiver.url, timeout_seconds=30)])
        started = time.monotonic()
        running.close(timeout_seconds=0.1)
        assert time.monotonic() - started < 5


def test_a_store_that_fails_for_a_moment_does_not_end_the_courier(
    store: Store,
    courier: Employ,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("forensics.alerts.courier.STORE_RETRY_SECONDS", 0.01)
    take, failures = store.outbox.take, iter([OSError("disk"), OSError("disk")])

    def sometimes(sink: str, now_usec: int) -> Delivery | None:
        for error in failures:
            raise error
        return take(sink, now_usec)

    monkeypatch.setattr(store.outbox, "take", sometimes)
    store.save(crash(1))
    sink = Listening()
    with courier(store, sink):
        eventually(lambda: len(sink.got) == 1)
    assert "the outbox failed" in caplog.text


def test_back_off_grows_to_a_limit_with_jitter() -> None:
    for attempts, most in [(0, 1), (1, 2), (5, 32), (20, LONGEST_WAIT_SECONDS), (10**9, LONGEST_WAIT_SECONDS)]:
        waits = [back_off_seconds(attempts) for _ in range(200)]
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 100


def test_killed_in_the_midst_of_delivery_everything_arrives_and_in_order(tmp_path: Path) -> None:
    """A process saves deaths of two servers and sends them; it is killed with SIGKILL again and again, at moments that
    nobody chose. Each death arrives at least once, first in the order of its server, and never under two ids."""
    path, deaths = tmp_path / "inquest.sqlite", 40
    chance = random.Random(7)
    with receiving(Receiver(answers=[500, 204, 204, 503] * 40)) as receiver:
        command = [sys.executable, "-m", "tests.forensics.alerts.sending", str(path), receiver.url, str(deaths)]
        for _ in range(8):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            for _ in range(chance.randint(1, 12)):
                if not process.stdout.readline():
                    break
            os.kill(process.pid, signal.SIGKILL)
            process.stdout.close()
            process.wait()
        subprocess.run([*command, "--until-all-arrived"], check=True, timeout=60)
    accepted = [request["body"] for request in receiver.got if request["answer"] == 204]
    ids = [request["headers"]["webhook-id"] for request in receiver.got if request["answer"] == 204]
    for server in ("a", "b"):
        arrived = [body["crash"]["id"] for body in accepted if body["server"] == server]
        first = list(dict.fromkeys(arrived))
        assert first == sorted(first)
    assert len({body["crash"]["id"] for body in accepted}) == deaths
    assert len(set(ids)) == deaths
