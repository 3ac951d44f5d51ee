"""The dead man's switch of a trial: systemd goes back to the old spec when whoever runs the trial is gone.

A transient unit waits for the end of that process, however it ends, `kill -9` and a closed terminal included, and then
takes the drop-in away. All of it lies below /run: after a reboot nothing of it is there, and the old spec is in force.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from forensics.cli.systemctl import look, tell
from forensics.errors import InquestError

RUN = Path("/run")
DROPIN_NAME = "90-inquest-trial.conf"


class Guard:
    """Going back, for one server. The way back is the same whether the trial ends well or is killed."""

    def __init__(self, unit: str, *, was_active: bool, run: Path = RUN) -> None:
        self.unit = unit
        self.name = f"inquest-trial-{unit.removeprefix('sglang-')}"
        self.dropin = run / "systemd/system" / f"{unit}.d" / DROPIN_NAME
        # A file of its own: systemd 252 garbles a transient unit's semicolons at the next daemon-reload.
        self.way_back = run / "inquest" / f"{self.name.removesuffix('.service')}.sh"
        self._then = "restart" if was_active else "stop"

    def write_way_back(self) -> None:
        """The shell script that goes back. Without a drop-in there is nothing to go back from."""
        lines = (
            f"test -e {self.dropin} || exit 0",
            f"rm -f {self.dropin}",
            f"rmdir --ignore-fail-on-non-empty {self.dropin.parent}",
            "systemctl daemon-reload",
            f"systemctl reset-failed {self.unit}",
            f"systemctl --no-block {self._then} {self.unit}",
        )
        self.way_back.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.way_back.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Watch this process from now on. InquestError when another trial of this server is under way."""
        if look(self.name).active_state in ("active", "activating", "deactivating"):
            raise InquestError(
                "trial-under-way", f"another trial of {self.unit} is under way", f"End it: systemctl stop {self.name}"
            )
        self.write_way_back()
        argv = [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={self.name}",
            f"--description=Goes back to the old spec of {self.unit} when the trial ends",
            f"--property=ExecStopPost=/bin/sh {self.way_back}",
            "/usr/bin/tail",
            f"--pid={os.getpid()}",
            "--follow",
            "/dev/null",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise InquestError("no-guard", f"systemd-run: {done.stderr.strip()}")

    def put(self, text: str) -> None:
        """The drop-in, whole or not at all, and known to systemd."""
        self.dropin.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.dropin.parent, prefix=".")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        Path(name).replace(self.dropin)
        tell("daemon-reload")

    def release(self) -> None:
        """The trial is over: go back now, and return when systemd was told to."""
        tell("stop", self.name, check=False)
        if self.dropin.exists():  # the guard was ended by somebody before there was anything to go back from
            subprocess.run(["/bin/sh", self.way_back], stdin=subprocess.DEVNULL)
