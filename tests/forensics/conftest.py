"""Fixtures; the factories for crashes, runs and records are in `factories.py`."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from forensics.store import Store
from forensics.store.telling import Channel

# No deadline a case: a busy machine is not a failure, and the tests that are about time say so.
settings.register_profile("inquest", deadline=None)
settings.load_profile("inquest")


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    """Whom the store tells; nobody, unless a test is about it."""
    return ()


@pytest.fixture
def store(tmp_path: Path, channels: tuple[Channel, ...]) -> Iterator[Store]:
    opened = Store(tmp_path / "inquest.sqlite", channels)
    yield opened
    opened.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits for a condition, and fails when it does not come true in ten seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in 10 s"
            pause.wait(0.002)

    return wait
