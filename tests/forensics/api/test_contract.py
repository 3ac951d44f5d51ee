"""Schemathesis asks everything that OpenAPI lets one ask, and a good deal that it does not, and looks at each answer.

The stream of events is left out, since each question to it lasts until its client goes; by hand, in four minutes:
`schemathesis run http://localhost:8642/openapi.json --include-path /events --max-examples 10`.
"""

import subprocess
import sys

from forensics.api import Serving
from forensics.store import Store
from tests.forensics.factories import clean, crash, open_run


def test_no_answer_breaks_the_contract(serving: Serving, store: Store) -> None:
    for number in range(1, 6):
        store.save(crash(number, unit=f"sglang-s{number % 2}.service"))
    store.save(clean(6))
    store.checkpoint("here", 1, [open_run(7)])
    address = f"http://127.0.0.1:{serving.port}/openapi.json"
    options = ["--exclude-path=/events", "--max-examples=10", "--seed=1", "--no-color"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", address, *options]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert asked.returncode == 0, asked.stdout[-6000:] + asked.stderr[-2000:]
    assert "No issues found" in asked.stdout
