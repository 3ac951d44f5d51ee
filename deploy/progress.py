"""What a person sees while deploy works: one line a step with its time, and the log when one fails.

Commands write into one log file; the terminal gets the step's line, kept alive on a terminal by the
log's newest line and elsewhere by a line every half minute.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

HEARTBEAT_SECONDS = 30.0
LOG = Path("/var/log") if os.geteuid() == 0 else Path(tempfile.gettempdir()) / f"inquest-{os.geteuid()}"
LOG /= "inquest-deploy.log"


class DeployError(Exception):
    """Something that the person at the terminal has to know: what is wrong, and what to do."""

    def __init__(self, problem: str, *, todo: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.todo = todo

    def exit(self, program: str) -> NoReturn:
        sys.exit(f"{program}: {self.problem}" + (f"\n  → {self.todo}" if self.todo else ""))


def say(text: str = "") -> None:
    print(text, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Announce a step, and tell how long it took."""
    began = time.monotonic()
    say(f"==> {title}")
    yield
    say(f"    done in {time.monotonic() - began:.1f} s")


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    todo: str = "",
) -> None:
    """Run a command with its output in the log; DeployError with the log's end when it fails."""
    command = shlex.join(map(str, argv))
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("ab") as log:
        log.write(f"\n$ {command}\n".encode())
        log.flush()
        start = log.tell()
        process = subprocess.Popen(
            list(map(str, argv)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        _watch(process, start)
    if process.returncode != 0:
        tail = "\n".join(f"    | {line}" for line in _lines(start)[-20:])
        raise DeployError(
            f"this command failed with status {process.returncode}: {command}\n{tail}",
            todo=todo or f"the whole output is in {LOG}",
        )


def answer(argv: Sequence[str | Path], *, check: bool = True) -> str:
    """What a short command prints; DeployError with its words when it fails."""
    done = subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise DeployError(
            f"this command failed with status {done.returncode}: {shlex.join(map(str, argv))}\n{done.stderr}"
        )
    return done.stdout


def _watch(process: subprocess.Popen[bytes], start: int) -> None:
    terminal = sys.stdout.isatty()
    began = told = time.monotonic()
    try:
        while True:
            try:
                process.wait(timeout=1.0)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if terminal:
                    _overwrite(f"    {now - began:.0f} s  {(_lines(start) or [''])[-1]}")
                elif now - told >= HEARTBEAT_SECONDS:
                    told = now
                    say(f"    {now - began:.0f} s  {(_lines(start) or [''])[-1][:100]}")
    except BaseException:  # Ctrl-C ends the command too
        process.terminate()
        process.wait()
        raise
    finally:
        if terminal:
            _overwrite("")


def _overwrite(text: str) -> None:
    width = os.get_terminal_size(sys.stdout.fileno()).columns
    print(f"\r\x1b[K{text[: width - 1]}", end="", flush=True)


def _lines(start: int) -> list[str]:
    with LOG.open("rb") as log:
        log.seek(max(start, LOG.stat().st_size - 16_384))
        text = log.read().decode(errors="replace").replace("\r", "\n")
    return [line.rstrip() for line in text.splitlines() if line.strip()]
