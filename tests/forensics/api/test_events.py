import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from forensics.api import Serving, create_app, events, serve
from forensics.model import Strength
from forensics.store import Store
from tests.forensics.api.listener import Listener
from tests.forensics.factories import HEALTH, clean, crash, invocation, open_run


def test_what_happens_is_told_as_it_happens(serving: Serving, store: Store) -> None:
    listener = Listener(serving.port)
    assert listener.answer.headers["content-type"].startswith("text/event-stream")
    heard = listener.events()
    first = next(listener.blocks())
    assert first[0] == "retry: 1000"
    assert first[1].startswith("id: ")
    store.checkpoint("here", 1, [open_run(1)])
    store.save(crash(1))
    store.save(crash(1, strength=Strength.LIKELY))
    store.save(clean(2))
    told = list(islice(heard, 4))
    assert [one.kind for one in told] == ["run-started", "crash", "amended", "run-ended"]
    assert told[0].data["invocation_id"] == invocation(1)
    assert told[0].data["server"] == "demo"
    assert told[2].data["strength"] == "likely"
    assert told[2].data["revision"] == 2
    assert told[3].data["cause"] == "clean-stop"
    listener.close()


def test_a_checkpoint_of_runs_that_are_known_is_no_news(store: Store) -> None:
    store.checkpoint("here", 1, [open_run(1)])
    store.checkpoint("there", 2, [open_run(1), open_run(2)])
    assert [item.data["invocation_id"] for item in store.news.after(0, 10)] == [invocation(1), invocation(2)]


def test_a_client_that_reconnects_a_hundred_times_under_load_misses_nothing(serving: Serving, store: Store) -> None:
    crashes = 400
    writer = threading.Thread(target=lambda: [store.save(crash(number)) for number in range(1, crashes + 1)])
    listener = Listener(serving.port)
    next(listener.blocks())
    first_id = listener.last_id
    listener.close()
    # The first words carry the place to begin at, as the browser keeps it.
    listener = Listener(serving.port, first_id or f"{store.news.store_token}.0")
    writer.start()
    heard: list[str] = []
    connections = 0
    while len(heard) < crashes:
        for one in islice(listener.events(), 4):
            assert one.kind == "crash"
            heard.append(one.data["invocation_id"])
        last_id = listener.last_id
        listener.close()
        connections += 1
        listener = Listener(serving.port, last_id)
    listener.close()
    writer.join()
    assert connections >= 100
    assert heard == [invocation(number) for number in range(1, crashes + 1)]


def test_an_id_of_another_store_is_not_gone_on_from(serving: Serving, store: Store) -> None:
    store.save(crash(1))
    for foreign in ("ffffffff.1", f"{store.news.store_token}.99", "rubbish", f"{store.news.store_token}.x"):
        listener = Listener(serving.port, foreign)
        assert next(listener.events()).kind == "reset", foreign
        store.save(crash(2 + hash(foreign) % 1000))
        assert next(listener.events()).kind == "crash"
        listener.close()


def test_who_was_away_for_too_long_is_told_to_read_anew(
    serving: Serving, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.store.news.KEPT", 3)
    for number in range(1, 9):
        store.save(crash(number))
    store.prune(100, 36500)
    token = store.news.store_token
    with closing(Listener(serving.port, f"{token}.4")) as listener:
        assert next(listener.events()).kind == "reset"
    with closing(Listener(serving.port, f"{token}.5")) as listener:
        assert next(listener.events()).data["invocation_id"] == invocation(6)


def test_what_was_pruned_meanwhile_is_passed_over(serving: Serving, store: Store) -> None:
    for number in (1, 2, 3):
        store.save(crash(number))
    store.prune(1, 36500)
    with closing(Listener(serving.port, f"{store.news.store_token}.0")) as listener:
        heard = next(listener.events())
    assert (heard.data["invocation_id"], heard.id) == (invocation(3), f"{store.news.store_token}.3")


def test_an_idle_stream_is_kept_alive(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    assert events.HEARTBEAT_SECONDS < 15
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.05)
    listener = Listener(serving.port)
    blocks = listener.blocks()
    next(blocks)
    assert next(blocks) == [": still here"]
    assert next(blocks) == [": still here"]
    listener.close()


def test_listeners_hold_no_thread_and_are_let_go(
    serving: Serving, store: Store, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    before = threading.active_count()
    listeners = [Listener(serving.port) for _ in range(20)]
    store.save(crash(1))
    assert [next(listener.events()).kind for listener in listeners] == ["crash"] * 20
    assert threading.active_count() == before
    broadcast = serving._server.config.app.state.broadcast  # type: ignore[union-attr]
    for listener in listeners:
        listener.close()
    store.save(crash(2))
    eventually(lambda: not broadcast._waiting)


def test_too_many_listeners_are_refused(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 1)
    listener = Listener(serving.port)
    next(listener.blocks())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/events", timeout=10)
    assert refused.value.code == 503
    assert refused.value.headers["Retry-After"] == "10"
    refused.value.close()
    listener.close()


def test_open_streams_do_not_hold_up_the_end(store: Store, tmp_path: Path) -> None:
    serving = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0)
    listener = Listener(serving.port)
    next(listener.blocks())
    started = time.monotonic()
    serving.close()
    assert not serving.alive
    assert time.monotonic() - started < 1.0
    assert list(listener.blocks()) == []
    listener.close()


def test_a_text_that_cannot_be_encoded_does_not_end_the_stream(serving: Serving, store: Store) -> None:
    with closing(Listener(serving.port)) as listener:
        next(listener.blocks())
        store.save(crash(1, summary="half a pair: \ud800 and\r\nid: 7\n\nevent: forged"))
        store.save(crash(2))
        first, second = islice(listener.events(), 2)
    assert first.data["summary"] == "half a pair: \ud800 and\r\nid: 7\n\nevent: forged"
    assert (first.kind, second.kind, second.data["invocation_id"]) == ("crash", "crash", invocation(2))
