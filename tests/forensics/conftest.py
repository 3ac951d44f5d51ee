"""Fixtures; the factories for crashes, runs and records are in `factories.py`."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from forensics.__main__ import main
from forensics.api import create_app, serve
from forensics.store import Store
from forensics.store.telling import Channel
from tests.forensics.commandline import Inquest
from tests.forensics.factories import HEALTH

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


@pytest.fixture
def api(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The API, really served; `inquest` is told where."""
    serving = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0)
    address = f"http://127.0.0.1:{serving.port}"
    monkeypatch.setenv("INQUEST_API", address)
    yield address
    serving.close()


@pytest.fixture
def inquest(monkeypatch: pytest.MonkeyPatch) -> Inquest:
    """Runs the command line; the exit status."""

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["inquest", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return code or 0

    return run
