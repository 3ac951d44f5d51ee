"""The GPU probe against stand-ins for its NVML process: one that answers, one that hangs, one that dies.

The machine of a unit test has no GPU; what the real NVML process says without one is tested for real.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forensics.errors import SourceError
from forensics.events import Event, GpuLost, GpuMemory, GpuProcess
from forensics.sources.gpu import GpuProbe, kernel_bus_id

GIB = 1 << 30
GPU = {
    "index": 0,
    "lost": None,
    "uuid": "GPU-1111",
    "name": "NVIDIA H200",
    "pci_bus_id": "00000000:C1:00.0",
    "total_bytes": 140 * GIB,
    "used_bytes": 90 * GIB,
    "performance_state": 0,
    "processes": [[4321, 89 * GIB], [4400, None]],
}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def probe_of(clock: Clock, tmp_path: Path) -> Iterator[Callable[[str], GpuProbe]]:
    """A probe whose process runs this Python text; `starts` counts how often it was started."""
    made: list[GpuProbe] = []

    def make(text: str) -> GpuProbe:
        script = tmp_path / "nvml.py"
        # Those that hang are left to themselves when the tests are interrupted: the alarm ends them.
        begin = f"import signal\nsignal.alarm(120)\nopen({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        script.write_text(begin + text)
        made.append(GpuProbe([sys.executable, "-I", str(script)], clock=clock))
        return made[-1]

    yield make
    for probe in made:
        probe.close()


def starts(tmp_path: Path) -> int:
    file = tmp_path / "starts"
    return len(file.read_text()) if file.exists() else 0


def answering(*answers: object) -> str:
    return f"import json, sys\nfor line, answer in zip(sys.stdin, {answers!r}): print(json.dumps(answer), flush=True)"


def first(probe: GpuProbe, eventually: Callable[[Callable[[], bool]], None]) -> tuple[Event, ...]:
    seen: list[tuple[Event, ...]] = []

    def look() -> bool:
        events = probe.sample()
        if events is not None:
            seen.append(events)
        return bool(seen)

    eventually(look)
    return seen[0]


Eventually = Callable[[Callable[[], bool]], None]


def test_what_nvml_says(probe_of: Callable[[str], GpuProbe], eventually: Eventually) -> None:
    probe = probe_of(answering({"gpus": [GPU]}, {"gpus": [GPU]}))
    for _ in range(2):
        (seen,) = first(probe, eventually)
        assert isinstance(seen, GpuMemory)
        assert (seen.uuid, seen.index, seen.name) == ("GPU-1111", 0, "NVIDIA H200")
        assert (seen.total_bytes, seen.used_bytes, seen.performance_state) == (140 * GIB, 90 * GIB, 0)
        assert seen.pci_bus_id == "0000:c1:00.0"
        assert seen.processes == (GpuProcess(pid=4321, used_bytes=89 * GIB), GpuProcess(pid=4400, used_bytes=None))
        assert (seen.record.source, seen.record.ref) == ("gpu", "NVML GPU-1111")


def test_unified_memory_is_unknown_not_zero(probe_of: Callable[[str], GpuProbe], eventually: Eventually) -> None:
    probe = probe_of(answering({"gpus": [{**GPU, "total_bytes": None, "used_bytes": None}]}))
    (seen,) = first(probe, eventually)
    assert isinstance(seen, GpuMemory)
    assert (seen.total_bytes, seen.used_bytes) == (None, None)


def test_a_gpu_that_is_lost(probe_of: Callable[[str], GpuProbe], eventually: Eventually) -> None:
    lost = {"index": 3, "lost": "GPU is lost", "pci_bus_id": "00000001:0A:00.0"}
    probe = probe_of(answering({"gpus": [GPU, lost]}))
    events = first(probe, eventually)
    assert [type(event) for event in events] == [GpuMemory, GpuLost]
    assert isinstance(events[1], GpuLost)
    assert events[1].pci_bus_id == "0001:0a:00.0"


def failure(probe: GpuProbe, eventually: Eventually) -> SourceError:
    failures: list[SourceError] = []

    def look() -> bool:
        try:
            probe.sample()
        except SourceError as error:
            failures.append(error)
        return bool(failures)

    eventually(look)
    return failures[0]


def test_e1_nvml_that_hangs_is_given_up_and_not_started_again(
    probe_of: Callable[[str], GpuProbe], clock: Clock, eventually: Eventually, tmp_path: Path
) -> None:
    hanging = "import signal, sys\nfor line in sys.stdin: signal.pause()"
    probe = probe_of(hanging)
    assert probe.sample() is None
    clock.now += 29
    assert probe.sample() is None
    clock.now += 2
    error = failure(probe, eventually)
    assert (error.source, error.code) == ("gpu", "nvml-silent")
    assert "NVML gave no answer in 30 s" in error.message
    clock.now += 299
    for _ in range(5):
        with pytest.raises(SourceError, match="no answer"):
            probe.sample()
    assert starts(tmp_path) == 1
    clock.now += 2
    eventually(lambda: probe.sample() is None and starts(tmp_path) == 2)


def test_e2_a_process_that_cannot_be_killed_is_not_joined_by_another(
    probe_of: Callable[[str], GpuProbe], clock: Clock, eventually: Eventually, tmp_path: Path
) -> None:
    probe = probe_of("import signal, sys\nfor line in sys.stdin: signal.pause()")
    assert probe.sample() is None
    eventually(lambda: starts(tmp_path) == 1)
    child = probe._child
    assert child is not None
    # A process in uninterruptible sleep, which cannot be had here, ignores SIGKILL.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "kill", lambda: None)
        clock.now += 31
        assert failure(probe, eventually).code == "nvml-silent"
        clock.now += 100_000
        with pytest.raises(SourceError, match="no answer"):
            probe.sample()
        assert starts(tmp_path) == 1
    child.kill()
    eventually(lambda: starts(tmp_path) == 2 if _retried(probe) else False)


def _retried(probe: GpuProbe) -> bool:
    try:
        return probe.sample() is None
    except SourceError:
        return False


def test_a_later_answer_has_less_time(
    probe_of: Callable[[str], GpuProbe], clock: Clock, eventually: Eventually
) -> None:
    once = f"import sys, signal\nnext(sys.stdin); print({json.dumps({'gpus': [GPU]})!r}, flush=True)\nsignal.pause()"
    probe = probe_of(once)
    first(probe, eventually)
    assert probe.sample() is None
    clock.now += 6
    assert "no answer in 5 s" in failure(probe, eventually).message


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (answering({"error": "Driver/library version mismatch"}), "no-nvml", "Driver/library version mismatch"),
        (answering({"gpus": []}), "no-gpu", "NVML sees no GPU"),
        ("import sys; sys.exit(7)", "nvml-child", "ended unexpectedly"),
        ("print('not JSON', flush=True); input(); input()", "nvml-child", "cannot be understood"),
        (answering({"gpus": [{"index": 0}]}), "nvml-child", "cannot be understood"),
    ],
)
def test_each_failure_is_told_once_and_tried_again_later(
    probe_of: Callable[[str], GpuProbe],
    clock: Clock,
    eventually: Eventually,
    tmp_path: Path,
    text: str,
    code: str,
    message: str,
) -> None:
    probe = probe_of(text)
    error = failure(probe, eventually)
    assert error.code == code
    assert message in error.message
    with pytest.raises(SourceError, match=message):
        probe.sample()
    assert starts(tmp_path) == 1
    clock.now += 301
    # While the first process is still dying, its error stands.
    eventually(lambda: failure(probe, eventually).code == code and starts(tmp_path) == 2)


def test_a_probe_that_cannot_be_started(clock: Clock) -> None:
    probe = GpuProbe(["/nowhere/python"], clock=clock)
    with pytest.raises(SourceError, match="could not be started"):
        probe.sample()


def test_the_process_sees_no_secret_of_the_daemon_s_environment(
    probe_of: Callable[[str], GpuProbe], monkeypatch: pytest.MonkeyPatch, eventually: Eventually, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen = tmp_path / "seen"
    probe = probe_of(f"import os\nopen({str(seen)!r}, 'w').write(' '.join(os.environ))\ninput()")
    failure(probe, eventually)
    assert "HF_TOKEN" not in seen.read_text().split()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA driver")
def test_nvml_itself_without_a_gpu(eventually: Eventually) -> None:
    with closing(GpuProbe()) as probe:
        assert failure(probe, eventually).code in ("no-nvml", "no-gpu")


def test_bus_ids_are_written_as_the_kernel_does() -> None:
    assert kernel_bus_id("00000000:9B:00.0") == "0000:9b:00.0"
    assert kernel_bus_id("00010000:9B:00.0") == "10000:9b:00.0"
    assert kernel_bus_id("") == ""
