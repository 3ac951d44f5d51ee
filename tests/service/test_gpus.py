"""The question to the driver, which may never be answered; what is told of GPUs before a start and after a death."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service import ground, machine_checks
from service.cgroup import Cgroup
from service.gpus import Gpus, NoGpus, Use, ask, parse
from service.identity import identity, note
from service.installed import Installed
from service.load import parse as parse_spec
from service.row import Row
from service.spec import ServerSpec
from tests.service.models import llama

GIB = 2**30


def gpu(**keys: Any) -> dict[str, Any]:
    whole = {"index": 0, "uuid": "GPU-aaa", "name": "NVIDIA H100", "capability": [9, 0], "total_bytes": 80 * GIB,
             "free_bytes": 79 * GIB, "pstate": 0, "uses": []}  # fmt: skip
    return whole | keys


def machine(*gpus: dict[str, Any], cuda: list[int] | None = None) -> dict[str, Any]:
    return {"driver": "580.1", "cuda": cuda or [13, 0], "gpus": list(gpus)}


def test_answer_comes_from_a_child(tmp_path: Path) -> None:
    def look() -> dict[str, Any]:
        return machine(gpu(uses=[[os.getpid(), 5 * GIB]]))

    found = ask(5, stuck=tmp_path / "stuck", look=look)
    assert (found.driver, found.cuda) == ("580.1", (13, 0))
    (one,) = found.gpus
    assert (one.capability, one.used_bytes, one.uses[0].used_bytes) == ((9, 0), GIB, 5 * GIB)
    assert one.uses[0].pid != os.getpid()


def test_error_is_told(tmp_path: Path) -> None:
    def look() -> dict[str, Any]:
        raise OSError("Driver/library version mismatch")

    with pytest.raises(NoGpus, match="the driver does not answer: OSError: Driver/library version mismatch"):
        ask(5, stuck=tmp_path / "stuck", look=look)


def test_child_that_dies_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoGpus, match="the process that asked the driver died"):
        ask(5, stuck=tmp_path / "stuck", look=lambda: os.kill(os.getpid(), signal.SIGKILL) or {})


def test_silent_driver_is_given_up(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(NoGpus, match=r"the driver did not answer within 0\.2 s"):
        ask(0.2, stuck=tmp_path / "stuck", look=lambda: signal.pause() or {})
    assert time.monotonic() - started < 5
    assert not (tmp_path / "stuck").exists()  # this one could be killed


def test_nobody_asks_while_an_earlier_question_hangs(tmp_path: Path) -> None:
    me = identity(os.getpid())
    assert me is not None
    (tmp_path / "stuck").write_text(f"{me.pid} {me.start_ticks}")
    with pytest.raises(NoGpus, match=f"did not answer before, and pid {me.pid} still waits for it"):
        ask(5, stuck=tmp_path / "stuck", look=machine)
    (tmp_path / "stuck").write_text(f"{me.pid} {me.start_ticks - 1}")
    assert ask(5, stuck=tmp_path / "stuck", look=machine).gpus == ()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver(tmp_path: Path) -> None:
    with pytest.raises(NoGpus, match="there is no NVIDIA driver on this machine") as caught:
        ask(5, stuck=tmp_path / "stuck")
    assert not caught.value.installed


def test_shared_memory_is_not_told() -> None:
    (one,) = parse(machine(gpu(total_bytes=None, free_bytes=None, pstate=None, uses=[[7, None]]))).gpus
    assert (one.used_bytes, one.uses) == (None, (Use(7, None),))


Found = Callable[..., None]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """Let the checks find these GPUs, and this SGLang."""

    def use(*gpus: dict[str, Any], cuda: list[int] | None = None, torch: tuple[int, int] | None = (12, 8)) -> None:
        installed = Installed((0, 5, 23), {}, f"2.9+{'cu128' if torch else 'cpu'}", torch)
        monkeypatch.setattr(machine_checks, "_gpus", lambda: parse(machine(*gpus, cuda=cuda)))
        monkeypatch.setattr(machine_checks, "_installed", lambda spec: installed)

    return use


def spec(toml: str = "", model: str = "/m") -> ServerSpec:
    return parse_spec(f"model_path = '{model}'\n{toml}".encode(), Path("/s/demo.toml"))


def told(row: Row | None) -> tuple[str, str]:
    assert row is not None
    return row.state, row.message


@pytest.mark.parametrize(
    ("capability", "torch", "state", "words"),
    [
        ([9, 0], (12, 8), "ok", "driver 580.1 for CUDA 13.0, torch for 12.8"),
        ([12, 1], (12, 6), "refused", "compute capability 12.1) needs CUDA 12.8 or newer"),
        ([7, 0], (13, 0), "refused", "compute capability 7.0) is too old for CUDA 13"),
        ([9, 0], (14, 0), "refused", "needs CUDA 14.0, driver 580.1 runs up to 13.0"),
        ([9, 0], None, "refused", "torch 2.9+cpu is built without CUDA, and this machine has a GPU"),
    ],
)
def test_driver_and_code(
    found: Found, capability: list[int], torch: tuple[int, int] | None, state: str, words: str
) -> None:
    found(gpu(capability=capability), torch=torch)
    row = machine_checks.driver(spec())
    assert row is not None
    assert row.state == state
    assert words in row.message


def test_server_on_the_cpu_asks_no_driver(found: Found) -> None:
    found(gpu(), torch=None)
    assert machine_checks.driver(spec("device = 'cpu'")) is None
    assert machine_checks.gpu_memory(spec("device = 'cpu'")) is None


def test_free_memory(found: Found) -> None:
    found(gpu(free_bytes=79.5 * GIB))
    assert told(machine_checks.gpu_memory(spec())) == ("ok", "79.5 GiB free")


def test_stranger_that_holds_memory_is_named(found: Found) -> None:
    found(gpu(free_bytes=30 * GIB, uses=[[os.getpid(), 49 * GIB]]))
    state, words = told(machine_checks.gpu_memory(spec()))
    assert state == "warning"
    assert words.startswith(f"GPU 0: 50.0 GiB of 80.0 GiB held by pid {os.getpid()} (")
    assert words.endswith(" with 49.0 GiB")


def test_left_over_that_holds_memory_is_named_by_its_run(
    found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(gpu(free_bytes=30 * GIB, uses=[[os.getpid(), None]]))
    note("demo", "run1", [os.getpid()], tmp_path)
    from service.identity import noted

    monkeypatch.setattr(machine_checks, "noted", lambda server: noted(server, tmp_path))
    _, words = told(machine_checks.gpu_memory(spec()))
    assert words.endswith(", left over of this server's run run1")


def test_too_little_for_the_weights_is_refused(found: Found, tmp_path: Path) -> None:
    model = llama(tmp_path / "m")
    found(gpu(total_bytes=4 * GIB, free_bytes=GIB, uses=[]))
    state, words = told(machine_checks.gpu_memory(spec(model=str(model))))
    assert state == "refused"
    assert words == (
        "GPU 0 has 1.0 GiB free, the weights (0.0 GiB) and a CUDA context (1.0 GiB) alone take more; "
        "GPU 0: 3.0 GiB of 4.0 GiB held by no process that can be seen"
    )


@pytest.mark.parametrize(
    ("toml", "chosen"),
    [
        ("", [0]),
        ("[parallel]\ntp_size = 2", [0, 1]),
        ("[parallel]\ntp_size = 2\nbase_gpu_id = 1\ngpu_id_step = 2", [1, 3]),
        ("[parallel]\ntp_size = 4\nnnodes = 2", [0, 1]),
        ("[parallel]\ndp_size = 2", [0, 1]),
        ("[env]\nCUDA_VISIBLE_DEVICES = '3,1'\n[parallel]\ntp_size = 2", [3, 1]),
        ("[env]\nCUDA_VISIBLE_DEVICES = 'GPU-bb2'", [2]),
    ],
)
def test_gpus_that_the_server_takes(toml: str, chosen: list[int]) -> None:
    gpus = parse(machine(*(gpu(index=i, uuid=f"GPU-bb{i}") for i in range(4))))
    assert [one.index for one in machine_checks._of(spec(toml), gpus)] == chosen


@pytest.mark.parametrize("check", [machine_checks.host_memory, machine_checks.shared_memory, machine_checks.disk])
def test_machine_is_looked_at(check: Callable[[ServerSpec], Row | None]) -> None:
    row = check(spec())
    assert row is not None
    assert row.state in {"ok", "warning"}
    assert "GiB" in row.message or "MiB" in row.message


def test_nothing_left_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "find_left", lambda server: ())
    assert told(machine_checks.left_over(spec())) == ("ok", "nothing of an earlier run is alive")


RUN = "0" * 32


class TestGround:
    """After a death."""

    @pytest.fixture
    def look(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ground.Ground]:
        def now(gpus: Gpus | NoGpus, *pids: int) -> ground.Ground:
            def answer(seconds: float) -> Gpus:
                if isinstance(gpus, NoGpus):
                    raise gpus
                return gpus

            monkeypatch.setattr(ground, "ask", answer)
            (tmp_path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
            group = Cgroup("/sglang.slice/sglang-demo.service", "v2", processes=tmp_path, memory=None)
            return ground.look("demo", RUN, group, tmp_path / "notes")

        return now

    def test_nothing_left(self, look: Callable[..., ground.Ground]) -> None:
        seen = look(NoGpus("none", installed=False), os.getpid())
        assert seen.fields["INQUEST_LEFT_PROCESSES"] == ""
        assert "INQUEST_GPUS" not in seen.fields

    def test_process_that_is_left_and_what_it_holds(
        self, look: Callable[..., ground.Ground], start: Callable[..., Any]
    ) -> None:
        process = start("sleep", "60")
        gpus = parse(machine(gpu(uses=[[process.pid, 7], [1, None]], pstate=2)))
        fields = look(gpus, process.pid).fields
        left = identity(process.pid)
        assert left is not None
        letter = fields["INQUEST_LEFT_PROCESSES"].split()[2]
        assert letter in {"R", "S"}
        assert fields["INQUEST_LEFT_PROCESSES"] == f"{process.pid} {left.start_ticks} {letter} sleep"
        assert fields["INQUEST_GPUS"] == f"0 GPU-aaa 2 {GIB} {80 * GIB}"
        first, second = fields["INQUEST_GPU_PROCESSES"].splitlines()
        assert first.startswith(f"0 {process.pid} 7 left sleep")
        assert second.startswith("0 1 ? other ")

    def test_process_of_another_run_is_not_of_this(
        self, look: Callable[..., ground.Ground], start: Callable[..., Any], tmp_path: Path
    ) -> None:
        note("demo", "1" * 32, [start("sleep", "60").pid], tmp_path / "notes")
        assert look(NoGpus("none", installed=False)).fields["INQUEST_LEFT_PROCESSES"] == ""

    def test_process_that_moved_elsewhere_is_left(
        self, look: Callable[..., ground.Ground], start: Callable[..., Any], tmp_path: Path
    ) -> None:
        process = start("sleep", "60")
        note("demo", RUN, [process.pid], tmp_path / "notes")
        fields = look(NoGpus("none", installed=False)).fields
        assert fields["INQUEST_LEFT_PROCESSES"].startswith(f"{process.pid} ")

    def test_silent_driver_is_a_gap(self, look: Callable[..., ground.Ground]) -> None:
        seen = look(NoGpus("the driver did not answer within 0.5 s"))
        assert "GPUs: the driver did not answer within 0.5 s" in seen.gaps
        assert "INQUEST_GPUS" not in seen.fields
