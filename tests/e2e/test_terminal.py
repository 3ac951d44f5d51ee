"""The terminal on a booted machine: it sees what is there, dies on purpose, follows, completes, and has its manual."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.inquest import Inquest, until

pytestmark = pytest.mark.e2e

SKIPPED_HERE = {
    "kernel-oom": "units have no memory controller here",
    "cuda-error": "there is no NVIDIA driver on this machine",
    "cuda-oom": "there is no NVIDIA driver on this machine",
}
BY_HAND = """[Service]
ExecStart=/bin/sh -c 'exec sleep infinity # sglang.launch_server'
"""


def doctor(inquest: Inquest) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Its exit status, and its rows by check."""
    done = inquest.machine.run("inquest", "doctor", "--format", "json", check=False)
    rows: dict[str, list[dict[str, str]]] = {}
    for row in json.loads(done.stdout):
        rows.setdefault(row["check"], []).append(row)
    return done.returncode, rows


# --- the doctor ----------------------------------------------------------------------------------------------


def test_the_doctor_finds_a_fresh_installation_well(inquest: Inquest) -> None:
    status, rows = doctor(inquest)
    failed = [row for found in rows.values() for row in found if row["state"] == "failed"]
    assert (status, failed) == (0, [])
    for check in ("systemd", "settings", "daemon", "journal", "journal-persistent", "generator", "spec", "d-bus"):
        assert [row["state"] for row in rows[check]] == ["ok"], rows[check]
    # A container has neither a kernel log nor a memory controller of its own, and is told so.
    assert {rows[check][0]["state"] for check in ("kernel-log", "memory-controller")} == {"warning"}
    assert {row["state"] for row in rows["unit"] if row["finding"].startswith("sglang-demo.service")} == {"ok"}


def test_the_doctor_knows_a_unit_that_was_written_by_hand(inquest: Inquest) -> None:
    unit = inquest.machine.root / "etc/systemd/system/my-llm.service"
    unit.write_text(BY_HAND)
    inquest.machine.run("systemctl", "daemon-reload")
    inquest.machine.run("systemctl", "start", "my-llm.service")
    try:
        _, rows = doctor(inquest)
        (row,) = [row for row in rows["unit"] if row["finding"].startswith("my-llm.service")]
        assert row["finding"] == "my-llm.service runs SGLang and is not watched"
        assert '"my-llm.service"' in row["remedy"]
    finally:
        inquest.machine.run("systemctl", "stop", "my-llm.service")
        unit.unlink()
        inquest.machine.run("systemctl", "daemon-reload")


def test_the_doctor_says_that_the_daemon_does_not_run(inquest: Inquest) -> None:
    inquest.machine.run("systemctl", "stop", "inquestd.service")
    try:
        status, rows = doctor(inquest)
        assert status == 1
        (row,) = rows["daemon"]
        assert row["state"] == "failed"
        assert "systemctl start inquestd" in row["remedy"]
    finally:
        inquest.machine.run("systemctl", "start", "inquestd.service")


# --- the drill -----------------------------------------------------------------------------------------------


def units_of(inquest: Inquest) -> set[str]:
    listed = inquest.machine.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager").stdout
    return {line.split()[0] for line in listed.splitlines() if line.strip()}


