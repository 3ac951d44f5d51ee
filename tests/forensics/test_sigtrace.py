"""The signal tracer: the kernel's text, /proc, cgroup trees and floods. With the kernel itself: tests/e2e/vm."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forensics.sigtrace.__main__ as program
from forensics.errors import SettingsError
from forensics.settings import Settings
from forensics.sigtrace import INTERRUPTED, SIGNAL_SENT, WATCHING
from forensics.sigtrace.instance import NotTraceable, TraceInstance
from forensics.sigtrace.pipe import Executed, Item, Lost, PipeText, Signal
from forensics.sigtrace.process import Process, cgroup_path, look, process_of
from forensics.sigtrace.records import Fields, Target, signal_sent
from forensics.sigtrace.tracer import FLOOD_PER_SECOND, RECORDS_PER_SECOND, Tracer
from forensics.sigtrace.watched import Watched, unit_of

UNIT = "sglang-demo.service"


def line(sender: str = "bash", tid: int = 512, target: str = "python3", pid: int = 4321, number: int = 9) -> bytes:
    """As trace_pipe of Linux 6.1 prints it."""
    return (
        f"{sender:>16}-{tid:<7} [001] d..1.    74.051206: signal_generate: "
        f"sig={number} errno=0 code=0 comm={target} pid={pid} grp=1 res=0\n"
    ).encode()


def read(*chunks: bytes) -> list[Item]:
    text = PipeText()
    return [item for chunk in chunks for item in text.feed(chunk)]


# --- the pipe ---------------------------------------------------------------------------------------------------


def test_a_signal() -> None:
    assert read(line()) == [
        Signal(
            usec=74_051_206,
            signal=9,
            code=0,
            sender_tid=512,
            sender_comm="bash",
            target_tid=4321,
            target_comm="python3",
            to_thread=False,
        )
    ]


def test_lines_of_older_and_newer_kernels() -> None:
    rest = b" 12.000001: signal_generate: sig=15 errno=0 code=%d comm=a pid=5 grp=%d res=0\n"
    (first,) = read(b"            kill-77    [000] d..1 " + rest % (-6, 0))
    (second,) = read(b"            kill-77    [112]   " + rest % (128, 1))
    assert isinstance(first, Signal)
    assert isinstance(second, Signal)
    assert (first.code, first.to_thread, first.from_kernel) == (-6, True, False)
    assert (second.code, second.to_thread, second.from_kernel) == (128, False, True)


@pytest.mark.parametrize(
    "name", ["a b-c: d", "x-1 [000] 1.0: ", "systemd-1 [000]", "pid=1 grp=0 re", "-", "a\nb", "\n\n"]
)
def test_names_that_look_like_something_else(name: str) -> None:
    (by,) = read(line(sender=name))
    (to,) = read(line(target=name))
    assert isinstance(by, Signal)
    assert isinstance(to, Signal)
    assert (by.sender_tid, by.target_tid) == (512, 4321)
    assert (to.sender_tid, to.target_tid, to.sender_comm) == (512, 4321, "bash")
    assert to.target_comm == name.replace("\n", "\N{REPLACEMENT CHARACTER}")


def test_a_record_that_arrives_in_pieces() -> None:
    text = line()
    assert read(text[:40], text[40:90], text[90:]) == read(text)


def test_a_sender_whose_name_the_kernel_does_not_know() -> None:
    (found,) = read(line(sender="<...>"))
    assert isinstance(found, Signal)
    assert found.sender_comm == ""


def test_lost_records_are_told_and_the_next_one_is_read() -> None:
    assert read(b"CPU:1 [LOST 4711 EVENTS]\n" + line())[0] == Lost(count=4711)
    assert read(b"CPU:0 [LOST EVENTS]\n") == [Lost(count=None)]
    assert len(read(b"something else\n" + line())) == 1


def test_an_executed_program() -> None:
    text = (
        b"           <...>-77      [000] .....    12.000001: sched_process_exec: filename=/bin/kill pid=77 old_pid=77\n"
    )
    assert read(text) == [Executed(pid=77, filename="/bin/kill")]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_make_the_parser_raise(chunks: list[bytes]) -> None:
    read(*chunks)


@given(sender=st.binary(min_size=1, max_size=15), target=st.binary(max_size=15))
def test_no_name_hides_or_forges_a_signal(sender: bytes, target: bytes) -> None:
    before, after = b"%16s-512     [001] d..1.    74.051206: " % sender, b" pid=4321 grp=1 res=0\n"
    found = read(before + b"signal_generate: sig=9 errno=0 code=0 comm=" + target + after)
    assert [(s.sender_tid, s.target_tid, s.signal) for s in found if isinstance(s, Signal)] == [(512, 4321, 9)]


# --- /proc ------------------------------------------------------------------------------------------------------


def process(proc: Path, pid: int, **files: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    for name, text in files.items():
        (proc / str(pid) / name).write_text(text)


def test_a_sender_is_described(tmp_path: Path) -> None:
    process(
        tmp_path,
        512,
        cmdline="kill\0-9\x004321\0",
        status="Name:\tkill\nTgid:\t512\nPPid:\t400\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t512\n",
        cgroup="0::/user.slice/user-1000.slice/session-3.scope\n",
        loginuid="1000",
    )
    process(tmp_path, 400, cmdline="bash\0clean.sh\0")
    sender = look(512, str(tmp_path))
    assert (sender.cmdline, sender.comm, sender.uid, sender.login_uid) == ("kill -9 4321", "kill", 1000, 1000)
    assert (sender.parent_pid, sender.parent_cmdline) == (400, "bash clean.sh")
    assert unit_of(sender.cgroup) == "session-3.scope"
    assert sender.missing == ()


def test_of_a_sender_that_is_gone_everything_is_missing(tmp_path: Path) -> None:
    sender = look(512, str(tmp_path))
    assert sender.pid == 512
    assert sender.missing == ("command line", "user", "cgroup")


def test_a_container_is_told_by_the_inner_pids(tmp_path: Path) -> None:
    process(tmp_path, 512, status="Name:\tsh\nTgid:\t512\nNSpid:\t512\t7\n", loginuid="4294967295")
    sender = look(512, str(tmp_path))
    assert sender.inner_pids == (7,)
    assert sender.login_uid is None


def test_this_very_process() -> None:
    me = look(os.getpid())
    assert me.pid == os.getpid()
    assert me.uid == os.getuid()
    assert "python" in me.cmdline or "pytest" in me.cmdline


def test_the_process_of_a_thread(tmp_path: Path) -> None:
    process(tmp_path, 513, status="Name:\tpython3\nTgid:\t512\n")
    assert process_of(513, str(tmp_path)) == 512
    assert process_of(600, str(tmp_path)) == 600


def test_secrets_and_control_characters_of_a_command_line_are_removed(tmp_path: Path) -> None:
    process(tmp_path, 512, cmdline="curl\0-H\0Authorization: Bearer abcdefgh12345678\0\x1b[31m\0")
    sender = look(512, str(tmp_path))
    assert "abcdefgh12345678" not in sender.cmdline
    assert "\x1b" not in sender.cmdline


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/a.service\n", "/system.slice/a.service"),
        ("9:name=systemd:/system.slice/a.service\n8:pids:/\n0::/system.slice/a.service\n", "/system.slice/a.service"),
        ("9:name=systemd:/system.slice/a.service\n1:cpu:/\n", "/system.slice/a.service"),
        ("9:name=systemd:/\n0::/\n", "/"),
        ("", ""),
    ],
)
def test_systemds_cgroup_in_each_version(text: str, path: str) -> None:
    assert cgroup_path(text) == path


# --- which processes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("/sglang.slice/sglang-demo.service", UNIT),
        ("/sglang.slice/sglang-demo.service/worker", UNIT),
        ("/machine.slice/m.scope/payload/sglang.slice/sglang-demo.service", "m.scope"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/sglang-demo.service", "user@1000.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/", "-.slice"),
        ("", ""),
    ],
)
def test_the_unit_of_a_cgroup(cgroup: str, unit: str) -> None:
    assert unit_of(cgroup) == unit


@pytest.mark.parametrize("mount", ["", "systemd", "unified"])
def test_the_processes_of_watched_units_in_each_version(tmp_path: Path, mount: str) -> None:
    for path, pids in {
        "sglang.slice/sglang-demo.service": "4321\n4400\n",
        "sglang.slice/sglang-demo.service/worker": "4500\n",
        "system.slice/ssh.service": "300\n",
        "machine.slice/m.scope/payload/sglang.slice/sglang-demo.service": "9000\n",
    }.items():
        folder = tmp_path / "cgroup" / mount / path
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(pids)
    (tmp_path / f"invocation:{UNIT}").symlink_to("1c" * 16)
    watched = Watched(["sglang-*.service"], cgroups=tmp_path / "cgroup", proc=str(tmp_path), run=tmp_path)
    watched.refresh()
    assert watched.pids == {4321, 4400, 4500}
    assert watched.units == {UNIT}
    assert watched.invocation_id(UNIT) == "1c" * 16
    assert watched.unit(300) == ""


@pytest.mark.parametrize("file", ["cgroup.threads", "tasks"])
def test_threads_are_known_and_not_taken_for_processes(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "cgroup/sglang.slice/sglang-demo.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("4321\n")
    (folder / file).write_text("4321\n4322\n")
    watched = Watched(["sglang-*.service"], cgroups=tmp_path / "cgroup", proc=str(tmp_path), run=tmp_path)
    watched.refresh()
    assert watched.unit(4322) == UNIT
    assert watched.pids == {4321}


def test_a_process_younger_than_the_last_look_and_one_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "cgroup/sglang.slice/sglang-demo.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("4321\n")
    watched = Watched(["sglang-*.service"], cgroups=tmp_path / "cgroup", proc=str(tmp_path), run=tmp_path)
    watched.refresh()
    process(tmp_path, 4600, cgroup="0::/sglang.slice/sglang-demo.service\n")
    assert watched.unit(4600) == UNIT
    (folder / "cgroup.procs").write_text("")
    watched.refresh()
    assert watched.unit(4321) == UNIT, "killed a moment ago"
    watched.refresh()
    assert watched.unit(4321) == ""


# --- the loop ---------------------------------------------------------------------------------------------------


class Script:
    """In place of the kernel: gives what a test wants to have happened, and notes what the filter was set to."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.narrowed_to: frozenset[int] | None = None

    def read(self) -> Iterable[Item]:
        items, self.items = self.items, []
        return items

    def watch_all(self) -> None:
        self.narrowed_to = None

    def watch_only(self, pids: frozenset[int]) -> None:
        self.narrowed_to = pids


