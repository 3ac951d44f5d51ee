"""What tests of alerts share: a store that tells `pager` and the journal of each death, couriers, deliveries."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from forensics.alerts import Courier, Sink
from forensics.store import Store
from forensics.store.telling import Channel
from tests.forensics.channels import everybody

Employ = Callable[..., AbstractContextManager[Courier]]


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return everybody("pager", "journal")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.alerts.courier.back_off_seconds", lambda attempts: 0.01)


@pytest.fixture
def courier() -> Employ:
    """Carries a store's messages to sinks while the block lasts, woken as the daemon's is."""

    @contextmanager
    def employ(store: Store, *sinks: Sink) -> Iterator[Courier]:
        running = Courier(store.outbox, sinks)
        store.news.listen(running.wake)
        try:
            yield running
        finally:
            running.close()

    return employ
