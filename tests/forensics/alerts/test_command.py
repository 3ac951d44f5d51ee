import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from forensics.alerts.command import CommandSink
from forensics.errors import InquestError
from tests.forensics.alerts.deliveries import LINK, delivery, living


def command(*argv: str, timeout_seconds: float = 10.0) -> CommandSink:
    return CommandSink("siren", argv, timeout_seconds=timeout_seconds, host="gpu7", link=LINK)


def test_it_reads_the_message_and_sees_nothing_of_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/inquestd.service")
    told, seen = tmp_path / "told", tmp_path / "seen"
    assert command("/bin/sh", "-c", f"cat > {told}; env > {seen}; ps -o sid= -p $$ >> {seen}").send(delivery())
    assert json.loads(told.read_text())["crash"]["server"] == "demo"
    lines = seen.read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line)
    given = {name: value for name, value in given.items() if name not in ("PWD", "SHLVL", "_", "OLDPWD")}
    assert given == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "INQUEST_EVENT": "crash",
        "INQUEST_HOST": "gpu7",
        "INQUEST_SERVER": "demo",
        "INQUEST_UNIT": "sglang-demo.service",
        "INQUEST_CAUSE": "python-exception",
        "INQUEST_STRENGTH": "confirmed",
        "INQUEST_CRASH_ID": "000000000001",
        "INQUEST_MESSAGE_ID": "000000000001-1",
    }
    assert int(lines[-1]) != os.getsid(0)


def test_words_go_to_no_shell(tmp_path: Path) -> None:
    command("/usr/bin/touch", f"{tmp_path}/$(id); rm *").send(living("hang"))
    assert [path.name for path in tmp_path.iterdir()] == ["$(id); rm *"]


def test_another_exit_status_than_0_is_no_delivery() -> None:
    with pytest.raises(InquestError) as error:
        command("/bin/sh", "-c", "echo the siren is broken >&2; exit 3").send(delivery())
    assert error.value.message == "/bin/sh: exit status 3: the siren is broken"


def test_what_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait"
    began = time.monotonic()
    with pytest.raises(InquestError) as error:
        command("/bin/sh", "-c", script, timeout_seconds=0.5).send(delivery())
    assert time.monotonic() - began < 5
    assert "not done in 0.5 s" in error.value.message
    for pid in pids.read_text().split():
        # Killed with its group, by nobody waited for.
        eventually(partial(_is_gone, int(pid)))


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_child_that_is_left_behind_holds_up_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    command("/bin/sh", "-c", "sleep 300 & exit 0").send(delivery())
    assert time.monotonic() - began < 5


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(FileNotFoundError, match="/nowhere/siren"):
        command("/nowhere/siren").send(delivery())


def test_a_command_that_reads_nothing_is_delivered() -> None:
    assert command("/bin/true").send(delivery()) == "exit status 0"