class Scene:
    """A tracer with a watched server of pid 4321."""

    def __init__(self, folder: Path) -> None:
        unit = folder / "cgroup/sglang.slice/sglang-demo.service"
        unit.mkdir(parents=True)
        (unit / "cgroup.procs").write_text("4321\n")
        (folder / f"invocation:{UNIT}").symlink_to("1c" * 16)
        watched = Watched(["sglang-*.service"], cgroups=folder / "cgroup", proc=str(folder), run=folder)
        self.now = 100.0
        self.kernel = Script()
        self.sent: list[Fields] = []
        self.tracer = Tracer(self.kernel, watched, self.sent.append, lambda: self.now)  # type: ignore[arg-type]
        self.step()

    def step(self, *items: Item, seconds: float = 0.0) -> None:
        self.now += seconds
        self.kernel.items += items
        self.tracer.step()

    def records(self, message_id: str) -> list[Fields]:
        return [fields for fields in self.sent if fields["MESSAGE_ID"] == message_id]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_run_is_announced_once_with_the_time_from_which_silence_counts(scene: Scene) -> None:
    scene.step(seconds=1.1)
    scene.step(seconds=1.1)
    (watching,) = scene.records(WATCHING)
    assert watching["INQUEST_TARGET_UNIT"] == UNIT
    assert watching["INQUEST_TARGET_INVOCATION_ID"] == "1c" * 16
    assert watching["INQUEST_SINCE_USEC"] == "100000000"


