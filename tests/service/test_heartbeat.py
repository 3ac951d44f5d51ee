"""The heartbeat beside a server: told once when it does not answer, given up where that is wanted."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service import heartbeat, stacks
from service.background import Main
from service.cgroup import Cgroup
from service.health import Endpoint
from service.heartbeat import MESSAGE_ID, Heartbeat, record
from service.identity import identity

Serve = Callable[..., tuple["subprocess.Popen[str]", int]]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "ANSWER_SECONDS", 0.3)
    # A systemctl that knows of no unit that stops.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f'#!/bin/sh\necho "$NOTIFY_SOCKET" >> {tmp_path}/asked\necho active\n')
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(stacks, "dump", lambda pids: f"stacks of {len(pids)}")
    monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))


class Listening:
    """What is sent to a datagram socket, collected as it comes."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.got: list[bytes] = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        while data := self.sock.recv(1 << 20):
            with self.changed:
                self.got.append(data)
                self.changed.notify_all()

    def wait(self, words: bytes, count: int = 1) -> list[bytes]:
        with self.changed:
            assert self.changed.wait_for(lambda: sum(words in data for data in self.got) >= count, 10), self.got
            return [data for data in self.got if words in data]

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", self.sock.getsockname())
        self.thread.join()
        self.sock.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Listening]:
    listening = Listening(tmp_path / "journal")
    yield listening
    listening.close()


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[Listening]:
    listening = Listening(tmp_path / "notify")
    yield listening
    listening.close()


@pytest.fixture
def beat(tmp_path: Path) -> Callable[..., threading.Thread]:
    def run(process: "subprocess.Popen[str]", port: int, give_up: float | None = None) -> threading.Thread:
        endpoint = Endpoint("127.0.0.1", port)
        made = Heartbeat("demo", endpoint, Main(process.pid), give_up, str(tmp_path / "journal"))
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        return thread

    return run


Beat = Callable[..., threading.Thread]


def ends(thread: threading.Thread, process: "subprocess.Popen[str]") -> None:
    process.kill()
    thread.join(5)
    assert not thread.is_alive()


def test_server_that_answers_is_left_alone(serve: Serve, beat: Beat, notified: Listening, journal: Listening) -> None:
    process, port = serve()  # 503 is an answer as well
    thread = beat(process, port, 60.0)
    notified.wait(b"WATCHDOG=1", 5)
    ends(thread, process)
    assert journal.got == []
    assert set(notified.got) == {b"WATCHDOG=1"}


def test_stopped_server_is_told_once_and_told_when_it_is_back(
    serve: Serve, beat: Beat, notified: Listening, journal: Listening, tmp_path: Path
) -> None:
    process, port = serve()
    thread = beat(process, port)
    process.send_signal(19)
    notified.wait(b"STATUS=does not answer since", 3)
    process.send_signal(18)
    journal.wait(b"INQUEST_HANG_STATE=answering")
    ends(thread, process)
    told = journal.wait(b"INQUEST_HANG_STATE=not-answering")
    assert len(told) == 1
    fields = dict(line.partition(b"=")[::2] for line in told[0].splitlines() if b"=" in line)
    assert fields[b"MESSAGE_ID"] == MESSAGE_ID.encode()
    assert fields[b"PRIORITY"] == b"3"
    assert fields[b"INQUEST_HANG_PROBE"] == b"nothing"
    assert fields[b"INQUEST_ON_HANG"] == b"tell"
    assert fields[b"INQUEST_HANG_STACKS"] == b"stacks of 1"
    assert fields[b"INQUEST_HANG_PROCESSES"].startswith(f"{process.pid} T python".encode())
    since = int(fields[b"INQUEST_HANG_SINCE_USEC"]) / 1e6
    assert 0 < time.time() - since < 20
    assert b"WATCHDOG=trigger" not in notified.got
    # A systemctl that fails would tell the unit's status of it.
    assert set((tmp_path / "asked").read_text().splitlines()) == {""}


def test_stopped_server_is_given_up_at_once(serve: Serve, beat: Beat, notified: Listening, journal: Listening) -> None:
    process, port = serve()
    thread = beat(process, port, 60.0)
    process.send_signal(19)
    notified.wait(b"WATCHDOG=trigger")
    journal.wait(b"INQUEST_ON_HANG=restart")  # told before
    ends(thread, process)


def test_dead_port_is_given_up_when_it_lasts(
    start: Start, beat: Beat, notified: Listening, journal: Listening, free_port: int
) -> None:
    process = start("sleep", "60")
    began = time.monotonic()
    thread = beat(process, free_port, 1.0)
    journal.wait(b"INQUEST_HANG_PROBE=ConnectionRefusedError")
    notified.wait(b"WATCHDOG=trigger")
    assert time.monotonic() - began >= 1.0
    ends(thread, process)


def test_who_dies_before_the_first_look_is_named(
    start: Start, journal: Listening, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 3.0)
    monkeypatch.setattr(heartbeat, "note", lambda *_: None)
    process, child = start("sleep", "60"), start("sleep", "61")
    (tmp_path / "cgroup.procs").write_text(f"{process.pid}\n{child.pid}\n")
    group = Cgroup("/sglang.slice/sglang-demo.service", "v2", processes=tmp_path, memory=None)
    monkeypatch.setattr(heartbeat, "unit_cgroup", lambda server: group)
    made = Heartbeat("demo", Endpoint("127.0.0.1", free_port), Main(process.pid), None, str(tmp_path / "journal"))
    thread = threading.Thread(target=made.run, daemon=True)
    began = time.monotonic()
    thread.start()
    while not made.first:
        os.sched_yield()
    assert time.monotonic() - began < heartbeat.LOOK_SECONDS
    child.kill()
    child.wait()
    (told,) = journal.wait(b"INQUEST_HANG_STATE=not-answering")
    assert b"INQUEST_HANG_LOST=sleep" in told
    ends(thread, process)


