"""Waiting for the server, against a real HTTP server in a process of its own."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service import ready
from service.exit_status import NOT_READY
from service.ready import Endpoint, Gone, wait

Serve = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same waiting, with shorter pauses."""
    monkeypatch.setattr(ready, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(ready, "ASK_SECONDS", 0.02)
    monkeypatch.setattr(ready, "STRANGER_SECONDS", 0.2)


@pytest.fixture
def sleeper(start: Callable[..., subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """A main process that never opens its port."""
    return start("sleep", "60")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_returns_when_the_server_answers(serve: Serve, tmp_path: Path, host: str) -> None:
    process, port = serve("0.0.0.0" if host == "0.0.0.0" else "127.0.0.1")
    states: list[str] = []

    def notify(status: str) -> None:
        states.append(status)
        (tmp_path / "warm").touch()  # only what has been told as warming up can become ready

    assert wait(Endpoint(host, port), process.pid, lambda: (process.pid,), notify) == ""
    (state,) = states
    assert re.fullmatch(r"waiting for SGLang, \d+ s: warming up", state)


def test_ipv6_wildcard_is_asked_on_its_loopback() -> None:
    assert Endpoint("::", 1).reachable_host == "::1"
    script = """
import http.server, socket
class S(http.server.HTTPServer): address_family = socket.AF_INET6
class A(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
s = S(("::", 0), A); print(s.server_port, flush=True); s.serve_forever()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            assert wait(Endpoint("::", port), process.pid, lambda: (process.pid,), print) == ""
        finally:
            process.kill()


def test_socket_of_a_child_counts(serve: Serve, sleeper: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "warm").touch()
    worker, port = serve()
    assert wait(Endpoint("127.0.0.1", port), sleeper.pid, lambda: (sleeper.pid, worker.pid), print) == ""


def test_strangers_answer_does_not_count(serve: Serve, sleeper: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "warm").touch()
    stranger, port = serve()
    with pytest.raises(Gone, match=rf"port {port} belongs to pid {stranger.pid} \(python.*, so SGLang cannot have it"):
        wait(Endpoint("127.0.0.1", port), sleeper.pid, lambda: (sleeper.pid,), print)


def test_stranger_that_leaves_is_forgiven(
    serve: Serve, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "STRANGER_SECONDS", 30)
    stranger, port = serve()
    ours: list[subprocess.Popen[str]] = []

    def notify(status: str) -> None:
        if "belongs to" in status:
            stranger.kill()
            stranger.wait()
            (tmp_path / "warm").touch()
            successor, _ = serve(port=port)
            ours.append(successor)

    main = start("sleep", "60")
    wait(Endpoint("127.0.0.1", port), main.pid, lambda: (main.pid, *(p.pid for p in ours)), notify)
    assert len(ours) == 1


def test_unseen_owner_is_remarked(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warm").touch()
    process, port = serve()
    monkeypatch.setattr(ready, "owns", lambda pids, inode: None)
    remark = wait(Endpoint("127.0.0.1", port), process.pid, lambda: (process.pid,), print)
    assert remark == " (whose socket it is could not be seen)"


def test_server_is_no_stranger_where_no_process_is_known(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "warm").touch()
    process, port = serve()
    assert wait(Endpoint("127.0.0.1", port), process.pid, tuple, print) == " (whose socket it is could not be seen)"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_own_certificate_is_good_enough(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=elsewhere", *files]
    subprocess.run(make, check=True, capture_output=True)
    script = """
import http.server, ssl, sys
class A(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
s = http.server.HTTPServer(("127.0.0.1", 0), A)
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[2], sys.argv[1])
s.socket = c.wrap_socket(s.socket, server_side=True); print(s.server_port, flush=True); s.serve_forever()
"""
    process = start(sys.executable, "-c", script, str(tmp_path / "key"), str(tmp_path / "cert"))
    assert process.stdout is not None
    port = int(process.stdout.readline())
    assert wait(Endpoint("127.0.0.1", port, https=True), process.pid, lambda: (process.pid,), print) == ""


def test_ends_at_once_with_the_main_process(sleeper: subprocess.Popen[str], free_port: int) -> None:
    def notify(status: str) -> None:
        assert re.fullmatch(r"waiting for SGLang, \d+ s: starting its processes", status)
        sleeper.kill()

    with pytest.raises(Gone, match="the server's main process ended"):
        wait(Endpoint("127.0.0.1", free_port), sleeper.pid, lambda: (sleeper.pid,), notify)


def test_model_is_loading_when_sglangs_processes_have_their_titles(
    start: Callable[..., subprocess.Popen[str]], sleeper: subprocess.Popen[str], free_port: int
) -> None:
    scheduler = start("bash", "-c", "exec -a sglang::scheduler_TP0 sleep 60")
    states: list[str] = []

    def notify(status: str) -> None:
        states.append(status)
        if status.endswith("loading the model"):
            sleeper.kill()

    with pytest.raises(Gone):
        wait(Endpoint("127.0.0.1", free_port), sleeper.pid, lambda: (sleeper.pid, scheduler.pid), notify)
    assert states[-1].endswith(" s: loading the model")


def test_step_that_the_server_logs_is_told(sleeper: subprocess.Popen[str], free_port: int) -> None:
    logged = [["Load weight begin. avail mem=9 GB"], ["Capture target decode CUDA graph begin. avail mem=8 GB"], []]
    states: list[str] = []

    def notify(status: str) -> None:
        states.append(status.partition(": ")[2])
        if "graphs" in status:
            sleeper.kill()

    with pytest.raises(Gone):
        wait(
            Endpoint("127.0.0.1", free_port),
            sleeper.pid,
            lambda: (sleeper.pid,),
            notify,
            lambda: logged.pop(0) if logged else [],
        )
    assert states[-1] == "capturing CUDA graphs"


def test_main_process_that_was_never_there(free_port: int) -> None:
    with pytest.raises(Gone, match="the server's main process ended"):
        wait(Endpoint("127.0.0.1", free_port), 0, tuple, print)


def test_plain_server_asked_by_https_says_so(serve: Serve) -> None:
    process, port = serve()
    states: list[str] = []

    def notify(status: str) -> None:
        states.append(status)
        process.kill()

    with pytest.raises(Gone):
        wait(Endpoint("127.0.0.1", port, https=True), process.pid, lambda: (process.pid,), notify)
    # Until it is dead it may be asked again.
    assert re.fullmatch(r"waiting for SGLang, \d+ s: its health check says SSLError", states[0])


class TestMain:
    """The step as the unit runs it: a process with ``$MAINPID`` and ``$NOTIFY_SOCKET``."""

    def run(self, port: int, main_pid: int, notify_socket: Path | None = None) -> subprocess.Popen[str]:
        env = {**os.environ, "MAINPID": str(main_pid)}
        env.pop("NOTIFY_SOCKET", None)
        if notify_socket:
            env["NOTIFY_SOCKET"] = str(notify_socket)
        argv = [sys.executable, "-m", "service", "wait-ready", "demo", "--host", "127.0.0.1", "--port", str(port)]
        return subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])

    def test_ready(self, serve: Serve, tmp_path: Path, datagrams: socket.socket) -> None:
        (tmp_path / "warm").touch()
        process, port = serve()
        with self.run(port, process.pid, tmp_path / "socket") as step:
            _, stderr = step.communicate(timeout=20)
        assert step.returncode == 0
        assert stderr.startswith("inquest: ready after ")
        assert stderr.endswith(f" s on 127.0.0.1 port {port}\n")
        assert re.fullmatch(rb"STATUS=ready after \d+ s", datagrams.recv(4096))

    def test_not_ready(
        self, sleeper: subprocess.Popen[str], free_port: int, tmp_path: Path, datagrams: socket.socket
    ) -> None:
        with self.run(free_port, sleeper.pid, tmp_path / "socket") as step:
            assert datagrams.recv(4096).endswith(b" s: starting its processes")
            sleeper.kill()
            _, stderr = step.communicate(timeout=20)
        assert step.returncode == NOT_READY
        words = r"<3>inquest: not ready after \d+ s: the server's main process ended; its last lines are above\n"
        assert re.fullmatch(words, stderr)
        assert datagrams.recv(4096).startswith(b"STATUS=not ready: ")

    def test_stop_meanwhile_is_no_failure(
        self, sleeper: subprocess.Popen[str], free_port: int, tmp_path: Path, datagrams: socket.socket
    ) -> None:
        with self.run(free_port, sleeper.pid, tmp_path / "socket") as step:
            datagrams.recv(4096)
            step.terminate()
            assert step.wait(timeout=20) == 0
