"""GPU memory and the processes that hold it, as NVML sees them, read by a child process with a deadline.

NVML calls can hang in the kernel, unkillable, after a GPU error. Then the child is given up, nobody waits for it, and
none is started in its place before a long while has passed: each new one could hang too.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from forensics.errors import SourceError
from forensics.events import Event, GpuLost, GpuMemory, GpuProcess
from forensics.sources.clock import sampled_now

SOURCE = "gpu"

CHILD = (sys.executable, "-I", str(Path(__file__).with_name("nvml_child.py")))

# Without nvidia-persistenced the first call initialises the GPUs, which takes seconds.
FIRST_DEADLINE_SECONDS = 30.0
DEADLINE_SECONDS = 5.0
RETRY_SECONDS = 300.0
# An answer usually takes a few milliseconds: worth waiting for, so that the sample is of now.
_PATIENCE_SECONDS = 0.05
# A killed child that is not stuck in the kernel has ended long before.
_GOODBYE_SECONDS = 1.0


class GpuProbe:
    """NVML at arm's length. `sample` never blocks for longer than a twentieth of a second."""

    def __init__(
        self,
        command: Sequence[str] = CHILD,
        *,
        first_deadline_seconds: float = FIRST_DEADLINE_SECONDS,
        deadline_seconds: float = DEADLINE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._command = tuple(command)
        self._first_deadline, self._deadline, self._retry = first_deadline_seconds, deadline_seconds, retry_seconds
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._given_up: list[subprocess.Popen[bytes]] = []
        self._answer = b""
        self._asked_at: float | None = None
        self._answered = False
        self._error: SourceError | None = None
        self._retry_at = 0.0

    def close(self) -> None:
        self._give_up()
        for child in self._given_up:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=_GOODBYE_SECONDS)

    def sample(self) -> tuple[Event, ...] | None:
        """What every GPU looks like; None while the answer is on its way. SourceError when there is no NVML, no GPU,
        or no answer within the deadline; the same error again, without a new try, until the next is due."""
        if self._error is not None:
            if self._clock() < self._retry_at or self._still_hanging():
                raise self._error
            self._error = None
        if self._child is None:
            self._start()
        if self._asked_at is None:
            self._ask()
        line = self._line()
        if line is None:
            return None
        self._asked_at = None
        self._answered = True
        return self._events(line)

    # --- the child --------------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            self._fail("nvml-child", f"the NVML reader could not be started: {error}")
        self._answer = b""
        self._asked_at = None
        self._answered = False

    def _ask(self) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        self._asked_at = self._clock()
        try:
            self._child.stdin.write(b"\n")
            self._child.stdin.flush()
        except OSError:
            self._give_up()
            self._fail("nvml-child", "the NVML reader ended unexpectedly")

    def _line(self) -> bytes | None:
        """The answer's line; None while it is not there and its time is not over."""
        assert self._child is not None
        assert self._child.stdout is not None
        assert self._asked_at is not None
        fd = self._child.stdout.fileno()
        while not self._answer.endswith(b"\n"):
            if not select.select([fd], [], [], _PATIENCE_SECONDS)[0]:
                deadline = self._deadline if self._answered else self._first_deadline
                if self._clock() - self._asked_at > deadline:
                    self._give_up()
                    self._fail("nvml-silent", f"NVML gave no answer in {deadline:g} s: a GPU or its driver hangs")
                return None
            part = os.read(fd, 1 << 16)
            if not part:
                status = self._child.poll()
                self._give_up()
                self._fail("nvml-child", f"the NVML reader ended unexpectedly (status {status})")
            self._answer += part
        line, self._answer = self._answer, b""
        return line

    def _give_up(self) -> None:
        """Kill it and look away: in the kernel's arms it may never die."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(OSError):
            child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_PATIENCE_SECONDS)
        if child.returncode is None:
            self._given_up.append(child)

    def _still_hanging(self) -> bool:
        self._given_up = [child for child in self._given_up if child.poll() is None]
        return bool(self._given_up)

    def _fail(self, code: str, message: str) -> NoReturn:
        self._error = SourceError(SOURCE, code, message)
        self._retry_at = self._clock() + self._retry
        raise self._error

    # --- its answer -------------------------------------------------------------------------------------

    def _events(self, line: bytes) -> tuple[Event, ...]:
        try:
            answer = json.loads(line)
            if "error" not in answer and answer["gpus"]:
                return tuple(_event(gpu) for gpu in answer["gpus"])
        except (ValueError, KeyError, TypeError) as error:
            self._give_up()
            self._fail("nvml-child", f"the NVML reader's answer cannot be understood: {type(error).__name__} {error}")
        self._give_up()
        if "error" in answer:
            self._fail("no-nvml", f"NVML cannot be read: {answer['error']}")
        self._fail("no-gpu", "NVML sees no GPU")


def kernel_bus_id(text: str) -> str:
    """`00000000:9B:00.0` of NVML as the kernel writes it: `0000:9b:00.0`."""
    domain, colon, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if colon else text


def _event(gpu: dict[str, Any]) -> Event:
    uuid, index, bus = gpu.get("uuid", ""), gpu["index"], kernel_bus_id(gpu.get("pci_bus_id", ""))
    ref = f"NVML {uuid or index}"
    if gpu["lost"]:
        return GpuLost(record=sampled_now(SOURCE, ref, f"GPU {index}: {gpu['lost']}"), pci_bus_id=bus or None)
    used, total = gpu["used_bytes"], gpu["total_bytes"]
    said = "memory not told" if used is None else f"{used} of {total} bytes used"
    return GpuMemory(
        record=sampled_now(SOURCE, ref, f"GPU {index} {gpu['name']}: {said}"),
        uuid=uuid,
        index=index,
        name=gpu["name"],
        pci_bus_id=bus,
        total_bytes=total,
        used_bytes=used,
        processes=tuple(GpuProcess(pid=pid, used_bytes=held) for pid, held in gpu["processes"]),
        performance_state=gpu["performance_state"],
    )
