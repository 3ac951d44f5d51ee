import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from standardwebhooks import Webhook

from forensics.alerts.post import Poster
from forensics.alerts.sink import Refused
from forensics.alerts.webhook import WebhookSink, signing_key
from forensics.errors import InquestError, SettingsError
from forensics.model import Family
from forensics.store import Store
from tests.forensics.alerts.conftest import Employ
from tests.forensics.alerts.deliveries import LINK, delivery, living
from tests.forensics.factories import crash, invocation
from tests.forensics.receiver import Receiver, receiving

Eventually = Callable[[Callable[[], bool]], None]
KEY = "whsec_bm90IGEgc2VjcmV0LCBqdXN0IGEgdGVzdCBrZXk="


def webhook(url: str, timeout_seconds: float = 5.0, signing: bytes | None = None, **headers: str) -> WebhookSink:
    poster = Poster(url, timeout_seconds=timeout_seconds, headers=headers)
    return WebhookSink("pager", poster, host="gpu7", link=LINK, signing_key=signing)


def delivered(store: Store) -> int:
    return store.outbox.states().get("pager", {}).get("delivered", 0)


def test_a_crash_arrives_once_with_its_text_and_its_shape(
    store: Store, courier: Employ, eventually: Eventually
) -> None:
    with receiving(Receiver()) as receiver, courier(store, webhook(receiver.url)):
        store.save(crash(1))
        eventually(lambda: delivered(store) == 1)
        store.save(crash(1))
        store.save(crash(2))
        eventually(lambda: delivered(store) == 2)
    first, second = receiver.got
    assert first["path"] == "/hook?team=gpu"
    assert first["headers"]["Content-Type"] == "application/json"
    assert first["headers"]["Idempotency-Key"] == first["headers"]["webhook-id"] == f"{invocation(1)[:12]}-1"
    assert "webhook-signature" not in first["headers"], "there is no key to sign with"
    assert first["body"]["event"] == "crash"
    assert (first["body"]["host"], first["body"]["server"]) == ("gpu7", "demo")
    assert first["body"]["link"] == f"{LINK}/crashes/{invocation(1)[:12]}"
    assert first["body"]["text"].startswith("demo on gpu7 died of python-exception (confirmed): The scheduler died of")
    assert first["body"]["crash"] == store.shown(invocation(1))
    assert second["body"]["crash"]["id"] == invocation(2)[:12]


def test_a_living_run_is_told_of_without_a_crash() -> None:
    with receiving(Receiver()) as receiver:
        webhook(receiver.url).send(living("hang", details={"said": "no answer to a health check"}))
    body = receiver.got[0]["body"]
    assert (body["event"], body["crash"], body["details"]["said"]) == ("hang", None, "no answer to a health check")
    assert body["text"].startswith("demo on gpu7 runs but does not answer: no answer to a health check")


def test_a_signature_is_one_that_the_standards_own_library_accepts() -> None:
    with receiving(Receiver()) as receiver:
        webhook(receiver.url, signing=signing_key(KEY, "pager")).send(delivery())
    [request] = receiver.got
    accepted: Any = Webhook(KEY).verify(request["raw"], request["headers"])
    assert accepted["crash"]["id"] == invocation(1)[:12]
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(KEY).verify(request["raw"].replace(b"demo", b"prod"), request["headers"])
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(KEY).verify(request["raw"], {**request["headers"], "webhook-id": "another"})


@pytest.mark.parametrize("text", ["whsec_c2hvcnQ=", "not base64!", ""])
def test_a_key_that_is_none_is_told_without_it(text: str) -> None:
    with pytest.raises(SettingsError) as error:
        signing_key(text, "pager")
    assert "pager: its signing key is not base64 of 24 bytes" in error.value.message
    assert not text or text not in json.dumps([error.value.message, error.value.hint])


@pytest.mark.usefixtures("impatient")
def test_a_receiver_that_fails_first_gets_it_in_the_end(store: Store, courier: Employ, eventually: Eventually) -> None:
    with receiving(Receiver(answers=[500, 429, 301, 404])) as receiver, courier(store, webhook(receiver.url)):
        store.save(crash(1))
        eventually(lambda: delivered(store) == 1)
    assert [request["answer"] for request in receiver.got] == [500, 429, 301, 404, 204]
    assert len({request["headers"]["webhook-id"] for request in receiver.got}) == 1
    assert all(request["path"] == "/hook?team=gpu" for request in receiver.got), "a redirect is not followed"


@pytest.mark.parametrize(
    ("status", "refused"),
    [(400, True), (413, True), (500, True), (401, False), (404, False), (429, False), (503, False)],
)
def test_only_what_is_said_of_the_message_counts_as_refused(status: int, refused: bool) -> None:
    with receiving(Receiver(answers=[status])) as receiver, pytest.raises(InquestError) as error:
        webhook(receiver.url).send(delivery())
    assert isinstance(error.value, Refused) == refused
    assert f"the receiver answered {status}" in error.value.message


def test_what_the_receiver_answered_is_told() -> None:
    with receiving(Receiver()) as receiver:
        assert webhook(receiver.url).send(delivery()) == "204 No Content"


def test_a_receiver_that_does_not_answer_in_time_counts_as_failed(
    store: Store, courier: Employ, eventually: Eventually
) -> None:
    with (
        receiving(Receiver(hang=threading.Event())) as receiver,
        courier(store, webhook(receiver.url, timeout_seconds=0.1)),
    ):
        store.save(crash(1))
        eventually(lambda: any(one.name == "deliveries" and one.label == "failed" for one in store.news.tallies()))


def test_a_changed_verdict_is_told_as_such(store: Store, courier: Employ, eventually: Eventually) -> None:
    with receiving(Receiver()) as receiver, courier(store, webhook(receiver.url)):
        store.save(crash(1))
        eventually(lambda: delivered(store) == 1)
        store.save(crash(1, cause="kernel-oom", family=Family.KERNEL_OOM))
        eventually(lambda: delivered(store) == 2)
    assert [request["body"]["event"] for request in receiver.got] == ["crash", "amended"]
    assert receiver.got[1]["headers"]["webhook-id"] == f"{invocation(1)[:12]}-2"
    assert receiver.got[1]["body"]["text"].startswith("Corrected: ")


def test_headers_and_the_urls_password_go_along() -> None:
    with receiving(Receiver()) as receiver:
        url = receiver.url.replace("http://", "http://me:p%40ss@")
        webhook(url, **{"X-Team": "gpu"}).send(delivery())
        webhook(url, Authorization="Bearer t").send(delivery())
    assert receiver.got[0]["headers"]["Authorization"] == "Basic bWU6cEBzcw=="
    assert receiver.got[0]["headers"]["X-Team"] == "gpu"
    assert receiver.got[1]["headers"]["Authorization"] == "Bearer t"


def test_the_post_starts_within_20_ms_of_the_save(store: Store, courier: Employ, eventually: Eventually) -> None:
    delays = []
    with receiving(Receiver()) as receiver, courier(store, webhook(receiver.url)):
        for number in range(1, 41):
            store.save(crash(number))
            saved = time.monotonic()
            eventually(lambda number=number: len(receiver.got) == number)  # type: ignore[misc]
            delays.append(receiver.got[-1]["at"] - saved)
    assert statistics.median(delays) < 0.020, delays