def test_a_signal_to_a_watched_process_is_recorded_and_no_other(scene: Scene) -> None:
    scene.step(*read(line(), line(pid=300)))
    (sent,) = scene.records(SIGNAL_SENT)
    assert sent["INQUEST_SIGNAL"] == "9"
    assert sent["INQUEST_SENDER_PID"] == "512"
    assert sent["INQUEST_TARGET_PID"] == "4321"
    assert sent["INQUEST_TARGET_UNIT"] == UNIT
    assert sent["INQUEST_MONOTONIC_USEC"] == "74051206"
    assert sent["OBJECT_SYSTEMD_UNIT"] == UNIT


def test_a_kill_program_is_remembered_from_when_it_was_executed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process(
        tmp_path, 512, cmdline="pkill\0python\0", status="Name:\tpkill\nUid:\t0\t0\t0\t0\n", cgroup="0::/x.service\n"
    )
    monkeypatch.setattr("forensics.sigtrace.tracer.look", lambda tid: look(tid, str(tmp_path)))
    scene.step(Executed(pid=512, filename="/usr/bin/pkill"))
    for file in (tmp_path / "512").iterdir():
        file.unlink()
    scene.step(*read(line(sender="pkill")))
    (sent,) = scene.records(SIGNAL_SENT)
    assert sent["INQUEST_SENDER_CMDLINE"] == "pkill python"
    assert sent["INQUEST_SENDER_UNIT"] == "x.service"
    assert sent["INQUEST_SENDER_MISSING"] == ""