def test_server_that_stops_may_fall_silent(
    start: Start, beat: Beat, notified: Listening, journal: Listening, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    monkeypatch.setattr(heartbeat, "_is_active", lambda unit: bool(asked.set()))
    process = start("sleep", "60")
    thread = beat(process, free_port, 0.0)
    assert asked.wait(5)
    ends(thread, process)
    assert journal.got == []
    assert b"WATCHDOG=trigger" not in notified.got


def test_broken_heartbeat_does_not_cost_the_server_its_life(
    start: Start, notified: Listening, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(heartbeat, "health", broken)
    made = Heartbeat("demo", Endpoint("127.0.0.1", free_port), Main(start("sleep", "60").pid), 60.0)
    with pytest.raises(ZeroDivisionError):
        made.run()
    notified.wait(b"WATCHDOG_USEC=0")


@pytest.mark.parametrize(
    ("before", "after", "streams"),
    [
        ({1: 5, 2: 5}, {1: 55, 2: 30}, True),
        ({1: 5, 2: 5}, {1: 55, 2: 7}, False),  # the look itself wakes it once or twice
        ({1: 5, 2: 5}, {1: 5, 2: 30}, False),  # main stands still
        ({1: 5}, {1: 55}, False),
        ({1: 5, 2: 5}, {1: 55, 3: 900}, False),  # a new process
    ],
)
def test_stream_of_answers(before: dict[int, int], after: dict[int, int], streams: bool) -> None:
    assert heartbeat._streams(before, after) is streams


def test_stopped_process_is_named(start: Start) -> None:
    process = start("sleep", "60")
    process.send_signal(19)
    until = time.monotonic() + 5
    while "T" not in Path(f"/proc/{process.pid}/stat").read_text().split()[2] and time.monotonic() < until:
        os.sched_yield()
    fields = record("demo", [process.pid], "nothing", 21.7, ["sglang::schedul"], restart=True)
    assert fields["MESSAGE"] == (
        "sglang-demo.service runs but does not answer: no answer within 0 s; sleep is stopped; "
        "sglang::schedul has ended"
    ).replace("0 s", f"{heartbeat.ANSWER_SECONDS:.0f} s")
    assert fields["INQUEST_HANG_SECONDS"] == "22"
    assert fields["INQUEST_HANG_LOST"] == "sglang::schedul"
    assert fields["INQUEST_HANG_PROCESSES"] == f"{process.pid} T sleep sleep 60"


def test_step_leaves_its_process_beside_the_server_and_returns(start: Start, free_port: int, tmp_path: Path) -> None:
    """As the unit runs it: the step ends at once, its process with the server."""
    server = start("sleep", "60")
    words = ["heartbeat", "demo", "--host", "127.0.0.1", "--port", str(free_port)]
    env = {**os.environ, "MAINPID": str(server.pid), "NOTIFY_SOCKET": ""}
    step = subprocess.run([sys.executable, "-m", "service", *words], env=env, cwd=Path(__file__).parents[2], timeout=20)
    assert step.returncode == 0
    (beat,) = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _watches(pid, server.pid)]
    name = Path(f"/proc/{beat}/comm")
    until = time.monotonic() + 5
    while name.read_text() != "inquest-beat\n" and time.monotonic() < until:
        os.sched_yield()
    found = identity(beat)
    server.kill()
    until = time.monotonic() + 5
    while identity(beat) == found and time.monotonic() < until:
        os.sched_yield()
    assert identity(beat) != found


def _watches(pid: int, server: int) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return f"MAINPID={server}".encode() in environ
    except OSError:
        return False


class TestStacks:
    def test_program_that_only_root_can_change(self, tmp_path: Path) -> None:
        assert stacks.may_run_as_root(Path("/bin/sh")) is True
        (tmp_path / "py-spy").write_text("#!/bin/sh\n")
        (tmp_path / "py-spy").chmod(0o777)
        assert stacks.may_run_as_root(tmp_path / "py-spy") is False
        assert stacks.may_run_as_root(tmp_path / "none") is False

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ('echo "Thread 1: $*"', "Thread 1: dump --nonblocking --pid {pid}"),
            ("echo 'Process 7: python --api-key hunter2'; echo 'Python v3.12.3'", ":\nPython v3.12.3"),
            ("echo 'Permission Denied' >&2; exit 1", "no stack: Permission Denied"),
            ("exec sleep 60", "no stack: py-spy gave none within 0 s"),
        ],
    )
    def test_stack_or_why_there_is_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
    ) -> None:
        monkeypatch.undo()
        (tmp_path / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "py-spy").chmod(0o755)
        monkeypatch.setattr(stacks, "DEADLINE_SECONDS", 0.4)
        monkeypatch.setattr(stacks, "may_run_as_root", lambda program: True)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        text = stacks.dump([os.getpid()])
        assert text.startswith(f"{os.getpid()} ")
        assert text.endswith(words.format(pid=os.getpid()))

    def test_no_program(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("PATH", str(tmp_path))
        assert stacks.dump([1]) == "no stacks: py-spy is not installed beside SGLang"
