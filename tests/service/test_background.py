"""A process that stays beside the server: the step ends at once, the process with the server."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from service.background import Main

ROOT = Path(__file__).parents[2]
Start = Callable[..., "subprocess.Popen[str]"]


def test_end_of_the_server_is_seen(start: Start) -> None:
    process = start("sleep", "60")
    main = Main(process.pid)
    assert not main.ended(0)
    process.kill()
    assert main.ended(5)


def test_stop_is_shown_until_the_server_has_ended(start: Start, tmp_path: Path, datagrams: socket.socket) -> None:
    server = start("sleep", "60")
    env = {**os.environ, "MAINPID": str(server.pid), "NOTIFY_SOCKET": str(tmp_path / "socket"), "INVOCATION_ID": ""}
    step = [sys.executable, "-m", "service", "drain", "demo", "--limit", "300"]
    assert subprocess.run(step, env=env, cwd=ROOT, timeout=20).returncode == 0
    words = b"STATUS=stopping: SGLang finishes the running requests, "
    assert datagrams.recv(4096) == words + b"0 s of at most 300 s"
    assert datagrams.recv(4096) == words + b"1 s of at most 300 s"
    server.send_signal(signal.SIGKILL)


def test_server_that_has_ended_already_is_left() -> None:
    env = {**os.environ, "MAINPID": str(2**22 + 5)}
    step = [sys.executable, "-m", "service", "drain", "demo", "--limit", "300"]
    assert subprocess.run(step, env=env, cwd=ROOT, timeout=20).returncode == 0