def test_a_flood_on_the_machine_narrows_the_filter_and_calm_widens_it(scene: Scene) -> None:
    scene.step(*read(line(pid=300)) * (FLOOD_PER_SECOND + 50))
    assert scene.kernel.narrowed_to == {4321}
    (told,) = scene.records(INTERRUPTED)
    assert "only known processes" in told["INQUEST_REASON"]
    scene.step(*read(line()), seconds=1.1)
    assert len(scene.records(SIGNAL_SENT)) == 1, "the known process is still seen"
    scene.step(seconds=35.0)
    assert scene.kernel.narrowed_to is None


def test_a_flood_to_the_server_is_cut_and_told(scene: Scene) -> None:
    scene.step(*read(line()) * (RECORDS_PER_SECOND + 7))
    scene.step(seconds=1.1)
    assert len(scene.records(SIGNAL_SENT)) == RECORDS_PER_SECOND
    assert "7 signals" in scene.records(INTERRUPTED)[0]["INQUEST_REASON"]


def test_lost_records_and_the_end_are_told(scene: Scene) -> None:
    scene.step(Lost(count=12), Lost(count=30))
    scene.step(seconds=1.1)
    scene.tracer.stop()
    assert ["42 records" in told["MESSAGE"] for told in scene.records(INTERRUPTED)] == [True, False]


def test_records_that_the_kernel_lost_count_as_a_flood(scene: Scene) -> None:
    scene.step(Lost(count=FLOOD_PER_SECOND))
    assert scene.kernel.narrowed_to == {4321}


def test_a_message_for_people(tmp_path: Path) -> None:
    (sent,) = read(line(sender="kill"))
    assert isinstance(sent, Signal)
    process(tmp_path, 512, cmdline="kill\0-9\x004321\0", cgroup="0::/user.slice/user-1000.slice/session-3.scope\n")
    fields = signal_sent(sent, look(512, str(tmp_path)), "", Target(pid=4321, unit=UNIT, invocation_id="1c" * 16))
    assert fields["MESSAGE"] == (
        "SIGKILL to python3 [4321] of sglang-demo.service by kill [512]: `kill -9 4321`, session-3.scope"
    )
    assert fields["INQUEST_SENDER_SESSION"] == "session-3.scope"


def test_a_message_on_the_kernels_own_kill() -> None:
    (sent,) = read(line(sender="python3", tid=4321).replace(b"code=0", b"code=128"))
    assert isinstance(sent, Signal)
    target = Target(pid=4321, unit=UNIT, invocation_id="1c" * 16)
    fields = signal_sent(sent, Process(pid=4321, comm="python3"), UNIT, target)
    assert fields["INQUEST_FROM_KERNEL"] == "1"
    assert fields["MESSAGE"].startswith(
        "SIGKILL to python3 [4321] of sglang-demo.service by the kernel, in python3 [4321]"
    )


def test_where_tracefs_is_missing_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotTraceable, match="tracefs is not mounted"), TraceInstance(tmp_path):
        pass


# --- the program ------------------------------------------------------------------------------------------------


def test_the_units_come_from_the_settings_and_what_read_them_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[list[str]] = []
    monkeypatch.setattr("forensics.settings.load", lambda: Settings(units=("sglang-*.service", "vllm@*.service")))
    monkeypatch.setattr(os, "execv", lambda path, argv: executed.append(argv))
    program.main([])
    assert executed == [[sys.executable, "-m", "forensics.sigtrace", "sglang-*.service", "vllm@*.service"]]


def test_wrong_settings_are_told_and_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> Settings:
        raise SettingsError("settings-invalid", "inquestd.toml: units: not a list", "Correct it.")

    monkeypatch.setattr("forensics.settings.load", wrong)
    assert program.main([]) == 2
    assert "inquestd.toml: units: not a list" in capsys.readouterr().err


def test_it_loads_nothing_of_the_daemon() -> None:
    code = "import sys, forensics.sigtrace.__main__; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"pydantic", "forensics.settings", "forensics.tracker", "forensics.rules"}.isdisjoint(loaded)
