import json
import os
import pty
import re
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from forensics.api import Access, create_app, serve
from forensics.cli import COMMANDS, client
from forensics.cli.since import parse_since
from forensics.errors import InquestError
from forensics.model import Strength
from forensics.store import Store
from tests.forensics.commandline import Inquest
from tests.forensics.factories import HEALTH, crash, invocation

# --- crashes -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("api")
def test_crashes_in_plain_columns(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(crash(1))
    store.save(crash(2, cause="unknown", strength=None, unit="sglang-b.service", summary="no\nidea"))
    assert inquest("crashes") == 0
    assert capsys.readouterr().out.splitlines() == [
        "id            died (UTC)           server  cause             strength   what happened",
        "000000000002  2026-03-01 12:01:02  b       unknown           -          no idea",
        "000000000001  2026-03-01 12:01:01  demo    python-exception  confirmed"
        "  The scheduler died of RuntimeError: tensor sizes differ",
    ]


@pytest.mark.usefixtures("api")
def test_b6_the_cause_of_each_crash_stands_in_one_line_newest_first_within_a_second(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    causes = ("kernel-oom", "cuda-error", "external-signal", "stop-timeout", "python-exception")
    order = [number * 37 % 101 for number in range(1, 101)]
    for number in order:
        store.save(
            crash(number, cause=causes[number % 5], summary=f"what\nhappened {number}", unit="sglang-flap.service")
        )
    began = time.monotonic()
    assert inquest("crashes", "--limit", "100") == 0
    took = time.monotonic() - began
    _, *lines = capsys.readouterr().out.splitlines()
    newest_first = sorted(order, reverse=True)
    assert [line.split()[0] for line in lines] == [f"{number:012x}" for number in newest_first]
    for number, line in zip(newest_first, lines, strict=True):
        assert f"  {causes[number % 5]} " in line
        assert line.endswith(f"what happened {number}")
    assert took <= 1


@pytest.mark.usefixtures("api")
def test_no_crashes_is_said_beside_the_output(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("crashes") == 0
    assert capsys.readouterr() == ("", "No crashes.\n")


@pytest.mark.usefixtures("api")
def test_crashes_as_json(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(crash(1))
    assert inquest("crashes", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == [store.shown(invocation(1))]


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--server", "b"], [2]),
        (["--cause", "kernel-oom"], [3]),
        (["--since", "2026-03-01T12:01:02Z"], [3, 2]),
        (["--since", "1h"], []),
        (["--limit", "1"], [3]),
    ],
)
def test_filters(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str], options: list[str], expected: list[int]
) -> None:
    store.save(crash(1))
    store.save(crash(2, unit="sglang-b.service"))
    store.save(crash(3, cause="kernel-oom", strength=Strength.LIKELY))
    assert inquest("crashes", "--format", "json", *options) == 0
    assert [one["invocation_id"] for one in json.loads(capsys.readouterr().out)] == list(map(invocation, expected))


@pytest.mark.usefixtures("api")
def test_more_crashes_than_a_page_are_fetched_page_by_page(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.cli.crashes.PAGE", 7)
    for number in range(1, 31):
        store.save(crash(number))
    assert inquest("crashes", "--limit", "25") == 0
    ids = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert ids == [invocation(number)[:12] for number in range(30, 5, -1)]


# --- show ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("api")
def test_show_prints_the_report(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(crash(1))
    assert inquest("show", invocation(1)) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "The scheduler died of RuntimeError: tensor sizes differ\ndemo · python-exception, confirmed · died"
    )
    assert "\x1b" not in out


@pytest.mark.usefixtures("api")
def test_show_without_an_id_shows_the_newest(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(crash(1))
    store.save(crash(2))
    assert inquest("show", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["invocation_id"] == invocation(2)


@pytest.mark.usefixtures("api")
def test_show_takes_a_servers_name_for_its_newest_crash(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, unit in ((1, "sglang-b.service"), (2, "sglang-b.service"), (3, "sglang-demo.service")):
        store.save(crash(number, unit=unit))
    assert inquest("show", "b", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["invocation_id"] == invocation(2)


@pytest.mark.usefixtures("api")
def test_show_writes_the_evidence_to_a_file(
    store: Store, inquest: Inquest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(crash(1))
    bundle = tmp_path / "evidence.tar.zst"
    assert inquest("show", "--bundle", str(bundle)) == 0
    assert capsys.readouterr().out.startswith(f"wrote {bundle}, ")
    assert bundle.read_bytes().startswith(bytes.fromhex("28b52ffd"))  # zstd's magic number
    assert inquest("show", "--bundle", str(tmp_path / "no" / "folder")) == 1
    assert capsys.readouterr().err.startswith(f"inquest: {tmp_path}/no/folder: No such file or directory\n")


@pytest.mark.usefixtures("api")
def test_a_mistyped_id_is_told_with_what_comes_near(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(crash(1))
    assert inquest("show", "0000000x0001") == 1
    assert capsys.readouterr().err.splitlines() == [
        "inquest: no crash '0000000x0001' in the store, and no server of that name has one",
        "Nearest:",
        "  000000000001  2026-03-01 12:01:01 UTC  demo  python-exception",
    ]


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("crash_id", ["abcdef", "../servers", "a?b", "a b", "x/timeline", ""])
def test_show_of_what_is_not_there(inquest: Inquest, capsys: pytest.CaptureFixture[str], crash_id: str) -> None:
    assert inquest("show", crash_id) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("inquest: no crash ")


@pytest.mark.usefixtures("api")
def test_show_when_nothing_ever_crashed(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("show") == 1
    assert capsys.readouterr().err == "inquest: there is no crash to show\n"


@pytest.mark.usefixtures("api")
def test_an_ambiguous_id_is_said_with_what_to_do(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(crash(1))
    store.save(crash(2))
    assert inquest("show", "0000") == 1
    assert capsys.readouterr().err == ("inquest: several crashes begin with '0000'\nGive more digits of the id.\n")


# --- what the shell completes ---------------------------------------------------------------------------------


def completed(words: str, **environment: str) -> list[str]:
    """What bash is offered behind these words."""
    asked = {"_INQUEST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "forensics"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **asked, **environment},
    )
    return done.stdout.split()


@pytest.mark.usefixtures("api")
def test_names_causes_and_ids_are_completed(store: Store) -> None:
    store.save(crash(1))
    store.save(crash(2, unit="sglang-other.service"))
    assert completed("inquest cr") == ["crashes"]
    assert completed("inquest crashes --server ot") == ["other"]
    assert completed("inquest crashes --cause kernel-") == ["kernel-oom"]
    assert completed("inquest explain unk") == ["unknown"]
    assert completed("inquest show ") == ["000000000002", "000000000001"]
    assert completed("inquest drill --cause ha") == ["hang"]


def test_without_a_daemon_completion_is_silent() -> None:
    assert completed("inquest show 00", INQUEST_API="http://127.0.0.1:1") == []


def test_the_version_is_told_at_once() -> None:
    """No command is loaded for it."""
    code = (
        "import sys; sys.argv = ['inquest', '--version']; from forensics.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] in ('pydantic', 'rich', 'service', 'units')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"inquest \d+\.\d+\.\d+\S*\n\[\]\n", done.stdout)


# --- on a terminal -------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, columns: int = 100) -> str:
    """What `inquest` writes to a real terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen(
        [sys.executable, "-m", "forensics", *arguments], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    written = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not piece:
            break
        written += piece
    os.close(leader)
    assert process.wait() == 0
    return written.decode()


@pytest.mark.usefixtures("api")
def test_a_terminal_gets_colours_and_a_table(store: Store) -> None:
    store.save(crash(1, summary="[bold]not markup[/bold] \x1b[2J"))
    table = on_a_terminal("crashes")
    assert "\x1b[1mpython-exception, confirmed" in table
    assert "[bold]not markup[/bold]" in table
    wide = on_a_terminal("crashes", columns=160)
    assert "what happened" in wide
    assert "[bold]not" in wide
    report = on_a_terminal("show")
    assert "\x1b[" in report
    assert "\x1b[2J" not in table + wide + report


# --- what goes wrong -----------------------------------------------------------------------------------------


def test_a_daemon_that_does_not_run_is_said(
    inquest: Inquest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("INQUEST_API", f"http://127.0.0.1:{port}")
    assert inquest("crashes") == 1
    err = capsys.readouterr().err
    assert err.startswith(f"inquest: inquestd does not answer at http://127.0.0.1:{port}: ")
    assert "systemctl status inquestd" in err


def test_something_else_on_the_port_is_said(
    inquest: Inquest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("INQUEST_API", f"http://127.0.0.1:{other.getsockname()[1]}")
        assert inquest("crashes") == 1
        thread.join()
    assert "inquestd does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["crashes", "--since", "someday"], ["crashes", "--limit", "0"], ["crashes", "--sever", "x"], ["crash"]],
)
def test_wrong_usage_is_2(inquest: Inquest, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert inquest(*arguments) == 2
    assert capsys.readouterr().out == ""


def test_wrong_settings_are_2(
    inquest: Inquest, capsys: pytest.CaptureFixture[str], tmp_path: pytest.TempPathFactory
) -> None:
    path = os.path.join(str(tmp_path), "inquestd.toml")
    with open(path, "w") as file:
        file.write("[api]\nprot = 1\n")
    assert inquest("daemon", "--settings", path) == 2
    assert "api.prot: unknown key; did you mean `port`?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_help(inquest: Inquest, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert inquest(command, "--help") == 0
    assert "Usage: inquest" in capsys.readouterr().out


def test_the_daemons_start_loads_no_spec_and_no_unit_code() -> None:
    """Its memory is counted."""
    code = (
        "import sys; from forensics.cli import build; build('daemon');"
        "print(sorted(n for n in sys.modules if n.split('.')[0] in ('units', 'service', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- times ---------------------------------------------------------------------------------------------------

NOW = datetime(2026, 3, 5, 15, 30, 20, 7, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("2h", NOW - timedelta(hours=2)),
        ("-2h", NOW - timedelta(hours=2)),
        ("2 hours ago", NOW - timedelta(hours=2)),
        ("5 seconds", NOW - timedelta(seconds=5)),
        ("1h 30min", NOW - timedelta(minutes=90)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("90s", NOW - timedelta(seconds=90)),
        ("3 days", NOW - timedelta(days=3)),
        ("1 week ago", NOW - timedelta(days=7)),
        ("today", NOW.replace(hour=0, minute=0, second=0, microsecond=0)),
        ("Yesterday", NOW.replace(day=4, hour=0, minute=0, second=0, microsecond=0)),
        ("12:05", NOW.replace(hour=12, minute=5, second=0, microsecond=0)),
        ("7:05:09", NOW.replace(hour=7, minute=5, second=9, microsecond=0)),
        ("@1772366400", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01 12:00 UTC", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("Sun 2026-03-01 12:00:00 UTC", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01 12:00:00+02:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
    ],
)
def test_times_as_systemd_writes_them(text: str, expected: datetime) -> None:
    assert parse_since(text, NOW) == expected


@pytest.mark.parametrize("text", ["2026-03-01", "2026-03-01 12:30"])
def test_a_time_without_a_zone_is_local(text: str) -> None:
    assert parse_since(text, NOW) == datetime.fromisoformat(text).astimezone()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ago",
        "2",
        "2 fortnights",
        "h2",
        "tomorrow-ish",
        "2h and more",
        "2026-13-01",
        "25:00",
        "@",
        "@x",
        "@99999999999999",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: 2h"):
        parse_since(text, NOW)


def test_the_unix_socket_is_asked_first(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no token, which a terminal would not have."""
    store.save(crash(1))
    path = tmp_path / "api.sock"
    serving = serve(create_app(store, lambda: HEALTH, access=Access(token="x" * 20)), "127.0.0.1", 0, path)
    monkeypatch.delenv("INQUEST_API", raising=False)
    monkeypatch.setattr(client, "SOCKET", path)
    try:
        assert len(client.get("/crashes")["crashes"]) == 1
        monkeypatch.setenv("INQUEST_API", f"http://127.0.0.1:{serving.port}")
        with pytest.raises(InquestError) as error:
            client.get("/crashes")
        assert error.value.code == "token-needed"
    finally:
        serving.close()