@contextmanager
def running(inquest: Inquest, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A command inside; gone at the end."""
    argv = inquest.machine.argv(command)
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C for the command itself; what runs it inside passes its exit status on."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGINT)


def test_a_drill_is_judged_rightly_and_told(inquest: Inquest) -> None:
    before = units_of(inquest)
    done = inquest.machine.run("inquest", "drill", "--format", "json", check=False)
    played = {one["cause"]: one for one in json.loads(done.stdout)["deaths"]}
    assert {cause: one["words"] for cause, one in played.items() if one["outcome"] == "skipped"} == SKIPPED_HERE
    really = {cause: one for cause, one in played.items() if cause not in SKIPPED_HERE}
    assert sorted(really) == [
        *("exec-failure", "external-signal", "hang", "native-crash", "python-exception", "stop-timeout"),
    ]
    assert {cause: (one["outcome"], one["told"]) for cause, one in really.items()} == dict.fromkeys(
        really, ("right", True)
    )
    assert done.returncode == 0
    # The other channels have it too, under a name that says what it was.
    assert inquest.webhook is not None
    told = until(
        lambda: (
            {alert["body"]["unit"] for alert in inquest.webhook.received}  # type: ignore[union-attr]
            & {f"sglang-inquest-drill-{cause}.service" for cause in really}
            or None
        ),
        "the webhook is told of a drill",
        seconds=30,
    )
    assert told
    assert not any("inquest-drill" in unit for unit in units_of(inquest))
    assert units_of(inquest) >= {unit for unit in before if unit.endswith(".service") and unit.startswith("sglang-")}


def test_an_interrupted_drill_leaves_nothing_behind(inquest: Inquest) -> None:
    unit = "sglang-inquest-drill-external-signal.service"
    with running(inquest, "inquest", "drill", "--cause", "external-signal") as process:
        until(lambda: unit in units_of(inquest), "the scratch unit runs", seconds=20)
        interrupt(process)
        _, errors = process.communicate(timeout=30)
    assert "interrupted; the scratch unit is gone" in errors
    assert process.returncode == 130
    assert unit not in units_of(inquest)


# --- following -----------------------------------------------------------------------------------------------


def test_watch_follows_over_a_restart_of_the_daemon(inquest: Inquest) -> None:
    with running(inquest, "inquest", "watch", "--server", "inquest-drill-external-signal") as watching:
        assert watching.stderr is not None
        assert watching.stdout is not None
        until(lambda: "established" in _connections(inquest), "the stream is open", seconds=20)
        inquest.machine.run("systemctl", "restart", "inquestd.service")
        assert "waiting for it" in watching.stderr.readline()
        assert "inquestd answers again" in watching.stderr.readline()
        inquest.machine.run("inquest", "drill", "--cause", "external-signal")
        lines = [watching.stdout.readline(), watching.stdout.readline()]
        interrupt(watching)
        assert watching.wait(20) == 0
    assert "inquest-drill-external-signal  started" in lines[0]
    assert "inquest-drill-external-signal  crash: external-signal, likely" in lines[1]


def _connections(inquest: Inquest) -> str:
    """Those to the daemon's unix socket, of whatever side."""
    text = inquest.machine.run("cat", "/proc/net/unix").stdout
    return "established" if sum("/run/inquestd/api.sock" in line for line in text.splitlines()) > 1 else ""


# --- completion and manual -----------------------------------------------------------------------------------


def test_bash_completes(inquest: Inquest) -> None:
    script = (
        "source /usr/local/share/bash-completion/completions/inquest;"
        'COMP_WORDS=(inquest crashes --cause kernel-); COMP_CWORD=3; _inquest inquest; echo "${COMPREPLY[@]}"'
    )
    assert inquest.machine.run("bash", "-c", script).stdout.split() == ["kernel-oom"]


def test_fish_completes(inquest: Inquest) -> None:
    done = inquest.machine.run("fish", "-c", 'complete --do-complete "inquest crashes --server de"')
    assert done.stdout.split("\t")[0] == "demo"


def test_zsh_completes(inquest: Inquest) -> None:
    with on_a_terminal(inquest, ["zsh", "-f", "-i"]) as terminal:
        os.write(terminal, b"autoload -U compinit; compinit -u; print re''ady\n")
        read_until(terminal, b"ready")
        os.write(terminal, b"inquest explain kernel-o\t")
        read_until(terminal, b"kernel-oom")


@contextmanager
def on_a_terminal(inquest: Inquest, command: Sequence[str]) -> Iterator[int]:
    pid, terminal = pty.fork()
    if pid == 0:
        argv = inquest.machine.argv(command, {"TERM": "xterm"})
        os.execvp(argv[0], argv)
    try:
        yield terminal
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)


def read_until(terminal: int, words: bytes, seconds: float = 30.0) -> None:
    deadline, seen = time.monotonic() + seconds, b""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} did not come; what came: {seen!r}"
        seen += os.read(terminal, 65536)


@pytest.mark.parametrize("page", ["inquest.1", "inquestd.toml.5", "inquest-server.toml.5", "inquestd.service.8"])
def test_the_manual_is_installed(inquest: Inquest, page: str) -> None:
    path = inquest.machine.root / "usr/local/share/man" / f"man{page[-1]}" / page
    done: Any = subprocess.run(["mandoc", "-Tlint", "-W", "style", path], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)
