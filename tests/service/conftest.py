"""What the tests of the service share: processes and sockets that end with the test."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# A stand-in for SGLang's HTTP server: takes the port, answers 503 until the file WARM exists, then 200.
SERVER = """
import http.server, pathlib, sys
host, port, warm = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        assert self.path == "/health_generate", self.path
        self.send_response(200 if warm.exists() else 503)
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer((host, port), Answer)  # with SO_REUSEADDR
print(server.server_port, flush=True)
server.serve_forever()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that ends with the test: ``start(*argv)``."""
    with contextlib.ExitStack() as stack:

        def run(*argv: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield run


@pytest.fixture
def serve(start: Start, tmp_path: Path) -> Callable[..., "tuple[subprocess.Popen[str], int]"]:
    """Start the stand-in server; returns its process and port. It is warm when ``tmp_path / "warm"`` exists."""

    def run(host: str = "127.0.0.1", port: int = 0) -> "tuple[subprocess.Popen[str], int]":
        process = start(sys.executable, "-c", SERVER, host, str(port), str(tmp_path / "warm"))
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    return run


@pytest.fixture
def datagrams(tmp_path: Path) -> Iterator[socket.socket]:
    """A datagram socket at ``tmp_path / "socket"``, as journald and PID 1 have one; tests read what was sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "socket"))
        sock.settimeout(5)
        yield sock


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 that nobody has."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
