"""What the server of one run logs, line by line, as journald stores it. Needs the right to read the journal."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Self

__all__ = ["Logged", "ask_last_line", "last_usec", "memory_lines"]

_CHUNK_BYTES = 1 << 16
_MUCH_BYTES = 1 << 22


def _journalctl(invocation_id: str, *options: str) -> list[str]:
    match = [f"_SYSTEMD_INVOCATION_ID={invocation_id}", "_TRANSPORT=stdout"]
    return ["journalctl", "--quiet", "--no-pager", "--boot", *options, *match]


class Logged:
    """The lines of the run so far and those that follow; without a journal there are none, and no error."""

    def __init__(self, invocation_id: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        if not invocation_id:
            return
        try:
            self._process = subprocess.Popen(
                _journalctl(invocation_id, "--follow", "--lines=all", "--output=cat"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def lines(self) -> list[str]:
        """What came since the last call; never waits."""
        if self._process is None:
            return []
        assert self._process.stdout is not None
        taken, read = [self._rest], 0
        while read < _MUCH_BYTES:
            try:
                chunk = os.read(self._process.stdout.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                break
            taken.append(chunk)
            read += len(chunk)
        *whole, self._rest = b"".join(taken).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()


def memory_lines(unit: str) -> list[str]:
    """The lines of a unit's last starts that tell of memory; none where the journal cannot be read."""
    words = "server_args=|Load weight |KV Cache is allocated|graph end|max_total_num_tokens="
    # The last of many: journalctl begins at the end, and prints in that order.
    argv = ["journalctl", "--quiet", "--no-pager", "--output=cat", "--lines=200", "--reverse", f"--grep={words}"]
    try:
        done = subprocess.run(
            [*argv, f"_SYSTEMD_UNIT={unit}", "_TRANSPORT=stdout"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()[::-1]


def ask_last_line(invocation_id: str) -> subprocess.Popen[bytes]:
    """A running question for the run's last lines, for ``last_usec``."""
    options = ["--lines=30", "--output=short-unix"]
    return subprocess.Popen(
        _journalctl(invocation_id, *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def last_usec(output: bytes) -> int | None:
    """When the server last said something, microseconds since 1970: ``seconds host identifier[pid]: message``, a line
    each, of which those of the unit's own steps do not count. Raises ``ValueError``."""
    for line in reversed(output.splitlines()):
        if b"]: inquest: " not in line and line[:1].isdigit():
            return round(float(line.split()[0]) * 1e6)
    return None
