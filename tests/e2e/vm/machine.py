"""A virtual machine with the kernel's own out-of-memory killer, restored from a saved state in seconds.

Software emulation on purpose: it is the same everywhere, inside containers and other machines too.
"""

import base64
import functools
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy import stamp
from deploy.progress import answer
from tests.e2e import cache
from tests.e2e.vm.image import image

_BOOT_SECONDS = 240.0
_ANSWER_SECONDS = 120.0
_COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=4 nokaslr panic=1 psi=1 systemd.show_status=0 tsc=reliable no_timer_check"
    " mitigations=off random.trust_cpu=on"
)


class Vm:
    """A running machine; to be used in a `with` statement, at whose end it is gone."""

    def __init__(self, image: Path, extra: list[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="inquest-vm-"))
        self._process = subprocess.Popen(
            [
                "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "Nehalem", "-smp", "2", "-m", "1024",
                "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"), "-append", _COMMAND_LINE,
                "-drive", f"file={image / 'root.img'},format=raw,if=virtio,read-only=on",
                "-device", "virtio-rng-pci",
                "-serial", f"file:{self.folder / 'console'}",
                "-serial", f"unix:{self.folder / 'agent'},server=on,wait=off",
                "-qmp", f"unix:{self.folder / 'qmp'},server=on,wait=off",
                *extra,
            ],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._qmp = self._connect("qmp")
        self._qmp.readline()  # the greeting
        self.qmp("qmp_capabilities")
        self._agent = self._connect("agent")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._qmp.close()
        self._agent.close()
        shutil.rmtree(self.folder)

    @property
    def console(self) -> str:
        path = self.folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    def qmp(self, command: str, **arguments: object) -> Any:
        """One command of QEMU's machine protocol; returns what it returns."""
        self._qmp.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._qmp.flush()
        while True:
            reply = json.loads(self._qmp.readline())
            if "error" in reply:
                raise RuntimeError(f"{command}: {reply['error']['desc']}")
            if "return" in reply:
                return reply["return"]

    def run(self, *argv: str, check: bool = True, input: str = "") -> str:
        """Run a command inside; returns what it printed, standard error included."""
        reply = self._ask({"argv": argv, "input": input})
        if check and reply["rc"] != 0:
            raise AssertionError(f"in the VM, {' '.join(argv)} failed with status {reply['rc']}:\n{reply['out']}")
        return str(reply["out"])

    def put(self, files: Mapping[str, str]) -> None:
        self._ask({"put": {path: base64.b64encode(text.encode()).decode() for path, text in files.items()}})

    def set_clock(self) -> None:
        self._ask({"now": time.time()})

    def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        self._agent.write(json.dumps(request) + "\n")
        self._agent.flush()
        reply: dict[str, Any] = json.loads(self._agent.readline())
        return reply

    def _connect(self, name: str) -> Any:
        deadline = time.monotonic() + 20
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_ANSWER_SECONDS)
            try:
                connection.connect(str(self.folder / name))
            except OSError:
                connection.close()
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)
            else:
                # The file object keeps the socket open.
                file = connection.makefile("rw", encoding="utf-8")
                connection.close()
                return file


@contextmanager
def restored() -> Iterator[Vm]:
    """The machine as it was when it had booted, some seconds after being asked for."""
    folder = saved()
    with Vm(image(), ["-incoming", f"exec:cat {folder / 'state'}"]) as vm:
        while vm.qmp("query-status")["status"] == "inmigrate":
            time.sleep(0.02)
        vm.qmp("cont")
        vm.set_clock()
        yield vm


@functools.cache
def saved() -> Path:
    """A folder with the state of the booted machine; valid for this very QEMU and image only."""
    made_from = image()
    digest = stamp.digest([], answer(["qemu-system-x86_64", "--version"]), made_from.name)

    def make(folder: Path) -> None:
        with Vm(made_from, []) as vm:
            _wait_until_up(vm)
            vm.qmp("stop")
            vm.qmp("migrate-set-parameters", **{"max-bandwidth": 10 << 30})
            vm.qmp("migrate", uri=f"exec:cat > {folder / 'state'}")
            while (status := vm.qmp("query-migrate")["status"]) != "completed":
                if status == "failed":
                    raise RuntimeError("QEMU could not save the machine's state")
                time.sleep(0.05)

    return cache.made("vm-state", digest, make)


def _wait_until_up(vm: Vm) -> None:
    deadline = time.monotonic() + _BOOT_SECONDS
    while "agent is ready" not in vm.console:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the VM did not boot; its console says:\n{vm.console[-3000:]}")
        time.sleep(0.1)
    vm.run("systemctl", "is-system-running", "--wait", check=False)
