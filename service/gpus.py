"""The machine's NVIDIA GPUs, asked by a child process with a deadline: a call into a broken driver may never return.

Such a child cannot be killed either. It is left alone, and nobody asks again while it is still there.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.identity import Identity, identity

__all__ = ["Gpu", "Gpus", "NoGpus", "Use", "ask", "main", "parse"]

STUCK = Path("/run/inquest/nvml-stuck")
_MOST_BYTES = 1 << 20
_KILL_SECONDS = 0.5
_UNKNOWN_PSTATE = 32


class NoGpus(Exception):
    """Nothing could be learnt; the message says why. `installed` is False where there is no NVIDIA driver at all."""

    def __init__(self, message: str, *, installed: bool = True) -> None:
        super().__init__(message)
        self.installed = installed


@dataclass(frozen=True, slots=True)
class Use:
    """What a process holds of a GPU; `used_bytes` is None where the driver does not say."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """Memory is None on parts that share the host's (GB10); `pstate` is 0 (fast) to 15, `capability` such as (9, 0)."""

    index: int
    uuid: str
    name: str
    capability: tuple[int, int] | None
    total_bytes: int | None
    free_bytes: int | None
    pstate: int | None
    uses: tuple[Use, ...]

    @property
    def used_bytes(self) -> int | None:
        return None if self.total_bytes is None or self.free_bytes is None else self.total_bytes - self.free_bytes


@dataclass(frozen=True, slots=True)
class Gpus:
    """`cuda` is the newest CUDA that the driver can run, such as (13, 0)."""

    driver: str
    cuda: tuple[int, int] | None
    gpus: tuple[Gpu, ...]


def ask(deadline_seconds: float, *, stuck: Path = STUCK, look: Callable[[], dict[str, Any]] | None = None) -> Gpus:
    """Every GPU as NVML sees it now; raises ``NoGpus``. `look` stands in for NVML in tests."""
    if look is None and not Path("/dev/nvidiactl").exists():
        raise NoGpus("there is no NVIDIA driver on this machine", installed=False)
    if (before := _stuck(stuck)) is not None:
        raise NoGpus(f"the driver did not answer before, and pid {before.pid} still waits for it")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, look or _look)
    os.close(writing)
    try:
        text = _read(reading, deadline_seconds)
    finally:
        os.close(reading)
    if text is None:
        _give_up(child, stuck)
        raise NoGpus(f"the driver did not answer within {deadline_seconds:g} s")
    os.waitpid(child, 0)
    import json

    return parse(json.loads(text) if text else {"error": "the process that asked the driver died"})


def _answer(writing: int, look: Callable[[], dict[str, Any]]) -> None:
    """In the child: write what NVML says as JSON, and end without any of the parent's clean-up."""
    try:
        import json  # where there is no GPU, nobody pays for it

        signal.alarm(0)
        try:
            found = look()
        except Exception as error:  # whatever the driver's library raises is the answer
            found = {"error": f"{type(error).__name__}: {error}"}
        data = json.dumps(found).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _read(reading: int, seconds: float) -> bytes | None:
    """All that comes until the end, None when that is not reached in time."""
    until, parts = time.monotonic() + seconds, b""
    while True:
        left = until - time.monotonic()
        ready, _, _ = select.select([reading], [], [], max(left, 0))
        if not ready:
            return None
        chunk = os.read(reading, _MOST_BYTES)
        if not chunk:
            return parts
        parts += chunk


def _give_up(child: int, stuck: Path) -> None:
    left = identity(child)
    with suppress(OSError):
        os.kill(child, signal.SIGKILL)
        # What can be killed is gone at once; what hangs in the driver stays.
        ended = os.pidfd_open(child)
        select.select([ended], [], [], _KILL_SECONDS)
        os.close(ended)
    if os.waitpid(child, os.WNOHANG)[0] == child or left is None:
        return
    with suppress(OSError):
        stuck.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        stuck.write_text(f"{left.pid} {left.start_ticks}")


def _stuck(stuck: Path) -> Identity | None:
    """The child of an earlier question that never returned, while it is still there."""
    try:
        pid, ticks = map(int, stuck.read_text().split())
    except (OSError, ValueError):
        return None
    return identity(pid) if identity(pid) == Identity(pid, ticks) else None


def _look() -> dict[str, Any]:
    import pynvml as nvml

    def known(call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except nvml.NVMLError:  # not supported on this part, or not allowed
            return None

    nvml.nvmlInit()
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            gpus.append({"index": index, "name": f"unreachable: {error}", "uses": []})
            continue
        memory = known(nvml.nvmlDeviceGetMemoryInfo, handle)
        capability = known(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        pstate = known(nvml.nvmlDeviceGetPerformanceState, handle)
        uses = known(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        gpus.append(
            {
                "index": index,
                "uuid": known(nvml.nvmlDeviceGetUUID, handle),
                "name": known(nvml.nvmlDeviceGetName, handle),
                "capability": capability and list(capability),
                "total_bytes": memory and memory.total,
                "free_bytes": memory and memory.free,
                "pstate": None if pstate == _UNKNOWN_PSTATE else pstate,
                "uses": [[use.pid, use.usedGpuMemory] for use in uses],
            }
        )
    cuda = known(nvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "driver": known(nvml.nvmlSystemGetDriverVersion),
        "cuda": cuda and [cuda // 1000, cuda % 1000 // 10],
        "gpus": gpus,
    }


def parse(found: dict[str, Any]) -> Gpus:
    """What a child wrote; raises ``NoGpus`` where that is an error."""
    if "error" in found:
        raise NoGpus(f"the driver does not answer: {found['error']}")
    gpus = tuple(
        Gpu(
            index=gpu["index"],
            uuid=gpu.get("uuid") or "",
            name=gpu.get("name") or "",
            capability=tuple(gpu["capability"]) if gpu.get("capability") else None,
            total_bytes=gpu.get("total_bytes"),
            free_bytes=gpu.get("free_bytes"),
            pstate=gpu.get("pstate"),
            uses=tuple(Use(pid, used) for pid, used in gpu["uses"]),
        )
        for gpu in found["gpus"]
    )
    return Gpus(found.get("driver") or "", tuple(found["cuda"]) if found.get("cuda") else None, gpus)


def main() -> int:
    """``python -m service gpus``: what there is, as JSON, for a look by hand."""
    try:
        found = ask(10.0)
    except NoGpus as error:
        print(f"inquest: {error}", file=sys.stderr)
        return 1
    import json
    from dataclasses import asdict

    print(json.dumps(asdict(found), indent=1))
    return 0
