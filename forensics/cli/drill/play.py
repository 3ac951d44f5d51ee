"""Playing a scene: the scratch unit, its death, the verdict, the alert, and nothing left behind."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from forensics.cli import client
from forensics.cli.drill.scenes import Scene
from forensics.cli.systemctl import tell
from forensics.errors import InquestError
from forensics.shapes import CrashShape

T = TypeVar("T")

VERDICT_SECONDS = 30.0
ALERT_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_LIFE_SECONDS = 120
"""A scratch unit ends by then whatever becomes of the drill. SGLang's interpreter takes a while to load torch."""
_ABSTAINED = ("unexplained-kill", "silent-exit", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a scene. `outcome`: `right`, `wrong`, `abstained` (nothing decided), `no verdict`, `skipped`.

    `told` is whether the journal's alert came; None where there was nothing to tell. `words` say more."""

    cause: str
    what: str
    outcome: str
    words: str
    verdict: str = ""
    crash_id: str = ""
    told: bool | None = None
    seconds: float | None = None

    @property
    def good(self) -> bool:
        return self.outcome == "skipped" or (self.outcome == "right" and self.told is True)


def play(scene: Scene) -> Played:
    """One death from beginning to end. The scratch unit is gone afterwards, also when this is interrupted."""
    if hindrance := scene.hindrance():
        return Played(cause=scene.cause, what=scene.what, outcome="skipped", words=hindrance)
    before = {crash["invocation_id"] for crash in _crashes(scene)}
    with _scratch(scene):
        time.sleep(scene.lives_seconds)
        scene.act(scene.unit)
        began = time.monotonic()
        found = until(lambda: _settled(scene, before), VERDICT_SECONDS)
        seconds = time.monotonic() - began
    if found is None:
        words = f"no verdict within {VERDICT_SECONDS:.0f} s: is {scene.unit} watched? See `inquest doctor`."
        return Played(cause=scene.cause, what=scene.what, outcome="no verdict", words=words)
    right = found["cause"] == scene.cause
    told = until(lambda: _told(found["id"]) or None, ALERT_SECONDS) is not None
    return Played(
        cause=scene.cause,
        what=scene.what,
        outcome="right" if right else "abstained" if found["cause"] in _ABSTAINED else "wrong",
        words=found["summary"],
        verdict=", ".join(filter(None, (found["cause"], found["strength"]))),
        crash_id=found["id"],
        told=told,
        seconds=round(seconds, 1),
    )


@contextmanager
def _scratch(scene: Scene) -> Iterator[None]:
    """The unit, started; at the end stopped and forgotten."""
    argv = [
        *("systemd-run", "--quiet", "--collect", f"--unit={scene.unit}"),
        f"--description=Inquest's drill: {scene.what}",
        *(f"--property={one}" for one in scene.properties),
        # Nothing of it stays: no core on the disk, no second life, no life that outlasts the drill.
        *("--property=LimitCORE=0", "--property=Restart=no", f"--property=RuntimeMaxSec={_LIFE_SECONDS}"),
        *("--property=User=nobody", "--property=MemoryAccounting=yes", "--property=LogRateLimitIntervalSec=1us"),
        *scene.argv(),
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        if done.returncode != 0 and scene.starts:
            why = done.stderr.strip() or f"exit status {done.returncode}"
            raise InquestError("no-scratch-unit", f"systemd-run: {why}", f"See `journalctl -u {scene.unit}`.")
        yield
    finally:
        tell("kill", "--signal=KILL", scene.unit, check=False)
        tell("stop", scene.unit, check=False)
        tell("reset-failed", scene.unit, check=False)


def _crashes(scene: Scene) -> list[CrashShape]:
    found: list[CrashShape] = client.get("/crashes", server=scene.unit, limit=50)["crashes"]
    return found


def _settled(scene: Scene, before: set[str]) -> CrashShape | None:
    return next((one for one in _crashes(scene) if one["settled"] and one["invocation_id"] not in before), None)


def _told(crash_id: str) -> bool:
    """Whether the journal has the alert: a record of the daemon's with this crash's id."""
    argv = ["journalctl", "--quiet", "--output=json", "--lines=1", f"INQUEST_CRASH_ID={crash_id}"]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    return any(json.loads(line).get("MESSAGE_ID") for line in done.stdout.splitlines())


def until(found: Callable[[], T | None], seconds: float) -> T | None:
    deadline = time.monotonic() + seconds
    while (answer := found()) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return answer
