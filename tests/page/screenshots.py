"""Makes the pictures of the page anew: `python -m tests.page.screenshots`, with Chromium and a look at them after."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import sync_playwright

from forensics.api import create_app, serve
from forensics.store import Store
from tests.page import scene
from tests.page.conftest import ARGUMENTS, CHROMIUM, HEALTH

FOLDER = Path(__file__).parent / "screenshots"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        store = Store(Path(folder) / "inquest.sqlite")
        scene.fill(store, datetime.now(UTC))
        serving = serve(create_app(store, lambda: HEALTH), "127.0.0.1", 0)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        newest = store.crashes().crashes[0]["id"]
        for name, scheme, height, path in (
            ("servers", "light", 800, ""),
            ("crash", "dark", 1180, f"#/crashes/{newest}"),
        ):
            page = browser.new_page(viewport={"width": 1200, "height": height}, color_scheme=scheme)
            page.goto(f"http://localhost:{serving.port}/{path}")
            page.wait_for_selector(".crash, .plot canvas")
            page.wait_for_load_state("load")
            page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()
        serving.close()
        store.close()


if __name__ == "__main__":
    main()
