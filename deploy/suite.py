"""deploy/test: set up what the tests need on a fresh machine, and run all of them.

deploy/test             static checks, unit tests, then the end-to-end tests
deploy/test --fast      only static checks and unit tests (seconds; no root needed)
deploy/test [--fast] PYTEST-ARGUMENTS…
"""

import os
import subprocess
import sys

from deploy import environment, packages, sglang_cpu
from deploy.environment import ROOT
from deploy.progress import DeployError, say, step

VENV = ROOT / ".venv"
SLOW = "e2e or page or peer or sglang or vm or pristine"
_NONE_COLLECTED = 5  # pytest's exit status

# What runs under other interpreters, with other packages, is not among them.
_SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("deploy", "tests/e2e", "tests/e2e/vm")
    for path in (ROOT / folder).glob("*.py")
)


def main(arguments: list[str]) -> int:
    """Exit status: 0 only when every check and every test passed."""
    fast = "--fast" in arguments
    arguments = [a for a in arguments if a != "--fast"]
    if not fast and os.geteuid() != 0:
        raise DeployError(
            "the end-to-end tests boot machines, which needs root",
            todo="sudo ./deploy/test, or without them: ./deploy/test --fast",
        )
    environment.become_installer()
    with step("packages"):
        packages.ensure(*packages.FOR_INSTALLING, *(() if fast else packages.FOR_TESTS))
        if not fast:
            packages.ensure_offered(*packages.FOR_THE_PAGE)
    with step(f"the tests' environment ({VENV})"):
        environment.install_for_tests(VENV)
    failed = [name for name, argv in _static_checks(fast=fast) if not _passes(name, argv)]
    if failed:
        say(f"static checks failed: {', '.join(failed)}")
        return 1
    status = _pytest("unit tests", ["-m", f"not ({SLOW})"], arguments)
    if fast or status:
        return status
    with step(f"Inquest's environment ({environment.VENV})"):
        environment.install()
    sglang_cpu.install()
    return _pytest("end-to-end tests", ["-m", SLOW, "-v", "--durations=15"], arguments)


def _static_checks(*, fast: bool) -> list[tuple[str, list[str]]]:
    tools = str(VENV / "bin")
    checks = [
        ("ruff check", [f"{tools}/ruff", "check", "."]),
        ("ruff format", [f"{tools}/ruff", "format", "--check", "."]),
        ("mypy", [f"{tools}/mypy"]),
        ("mypy of the scripts", [f"{tools}/mypy", *_SCRIPTS]),
    ]
    if not fast:
        scripts = [".ci/run", "deploy/up", "deploy/down", "deploy/test", "deploy/machine"]
        checks.append(("shellcheck", ["shellcheck", *scripts]))
    return checks


def _passes(name: str, argv: list[str]) -> bool:
    say(f"==> {name}")
    return subprocess.run(argv, cwd=ROOT).returncode == 0


def _pytest(title: str, arguments: list[str], chosen: list[str]) -> int:
    say(f"==> {title}")
    status = subprocess.run([VENV / "bin" / "pytest", *arguments, *chosen], cwd=ROOT).returncode
    # Whoever names tests may mean only one of the two kinds; all tests at once are never none.
    return 0 if status == _NONE_COLLECTED and chosen else status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DeployError as error:
        error.exit("deploy/test")
