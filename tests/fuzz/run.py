"""A fuzz target under atheris: `python -m tests.fuzz.run TARGET [libFuzzer options]`, for example `-max_total_time=60`.

atheris is not among the test's dependencies: `pip install atheris` where a wheel for this Python exists.
"""

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found, unused-ignore]

with atheris.instrument_imports(include=["forensics"]):
    from tests.fuzz.targets import SEEDS, TARGETS


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"which target? {', '.join(TARGETS)}")
    target = TARGETS[sys.argv.pop(1)]
    with tempfile.TemporaryDirectory(prefix="inquest-fuzz-") as corpus:
        for number, seed in enumerate(SEEDS):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
