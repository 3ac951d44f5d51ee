"""Variants one after the other, and the old spec again, whatever happens."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from forensics.cli.bench import BenchFailed, Load, measure, show
from forensics.cli.guard import Guard
from forensics.cli.systemctl import UnitNow, look, tell
from forensics.cli.variants import Variant
from forensics.report import one_line

LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a variant: the run, and why it ended before its time (empty when it did not)."""

    variant: Variant
    invocation_id: str
    failure: str


class _Interrupted(BaseException):
    """Somebody wants the trial to end."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the trial in order; from then on they are ignored."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise _Interrupted(signal.Signals(signum).name)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former: dict[int, Any] = {one: signal.signal(one, interrupt) for one in signals}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


def campaign(
    unit: str, before: UnitNow, variants: Sequence[Variant], hold_seconds: float, load_: Load | None
) -> list[Tried]:
    """Try each; go back whatever happens."""
    tried: list[Tried] = []
    guard = Guard(unit, was_active=before.serves)
    with _interruptible():
        guard.start()
        try:
            for variant in variants:
                say(f"{variant}: starting {unit}")
                guard.put(variant.dropin)
                tried.append(_try_one(unit, variant, hold_seconds, load_))
        except _Interrupted as interrupted:
            say(f"interrupted ({interrupted})")
            now = look(unit)
            if len(tried) < len(variants):
                tried.append(
                    Tried(variant=variants[len(tried)], invocation_id=now.invocation_id, failure="interrupted")
                )
        finally:
            say("going back to the old spec")
            guard.release()
    return tried


def _try_one(unit: str, variant: Variant, hold_seconds: float, load_: Load | None) -> Tried:
    tell("reset-failed", unit, check=False)
    started = _start(unit)
    now = look(unit)
    if not started or not now.serves:
        say(f"{variant}: did not become ready: {now.status_text or now.active_state}")
        return Tried(variant=variant, invocation_id=now.invocation_id, failure="did not become ready")
    say(f"{variant}: {now.status_text or 'ready'}")
    failure, begun = "", time.monotonic()
    if load_ is not None:
        try:
            show(measure(variant.spec, load_))
        except BenchFailed as error:
            say(error.message)
            failure = "died during the bench" if error.code == "server-died" else "the bench failed"
    left = hold_seconds - (time.monotonic() - begun)
    if not failure and left > 0:
        say(f"{variant}: serving for {left:.0f} s")
        failure = _hold(unit, now.invocation_id, left)
    return Tried(variant=variant, invocation_id=now.invocation_id, failure=failure)


def _start(unit: str) -> bool:
    """`systemctl restart`, which returns when the server answers or has failed; says meanwhile what it does."""
    process = subprocess.Popen(
        ["systemctl", "restart", unit], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    said = ""
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_SECONDS) == 0
            words = look(unit).status_text.split(":")[-1].strip()
            if words and words != said:
                said = words
                say(f"  {words}")
    finally:
        process.kill()
        process.wait()


def _hold(unit: str, invocation_id: str, for_seconds: float) -> str:
    """Let it serve; why it did not to the end, or empty."""
    until = time.monotonic() + for_seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_SECONDS))
        now = look(unit)
        if not now.serves or now.invocation_id != invocation_id:
            return "died"
    return ""


def say(text: str) -> None:
    # Where the terminal is gone the trial still has to go back.
    with suppress(OSError):
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {one_line(text)}\n")
        sys.stderr.flush()
