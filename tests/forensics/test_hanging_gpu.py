"""E1, E2, E3: NVML blocks for ever. The daemon, its API and its store are the real ones; NVML's process and PID 1's bus
are stand-ins, since a driver that hangs cannot be had here."""

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from forensics import daemon
from forensics.api import Serving, serve
from forensics.sampler import Sampler
from forensics.settings import Api, Settings
from forensics.sources.gpu import GpuProbe
from forensics.sources.journal import JournalReader
from tests.cases.story import Journal, Life
from tests.forensics.sources.journals import write_lines
from tests.forensics.test_sampler import StandInBus, live

BLOCKS = (sys.executable, "-I", "-c", "import signal\nwhile True: signal.pause()")
DEADLINE_SECONDS = 0.5
SILENT = "NVML gave no answer in 0.5 s: a GPU or its driver hangs"
WATCHDOG_SECONDS = 60.0
"""WatchdogSec= of inquestd.service."""


class Probe(GpuProbe):
    """In uninterruptible sleep, which cannot be had here, NVML's process does not heed SIGKILL."""

    def __init__(self, *, unkillable: bool) -> None:
        super().__init__(BLOCKS, first_deadline_seconds=DEADLINE_SECONDS)
        self.started: list[subprocess.Popen[bytes]] = []
        self._unkillable = unkillable

    def _start(self) -> None:
        super()._start()
        assert self._child is not None
        self.started.append(self._child)
        if self._unkillable:
            self._child.kill = lambda: None  # type: ignore[method-assign]


class Watched:
    """A daemon that watches one life of a server on a machine with such an NVML."""

    def __init__(self, folder: Path, probe: Probe) -> None:
        self.probe = probe
        self.journal = Journal(name="hanging")
        self.life: Life = self.journal.life()
        self.port = 0
        self.fed: list[float] = []
        self._folder, self._written = folder, 0

    def write(self) -> None:
        """What was told since the last time, as one more journal file."""
        write_lines(self._folder, self.journal.lines[self._written :])
        self._written = len(self.journal.lines)

    def notify(self, text: str) -> None:
        if "WATCHDOG=1" in text:
            self.fed.append(time.monotonic())

    def ask(self, path: str) -> tuple[Any, float]:
        """The API's answer, and how many seconds it took."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        began = time.monotonic()
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        took = time.monotonic() - began
        connection.close()
        return answer, took


@pytest.fixture(params=[False, True], ids=["killable", "in uninterruptible sleep"])
def watched(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    one = Watched(tmp_path / "journal", Probe(unkillable=request.param))
    one.life.up()
    one.write()
    monkeypatch.setattr(daemon, "JournalReader", partial(JournalReader, path=tmp_path / "journal"))
    bus = StandInBus(live(one.life.invocation_id, one.life.unit))
    monkeypatch.setattr(daemon, "Sampler", partial(Sampler, bus=bus, gpu=one.probe))
    monkeypatch.setattr("systemd.daemon.notify", one.notify)

    def serving(*args: Any) -> Serving:
        made = serve(*args)
        one.port = made.port
        return made

    monkeypatch.setattr(daemon, "serve", serving)
    settings = Settings(
        state_dir=tmp_path, settle_seconds=0.2, sample_interval_seconds=0.1, api=Api(port=0, socket=None)
    )
    running: list[daemon.Daemon] = []

    def run() -> None:
        with closing(daemon.Daemon(settings)) as made:
            running.append(made)
            made.run()

    thread = threading.Thread(target=run, name="daemon")
    thread.start()
    yield one
    for made in running:
        made.stop()
    thread.join()
    for child in one.probe.started:
        subprocess.Popen.kill(child)
        child.wait()


def test_e1_e2_e3_a_gpu_that_hangs_holds_up_neither_answers_nor_verdicts_nor_the_watchdog(
    watched: Watched, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    blind: list[str] = []

    def noticed() -> bool:
        sources = watched.ask("/healthz")[0]["sources"]
        blind.extend(one["detail"] for one in sources if (one["name"], one["state"]) == ("gpu", "blind"))
        return bool(blind) and len(watched.fed) >= 3

    eventually(lambda: watched.port > 0)
    eventually(noticed)
    assert blind[0] == SILENT
    assert statistics.median(watched.ask("/crashes")[1] for _ in range(31)) < 0.05

    # The memory of a GPU fails, and the kernel says so: with NVML hanging this must not be lost.
    scheduler = watched.life.scheduler
    watched.journal.kernel(f"NVRM: Xid (PCI:0000:41:00): 48, pid={scheduler}, name=sglang::schedul, DBE (double bit)")
    watched.life.scheduler_raised(
        "a.py:1 in f", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
    )
    watched.life.self_kill()
    watched.write()

    eventually(lambda: bool(watched.ask("/crashes")[0]["crashes"]))
    (crash,) = watched.ask("/crashes")[0]["crashes"]
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("gpu-fault", "confirmed", "xid-48")
    whole = watched.ask(f"/crashes/{crash['id']}")[0]
    assert SILENT in [gap["reason"] for gap in whole["gaps"] if gap["source"] == "gpu"]

    pauses = [later - earlier for earlier, later in zip(watched.fed, watched.fed[1:], strict=False)]
    assert max(pauses) < WATCHDOG_SECONDS / 4
    assert len(watched.probe.started) == 1, "none was started beside the one that hangs"
