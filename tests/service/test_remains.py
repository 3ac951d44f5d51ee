"""The record of a dead server: what stands in it, and that it reaches the journal whatever is missing."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service import remains
from service.cgroup import Cgroup
from service.journal import send, serialized
from service.remains import MESSAGE_ID, record

ENVIRON = {
    "SERVICE_RESULT": "oom-kill",
    "EXIT_CODE": "killed",
    "EXIT_STATUS": "KILL",
    "INVOCATION_ID": "0123456789abcdef0123456789abcdef",
    "HF_TOKEN": "hunter2",
}
V2 = {
    "memory.events": "low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 1\n",
    "memory.events.local": "low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 1\n",
    "memory.peak": "3221225472\n",
    "memory.swap.peak": "0\n",
    "memory.max": "3221225472\n",
    "memory.high": "max\n",
    "memory.swap.max": "max\n",
    "memory.current": "4096\n",
    "memory.swap.events": "high 0\nmax 0\nfail 7\n",
}
V1 = {
    "memory.max_usage_in_bytes": "3221225472\n",
    "memory.failcnt": "12\n",
    "memory.limit_in_bytes": "3221225472\n",
    "memory.usage_in_bytes": "4096\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}


def group(folder: Path, version: str, files: dict[str, str], procs: str = "") -> Cgroup:
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "cgroup.procs").write_text(procs)
    return Cgroup("/sglang.slice/sglang-demo.service", version, processes=folder, memory=folder if files else None)


def test_v2_record(tmp_path: Path) -> None:
    assert record("demo", ENVIRON, group(tmp_path, "v2", V2)) == {
        "MESSAGE": "sglang-demo.service ended: result oom-kill, main process killed KILL, oom_kill 2, "
        "memory peak 3072 MiB",
        "MESSAGE_ID": MESSAGE_ID,
        "PRIORITY": "5",
        "SYSLOG_IDENTIFIER": "inquest-remains",
        "OBJECT_SYSTEMD_UNIT": "sglang-demo.service",
        "INQUEST_UNIT": "sglang-demo.service",
        "INQUEST_SERVER": "demo",
        "INQUEST_SERVICE_RESULT": "oom-kill",
        "INQUEST_EXIT_CODE": "killed",
        "INQUEST_EXIT_STATUS": "KILL",
        "INQUEST_INVOCATION_ID": "0123456789abcdef0123456789abcdef",
        "INQUEST_CGROUP": "/sglang.slice/sglang-demo.service",
        "INQUEST_CGROUP_VERSION": "v2",
        "INQUEST_MEMORY_PEAK": "3221225472",
        "INQUEST_MEMORY_SWAP_PEAK": "0",
        "INQUEST_MEMORY_MAX": "3221225472",
        "INQUEST_MEMORY_HIGH": "max",
        "INQUEST_MEMORY_SWAP_MAX": "max",
        "INQUEST_MEMORY_CURRENT": "4096",
        "INQUEST_MEMORY_EVENTS_LOW": "0",
        "INQUEST_MEMORY_EVENTS_HIGH": "0",
        "INQUEST_MEMORY_EVENTS_MAX": "31",
        "INQUEST_MEMORY_EVENTS_OOM": "1",
        "INQUEST_MEMORY_EVENTS_OOM_KILL": "2",
        "INQUEST_MEMORY_EVENTS_OOM_GROUP_KILL": "1",
        "INQUEST_MEMORY_EVENTS_LOCAL_LOW": "0",
        "INQUEST_MEMORY_EVENTS_LOCAL_HIGH": "0",
        "INQUEST_MEMORY_EVENTS_LOCAL_MAX": "31",
        "INQUEST_MEMORY_EVENTS_LOCAL_OOM": "1",
        "INQUEST_MEMORY_EVENTS_LOCAL_OOM_KILL": "2",
        "INQUEST_MEMORY_EVENTS_LOCAL_OOM_GROUP_KILL": "1",
        "INQUEST_MEMORY_SWAP_EVENTS_HIGH": "0",
        "INQUEST_MEMORY_SWAP_EVENTS_MAX": "0",
        "INQUEST_MEMORY_SWAP_EVENTS_FAIL": "7",
    }


@pytest.mark.parametrize("version", ["v1", "hybrid"])
def test_v1_record(tmp_path: Path, version: str) -> None:
    fields = record("demo", ENVIRON, group(tmp_path, version, V1))
    assert {name: value for name, value in fields.items() if name.startswith("INQUEST_MEMORY")} == {
        "INQUEST_MEMORY_MAX_USAGE_IN_BYTES": "3221225472",
        "INQUEST_MEMORY_FAILCNT": "12",
        "INQUEST_MEMORY_LIMIT_IN_BYTES": "3221225472",
        "INQUEST_MEMORY_USAGE_IN_BYTES": "4096",
        "INQUEST_MEMORY_OOM_CONTROL_OOM_KILL_DISABLE": "0",
        "INQUEST_MEMORY_OOM_CONTROL_UNDER_OOM": "0",
        "INQUEST_MEMORY_OOM_CONTROL_OOM_KILL": "2",
    }
    assert "oom_kill 2, memory peak 3072 MiB" in fields["MESSAGE"]
    assert "INQUEST_GAPS" not in fields


def test_younger_files_than_the_kernel_are_absent(tmp_path: Path) -> None:
    older_kernel = {name: text for name, text in V2.items() if "peak" not in name}
    fields = record("demo", ENVIRON, group(tmp_path, "v2", older_kernel))
    assert "INQUEST_MEMORY_PEAK" not in fields
    assert "INQUEST_GAPS" not in fields
    assert fields["INQUEST_MEMORY_EVENTS_OOM_KILL"] == "2"


def test_unreadable_file_is_a_gap(tmp_path: Path) -> None:
    cgroup = group(tmp_path, "v2", {name: text for name, text in V2.items() if name != "memory.peak"})
    (tmp_path / "memory.peak").mkdir()
    assert record("demo", ENVIRON, cgroup)["INQUEST_GAPS"] == "memory.peak: Is a directory"


def test_no_memory_controller_is_a_gap(tmp_path: Path) -> None:
    fields = record("demo", ENVIRON, group(tmp_path, "v2", {}))
    assert fields["INQUEST_GAPS"] == "no memory controller in the unit's cgroup"
    assert fields["MESSAGE"] == "sglang-demo.service ended: result oom-kill, main process killed KILL"


def test_no_cgroup_is_a_gap() -> None:
    fields = record("demo", {"SERVICE_RESULT": "exit-code"}, None)
    assert fields["INQUEST_GAPS"] == "the unit's cgroup could not be made out"
    assert fields["MESSAGE"] == "sglang-demo.service ended: result exit-code, no main process"
    assert "INQUEST_EXIT_CODE" not in fields


def test_environment_stays_out(tmp_path: Path) -> None:
    assert "hunter2" not in str(record("demo", ENVIRON, group(tmp_path, "v2", V2)))


def test_native_protocol() -> None:
    assert serialized({"A": "one", "B": "two\nlines", "C": "\udcff"}) == (
        b"A=one\nB\n\x09\x00\x00\x00\x00\x00\x00\x00two\nlines\nC=\xff\n"
    )


def test_send_returns_when_the_record_was_taken(tmp_path: Path, datagrams: socket.socket) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from service.journal import send; send({'A': '1'}, sys.argv[1])",
         str(tmp_path / "socket")],
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    with process:
        datagrams.recv(1, socket.MSG_PEEK)  # it has arrived, and is still ours to take
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
        assert datagrams.recv(4096) == b"A=1\n"
        assert process.wait(timeout=10) == 0


def test_send_does_not_wait_for_ever(tmp_path: Path, datagrams: socket.socket) -> None:
    began = time.monotonic()
    send({"A": "1"}, str(tmp_path / "socket"))
    assert 0.4 < time.monotonic() - began < 2


def test_step_writes_one_record(tmp_path: Path, datagrams: socket.socket) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from service import remains; sys.exit(remains.main('demo', sys.argv[1]))",
         str(tmp_path / "socket")],
        env={**ENVIRON, "NOTIFY_SOCKET": str(tmp_path / "socket")},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"", b"")
    lines = datagrams.recv(65536).decode("utf-8", "replace").splitlines()
    assert f"MESSAGE_ID={MESSAGE_ID}" in lines
    assert "INQUEST_SERVICE_RESULT=oom-kill" in lines
    assert datagrams.recv(65536).decode().startswith("STATUS=ended: result oom-kill, main process killed KILL")


def test_step_never_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remains.main("demo", str(tmp_path / "nobody listens here")) == 0
    assert capsys.readouterr().err.startswith("<4>inquest: remains not recorded: FileNotFoundError")


def test_step_imports_nothing_heavy() -> None:
    """It runs while a unit is being taken down; pydantic alone would triple its time."""
    script = (
        "import sys; sys.argv = ['service', 'remains', 'demo']; import runpy\n"
        "try: runpy.run_module('service', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: print(end.code, sorted({m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    code, modules = done.stdout.split(" ", 1)
    assert code == "0"
    assert not {"pydantic", "argparse", "typer", "json", "systemd", "http", "ssl"} & set(eval(modules))
