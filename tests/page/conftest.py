"""A real Chromium before a really served page. Debian's `chromium` is used; nothing is downloaded for it."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright import sync_api

from forensics.api import Health, Serving, SourceHealth, create_app, serve
from forensics.store import Store
from forensics.store.telling import Channel

CHROMIUM = shutil.which("chromium")
# Five seconds, Playwright's own, are not much where Chromium shares two cores.
sync_api.expect.set_options(timeout=30_000)
# Without these it looks for updates and names at every start.
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip
HEALTH = Health(
    version="0.1.0",
    started_at=datetime.now(UTC),
    units=("sglang-*.service",),
    read_to=datetime.now(UTC),
    open_runs=2,
    sources=(
        SourceHealth(name="kernel", state="reading"),
        SourceHealth(name="coredump", state="blind", detail="core dumps go to another program"),
    ),
)


@pytest.fixture(scope="session")
def browser() -> Iterator[sync_api.Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def store(tmp_path: Path, channels: tuple[Channel, ...]) -> Iterator[Store]:
    opened = Store(tmp_path / "inquest.sqlite", channels)
    yield opened
    opened.close()


@pytest.fixture
def serving(store: Store) -> Iterator[Serving]:
    made = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0)
    yield made
    made.close()


Open = Callable[..., sync_api.Page]


@pytest.fixture
def open_page(browser: sync_api.Browser, serving: Serving) -> Iterator[Open]:
    """Opens the page at a path. Whatever it complains about, and whatever it asks of elsewhere, fails the test."""
    complaints: list[str] = []
    contexts = []
    address = f"http://localhost:{serving.port}/"

    def opened(
        path: str = "", *, width: int = 1280, height: int = 900, scheme: str = "light", allow: tuple[str, ...] = ()
    ) -> sync_api.Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            timezone_id="UTC",
            locale="en-GB",
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)

        def complained(text: str) -> None:
            if not any(word in text for word in allow):
                complaints.append(text)

        page.on("console", lambda message: complained(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complained(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: None if request.url.startswith(address) else complaints.append(request.url))
        page.goto(address + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
