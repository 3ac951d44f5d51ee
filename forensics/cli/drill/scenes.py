"""The scenes of a drill: which deaths, how each is brought about, and why one cannot be played on this machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forensics.cli.drill import deaths
from forensics.cli.systemctl import look, main_pid, tell

_TORCH_SECONDS = 120.0
_LEAST_FREE_BYTES = 2 << 30
_NVML_SECONDS = 5.0


def _nothing(unit: str) -> None:
    """It dies by itself."""


def _here() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One death. `cause` is the verdict that is right. `properties` are the scratch unit's, `act` is what is done to it
    once it is ready, `hindrance` says why it cannot be played here, or nothing. `python` runs it. `starts` is False
    where the death is that it cannot even be started. Only of what has lived for `lives_seconds` the daemon has
    samples, without which that death cannot be told from an OOM kill."""

    cause: str
    what: str
    properties: tuple[str, ...] = ("Type=notify",)
    act: Callable[[str], None] = _nothing
    hindrance: Callable[[], str] = _here
    python: Callable[[], str] = lambda: sys.executable
    starts: bool = True
    lives_seconds: float = 0.0

    @property
    def unit(self) -> str:
        """Its name says everywhere that this was a drill."""
        return f"sglang-inquest-drill-{self.cause}.service"

    def argv(self) -> tuple[str, ...]:
        return (self.python(), "-I", deaths.__file__, self.cause)


def _stop(unit: str) -> None:
    tell("stop", unit, check=False)


def _kill(unit: str) -> None:
    os.kill(main_pid(unit), signal.SIGKILL)


def _no_memory_controller() -> str:
    if look("systemd-journald.service").memory_current_bytes is not None:
        return ""
    return "units have no memory controller here"


def _no_gpu() -> str:
    from service.gpus import NoGpus, ask

    try:
        gpus = ask(_NVML_SECONDS).gpus
    except NoGpus as error:
        return str(error)
    # A living server may have the GPU to the last byte; a drill takes nothing from it.
    if not any(gpu.free_bytes is None or gpu.free_bytes > _LEAST_FREE_BYTES for gpu in gpus[:1]):
        return "the first GPU has too little memory free: a server's"
    return "" if _python_with_torch() else "no spec's python has a torch with CUDA"


@cache
def _python_with_torch() -> str:
    """The first interpreter of the specs, or SGLang's own, whose torch sees a GPU; empty when there is none."""
    from service.load import SERVERS_DIR, SpecError, load
    from service.spec import ServerSpec

    pythons = [str(ServerSpec.model_fields["python"].default)]
    for path in sorted(SERVERS_DIR.glob("*.toml")):
        try:
            pythons.append(load(path).python)
        except SpecError:
            continue
    for python in dict.fromkeys(pythons):
        if Path(python).exists() and _sees_cuda(python):
            return python
    return ""


def _sees_cuda(python: str) -> bool:
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, stdin=subprocess.DEVNULL, timeout=_TORCH_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


SCENES = (
    Scene(
        cause="stop-timeout",
        what="a stop that takes longer than TimeoutStopSec=",
        properties=("Type=notify", "KillMode=mixed", "TimeoutStopSec=1s"),
        act=_stop,
    ),
    Scene(cause="external-signal", what="kill -9 from outside", act=_kill, lives_seconds=3.0),
    Scene(cause="python-exception", what="an exception that nobody catches"),
    Scene(cause="native-crash", what="SIGSEGV"),
    Scene(
        cause="hang",
        what="no sign of life within WatchdogSec=",
        properties=("Type=notify", "WatchdogSec=1s"),
    ),
    Scene(
        cause="exec-failure",
        what="a folder that does not exist as WorkingDirectory=",
        properties=("Type=exec", "WorkingDirectory=/run/inquest/no-such-folder"),
        starts=False,
    ),
    Scene(
        cause="kernel-oom",
        what="more memory than MemoryMax=",
        properties=("Type=notify", "MemoryMax=64M", "MemorySwapMax=0"),
        hindrance=_no_memory_controller,
    ),
    Scene(
        cause="cuda-error",
        what="a device-side assertion",
        hindrance=_no_gpu,
        python=_python_with_torch,
    ),
    Scene(
        cause="cuda-oom",
        what="more memory than a GPU has",
        hindrance=_no_gpu,
        python=_python_with_torch,
    ),
)
