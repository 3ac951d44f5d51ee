"""Journals saved as text, kernel logs, properties, and several files as one body of evidence."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard

from forensics.analyze import analyze
from forensics.errors import InputError
from tests.forensics.analyze.saved import (
    BATCH,
    INVOCATION,
    UNIT,
    Journal,
    child_died,
    exception,
    judged,
    line,
    only,
    oom,
    served,
    short,
    stopped,
    syslog,
    systemd,
    verdict,
    write,
)
from tests.forensics.sources.journals import write_journal

STARTED = systemd(0, f"Started {UNIT} - SGLang server maple.")
KILLED = [systemd(45, f"{UNIT}: Main process exited, code=killed, status=9/KILL")]
SIGNAL = systemd(45, f"{UNIT}: Failed with result 'signal'.")
OTHERS = [syslog(1, "sshd[88]", "Accepted publickey for ann"), syslog(2, "kernel", "usb 1-1: new device")]


def ended(result: str, *before: str) -> list[str]:
    return [STARTED, *short(served()), *before, *KILLED, systemd(45, f"{UNIT}: Failed with result '{result}'.")]


def test_a_stop_that_ran_out_of_time(tmp_path: Path) -> None:
    asked = systemd(30, f"Stopping {UNIT} - SGLang server maple...")
    late = systemd(45, f"{UNIT}: State 'stop-sigterm' timed out. Killing.")
    crash = only(judged(tmp_path, ended("timeout", asked, *short(stopped(30, 2)), late)))
    assert (crash["cause"], crash["strength"], crash["phase"]) == ("stop-timeout", "likely", "shutdown")
    assert crash["run"] == {
        "result": "timeout",
        "exit_code": "killed",
        "exit_status": 9,
        "signal": "SIGKILL",
        "core_dumped": False,
        "main_pid": 4711,
        "n_restarts": None,
    }


def test_a_unit_known_by_its_description_only(tmp_path: Path) -> None:
    """systemd before 249 does not name the unit in its job lines."""
    lines = [
        systemd(0, "Started Maple."),
        *short(served()),
        systemd(30, "Stopping Maple..."),
        systemd(45, f"{UNIT}: State 'stop-sigterm' timed out. Killing."),
        *KILLED,
        systemd(45, f"{UNIT}: Failed with result 'timeout'."),
        systemd(45, "Stopped Maple."),
    ]
    assert verdict(judged(tmp_path, lines)) == ("stop-timeout", "likely")


def test_who_else_could_have_killed_it_decides(tmp_path: Path) -> None:
    """Of the unit's own lines a kill stays unexplained; the whole journal leaves only somebody outside."""
    assert verdict(judged(tmp_path, ended("signal"))) == ("unexplained-kill", "likely")
    assert verdict(judged(tmp_path, [*OTHERS, *ended("signal"), syslog(90, "sshd[88]", "bye")])) == (
        "external-signal",
        "likely",
    )


def test_the_kernels_record_in_a_syslog_file(tmp_path: Path) -> None:
    kernel = [syslog(44, "kernel", f"[  944.104411] {text}") for text in oom(4711, "python3")]
    crash = only(judged(tmp_path, ended("signal", *kernel)))
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("kernel-oom", "likely", "memcg-main")
    assert [piece["ref"].rpartition(":")[2].isdecimal() for piece in crash["evidence"]]


def test_a_server_that_quotes_a_header_is_not_the_sender_of_it(tmp_path: Path) -> None:
    forged = [syslog(44, "python3[4711]", syslog(44, "kernel", text)) for text in oom(4711, "python3")]
    forged += [syslog(44, "python3[4711]", systemd(44, f"Stopping {UNIT}..."))]
    assert verdict(judged(tmp_path, ended("signal", *forged))) == ("unexplained-kill", "likely")


def test_another_systemd_does_not_speak_for_a_unit_of_pid_1(tmp_path: Path) -> None:
    forged = [
        syslog(44, "systemd[4711]", f"Stopping {UNIT} - SGLang server maple..."),
        syslog(44, "systemd[4711]", f"{UNIT}: State 'stop-sigterm' timed out. Killing."),
    ]
    assert verdict(judged(tmp_path, ended("signal", *forged))) == ("unexplained-kill", "likely")


def test_a_users_own_manager(tmp_path: Path) -> None:
    lines = [
        text.replace("systemd[1]", "systemd[1206]")
        for text in ended(
            "signal", systemd(45, f"{UNIT}: Sent signal SIGKILL to main process 4711 (python3) on client request.")
        )
    ]
    assert verdict(judged(tmp_path, lines)) == ("external-signal", "likely")


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    lines = [
        STARTED,
        syslog(0, "systemd[77]", f"{UNIT}: Failed to locate executable /opt/maple/python: Not found"),
        syslog(0, "systemd[77]", f"{UNIT}: Failed at step EXEC spawning /opt/maple/python: No such file or directory"),
        systemd(0, f"{UNIT}: Main process exited, code=exited, status=203/EXEC"),
        systemd(0, f"{UNIT}: Failed with result 'exit-code'."),
    ]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("exec-failure", "likely", "203-exec")


def test_a_boot_that_ends_without_a_shutdown(tmp_path: Path) -> None:
    lines = [
        STARTED,
        *short(served()),
        "-- Boot 5d0f2f8f5c0e4f6c9b1e2a7d8c9f0a1b --",
        syslog(300, "kernel", "Linux version 6.8.0"),
    ]
    assert verdict(judged(tmp_path, lines)) == ("host-reset", "likely")


def test_two_units_are_told_apart_and_one_can_be_asked_for(tmp_path: Path) -> None:
    other = [text.replace("maple", "birch").replace("4711", "5822") for text in ended("signal")]
    lines = sorted([*ended("signal"), *other], key=lambda text: text[:15])
    assert {crash["unit"] for crash in judged(tmp_path, lines).crashes} == {UNIT, "sglang-birch.service"}
    assert only(judged(tmp_path, lines, "sglang-birch"))["unit"] == "sglang-birch.service"
    assert judged(tmp_path, lines, "sglang-oak.service").crashes == []


def test_crashes_of_what_is_no_server_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    other = [
        systemd(10, "backup.service: Main process exited, code=exited, status=1/FAILURE"),
        systemd(10, "backup.service: Failed with result 'exit-code'."),
    ]
    found = judged(tmp_path, [*other, *ended("signal")])
    assert only(found)["unit"] == UNIT
    assert "backup.service" in found.notes[0]
    assert only(judged(tmp_path, [*other, *ended("signal")], "backup"))["cause"] == "silent-exit"


# --- journals with their fields --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "pretty", "export", "verbose"])
def test_a_journal_with_its_fields_can_confirm(form: str, tmp_path: Path) -> None:
    journal = Journal().started()
    for text in oom(4711, "python3"):
        journal.kernel(44, text)
    journal.exited(45)
    path = tmp_path / "journal"
    path.write_bytes(getattr(journal, form)())
    crash = only(analyze([str(path)]))
    assert (crash["cause"], crash["strength"]) == ("kernel-oom", "confirmed")
    assert (crash["invocation_id"], crash["unit"]) == (INVOCATION, UNIT)


def test_forged_words_in_a_journal_with_its_fields(tmp_path: Path) -> None:
    journal = Journal().started()
    for text in (*oom(4711, "python3"), f"{UNIT}: State 'stop-sigterm' timed out. Killing."):
        journal.server(44, text)
        journal.add(
            44,
            text,
            _TRANSPORT="journal",
            _PID="4711",
            SYSLOG_IDENTIFIER="systemd",
            UNIT=UNIT,
            INVOCATION_ID=INVOCATION,
            _SYSTEMD_UNIT=UNIT,
            _SYSTEMD_INVOCATION_ID=INVOCATION,
        )
    journal.exited(45)
    path = tmp_path / "journal.json"
    path.write_bytes(journal.json())
    assert verdict(analyze([str(path)])) == ("unexplained-kill", "likely")


def test_a_journal_of_the_unit_alone_and_the_kernels_log_beside_it(tmp_path: Path) -> None:
    """The kernel's clock is set by the journal's; what rests on text is likely."""
    journal = Journal().started().exited(45)
    (tmp_path / "journal.json").write_bytes(journal.json())
    records = [f"4,{number},{944_000_000 + number},-;{text}" for number, text in enumerate(oom(4711, "python3"))]
    write(tmp_path, records, "kmsg.txt")
    crash = only(analyze([str(tmp_path)]))
    assert (crash["cause"], crash["strength"]) == ("kernel-oom", "likely")
    assert crash["invocation_id"] == INVOCATION


def test_another_units_kill_in_the_same_second(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_bytes(Journal().started().exited(45).json())
    records = [
        f"4,{number},{944_000_000 + number},-;{text}"
        for number, text in enumerate(oom(99, "etl", "/system.slice/etl.service"))
    ]
    write(tmp_path, [*records, f"6,9,{990_000_000},-;usb 1-1: gone"], "kmsg.txt")
    assert only(analyze([str(tmp_path)]))["cause"] == "external-signal"


# --- a server's log and others ---------------------------------------------------------------------------------


def test_a_servers_log_and_the_kernels_with_one_clock(tmp_path: Path) -> None:
    server = write(tmp_path, [*served(), *child_died(40, -9)], "server.log")
    kernel = write(tmp_path, [f"[Sun May 17 08:00:39 2026] {text}" for text in oom()], "dmesg.txt")
    crash = only(analyze([server, kernel]))
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("kernel-oom", "likely", "memcg-child")
    assert verdict(analyze([server])) == ("unexplained-kill", "likely")


def test_a_servers_log_and_a_kernels_that_counts_from_boot(tmp_path: Path) -> None:
    server = write(tmp_path, [*served(), *child_died(40, -9)], "server.log")
    kernel = write(tmp_path, [f"[  939.104411] {text}" for text in oom(4755, "python3")], "dmesg.txt")
    crash = only(analyze([server, kernel]))
    assert crash["cause"] == "kernel-oom"
    assert any(gap["source"] == "clock" for gap in crash["gaps"])
    foreign = write(
        tmp_path, [f"[  939.104411] {text}" for text in oom(99, "etl", "/system.slice/etl.service")], "dmesg.txt"
    )
    assert only(analyze([server, foreign]))["cause"] == "unexplained-kill"


def test_a_servers_log_in_a_file_and_systemds_records_of_it(tmp_path: Path) -> None:
    server = write(tmp_path, served(), "server.log")
    manager = write(tmp_path, [STARTED, *KILLED, SIGNAL], "journal.txt")
    crash = only(analyze([server, manager]))
    assert (crash["cause"], crash["unit"], crash["became_ready"]) == ("unexplained-kill", UNIT, True)
    assert crash["doing"]["figures"]["running-req"] == "2"


def show(**changes: str) -> list[str]:
    properties = {
        "Id": UNIT,
        "Description": "SGLang server maple",
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "signal",
        "ExecMainPID": "4711",
        "ExecMainCode": "2",
        "ExecMainStatus": "9",
        "NRestarts": "3",
        "InvocationID": INVOCATION,
        "ExecMainStartTimestamp": "Sun 2026-05-17 08:00:00 UTC",
        "ExecMainExitTimestamp": "Sun 2026-05-17 08:00:45 UTC",
        "ActiveEnterTimestamp": "Sun 2026-05-17 08:00:15 UTC",
        "TimeoutStopUSec": "1min 30s",
        "MemoryMax": "infinity",
    }
    return [f"{name}={value}" for name, value in (properties | changes).items()]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "unexplained-kill"),
        ({"Result": "oom-kill"}, "kernel-oom"),
        ({"Result": "timeout"}, "stop-timeout"),
        ({"Result": "watchdog", "ExecMainCode": "3", "ExecMainStatus": "6"}, "hang"),
        ({"Result": "core-dump", "ExecMainCode": "3", "ExecMainStatus": "11"}, "native-crash"),
        ({"Result": "exit-code", "ExecMainCode": "1", "ExecMainStatus": "4"}, "silent-exit"),
        (
            {
                "Result": "exit-code",
                "ExecMainCode": "1",
                "ExecMainStatus": "203",
                "ExecMainStartTimestamp": "Sun 2026-05-17 08:00:45 UTC",
            },
            "exec-failure",
        ),
    ],
)
def test_properties_stand_in_for_a_journal_that_is_gone(changes: dict[str, str], cause: str, tmp_path: Path) -> None:
    crash = only(judged(tmp_path, show(**changes)))
    assert (crash["cause"], crash["strength"], crash["invocation_id"]) == (cause, "likely", INVOCATION)
    assert crash["run"]["n_restarts"] == 3
    assert crash["died_at"] == "2026-05-17T08:00:45.000000Z"


def test_properties_of_a_unit_that_lives(tmp_path: Path) -> None:
    living = show(ActiveState="active", SubState="running", Result="success", ExecMainCode="0", ExecMainStatus="0")
    assert judged(tmp_path, living).crashes == []


def test_properties_complete_a_servers_log(tmp_path: Path) -> None:
    server = write(tmp_path, served(), "server.log")
    saved = write(tmp_path, show(Result="exit-code", ExecMainCode="1", ExecMainStatus="1"), "show.txt")
    crash = only(analyze([server, saved]))
    assert (crash["cause"], crash["unit"], crash["became_ready"]) == ("silent-exit", UNIT, True)


def test_a_status_with_its_last_lines(tmp_path: Path) -> None:
    lines = [
        f"× {UNIT} - SGLang server maple",
        f"     Loaded: loaded (/etc/systemd/system/{UNIT}; enabled)",
        "     Active: failed (Result: timeout) since Sun 2026-05-17 08:00:45 UTC; 3min ago",
        "   Main PID: 4711 (code=killed, signal=KILL)",
        "        CPU: 3min 2s",
        "",
        systemd(30, f"Stopping {UNIT} - SGLang server maple..."),
        systemd(45, f"{UNIT}: State 'stop-sigterm' timed out. Killing."),
        *KILLED,
        systemd(45, f"{UNIT}: Failed with result 'timeout'."),
    ]
    assert verdict(judged(tmp_path, lines)) == ("stop-timeout", "likely")
    assert only(judged(tmp_path, lines[:6]))["run"]["signal"] == "SIGKILL"


# --- the kernel alone ------------------------------------------------------------------------------------------


def test_the_kernels_log_alone(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [f"[  939.104411] {text}" for text in oom()]))
    assert (crash["cause"], crash["strength"], crash["unit"]) == ("kernel-oom", "likely", UNIT)
    assert (crash["phase"], crash["died_at"], crash["subclass"]) == (None, None, "memcg")
    crash = only(judged(tmp_path, [f"[  939.104411] {text}" for text in oom(77, "python", "/user.slice")]))
    assert (crash["unit"], crash["server"]) == (None, "python")


def test_only_systemds_lines_do_not_say_that_the_server_was_silent(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [STARTED, *KILLED, SIGNAL]))
    assert (crash["cause"], crash["phase"]) == ("unexplained-kill", None)
    assert "had not logged" not in crash["summary"]


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "gpu-fault"),
        (
            "NVRM: Xid (PCI:0000:41:00): 119, pid=77, name=python3, Timeout after 45s of waiting for RPC response",
            "gpu-fault",
        ),
        ("NVRM: Xid (PCI:0000:41:00): 31, pid=77, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS", "cuda-error"),
        ("NVRM: Xid (PCI:0000:41:00): 43, pid=77, name=python3, Ch 00000008", None),
        (
            "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x",
            "unknown",
        ),
    ],
)
def test_the_drivers_records_alone(record: str, cause: str | None, tmp_path: Path) -> None:
    for text in (record, f"[ 4021.100200] {record}", syslog(40, "kernel", record)):
        found = judged(tmp_path, [text])
        assert [crash["cause"] for crash in found.crashes] == ([cause] if cause else [])


def test_a_message_of_the_driver_over_several_lines(tmp_path: Path) -> None:
    lines = [
        "[ 4021.100200] NVRM: The NVIDIA GPU 0000:41:00.0",
        "               NVRM: (PCI ID: 10de:2330) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "[ 4021.2] NVRM: The probe failed.",
    ]
    assert verdict(judged(tmp_path, lines)) == ("gpu-fault", "likely")


def test_dmesg_as_json(tmp_path: Path) -> None:
    members = "},{".join(f'\n "pri": 4,\n "time": {939 + n}.25,\n "msg": "{text}"\n' for n, text in enumerate(oom()))
    path = tmp_path / "dmesg.json"
    path.write_text('{\n   "dmesg": [\n      {' + members + "}\n   ]\n}\n")
    assert verdict(analyze([str(path)])) == ("kernel-oom", "likely")


def test_a_journal_of_the_kernel_in_another_language(tmp_path: Path) -> None:
    lines = [f"5月 17 08:00:39 maple kernel: {text}" for text in oom()]
    crash = only(judged(tmp_path, lines))
    assert crash["cause"] == "kernel-oom"
    assert crash["died_at"][4:19] == "-05-17T08:00:39"


def test_what_a_long_log_leaves_in_memory_is_bounded(tmp_path: Path) -> None:
    begin = datetime(2026, 5, 17, 8, 1, tzinfo=UTC)
    path = tmp_path / "long.log"
    with path.open("w") as file:
        file.write("\n".join(served()) + "\n")
        for number in range(20_000):
            moment = begin + timedelta(seconds=number // 10)
            file.write(f"[{moment:%Y-%m-%d %H:%M:%S} TP0] {BATCH}\n")
            if number % 100 == 0:
                file.write(f"[{moment:%Y-%m-%d %H:%M:%S}] something that nobody knows, number {number}\n")
        file.write("\n".join(text.replace(" 08:00:", " 08:59:") for text in child_died(40, -9)) + "\n")
    crash = only(analyze([str(path)]))
    assert crash["cause"] == "unexplained-kill"
    assert crash["doing"]["figures"]["queue-req"] == "1"


def test_a_line_of_another_day_does_not_turn_the_clock_back(tmp_path: Path) -> None:
    lines = [*served(), line(5, "a child with a slow clock"), *child_died(40, -9)]
    assert only(judged(tmp_path, lines))["died_at"].startswith("2026-05-17T08:00:45")


def fields(journal: Journal) -> list[tuple[int, dict[str, str]]]:
    kept = []
    for entry in journal.entries:
        own = {name: value for name, value in entry.items() if not name.startswith("__") and name != "_BOOT_ID"}
        kept.append((int(entry["__MONOTONIC_TIMESTAMP"]), own))
    return kept


def test_a_binary_journal_whatever_it_is_called(tmp_path: Path) -> None:
    journal = Journal().started()
    for text in oom(4711, "python3"):
        journal.kernel(44, text)
    made = tmp_path / "made" / "x.journal"
    write_journal(made, fields(journal.exited(45)))
    copied = tmp_path / "copied.bin"
    copied.write_bytes(zstandard.ZstdCompressor().compress(made.read_bytes()))
    for path in (made, copied):
        crash = only(analyze([str(path)]))
        assert (crash["cause"], crash["strength"], crash["unit"]) == ("kernel-oom", "confirmed", UNIT)


def test_a_binary_journal_that_was_cut_short(tmp_path: Path) -> None:
    made = tmp_path / "made" / "x.journal"
    write_journal(made, fields(Journal().started().exited(45)))
    for share in (0.1, 0.3, 0.6):
        whole = made.read_bytes()
        cut = tmp_path / "cut.bin"
        cut.write_bytes(whole[: int(len(whole) * share)])
        try:
            found = analyze([str(cut)])
        except InputError:
            continue
        assert found.crashes or found.reason


def test_a_servers_log_that_ends_healthy_and_the_kernels_kill(tmp_path: Path) -> None:
    server = write(tmp_path, served(), "server.log")
    for clock in ("[Sun May 17 08:00:35 2026] ", "[Sun May 17 08:20:35 2026] ", "[  939.104411] "):
        kernel = write(tmp_path, [f"{clock}{text}" for text in oom(4711, "python3")], "dmesg.txt")
        crash = only(analyze([server, kernel]))
        assert (crash["cause"], crash["strength"], crash["subclass"]) == ("kernel-oom", "likely", "memcg-main")
    foreign = [f"[Sun May 17 08:00:35 2026] {text}" for text in oom(99, "etl", "/system.slice/etl.service")]
    assert analyze([server, write(tmp_path, foreign, "dmesg.txt")]).crashes == []
    hours_later = [f"[Sun May 17 14:00:35 2026] {text}" for text in oom(4711, "python3")]
    assert analyze([server, write(tmp_path, hours_later, "dmesg.txt")]).crashes == []


def test_a_container_whose_program_the_kernel_killed_in_that_moment(tmp_path: Path) -> None:
    server = write(tmp_path, [*served(), "sglang-1 exited with code 137"], "server.log")
    scope = "/system.slice/docker-5f0a.scope"
    kernel = write(tmp_path, [f"[Sun May 17 08:00:29 2026] {text}" for text in oom(77, "python3", scope)], "dmesg.txt")
    assert verdict(analyze([server, kernel])) == ("kernel-oom", "likely")
    long_before = write(
        tmp_path, [f"[Sun May 17 07:00:29 2026] {text}" for text in oom(77, "python3", scope)], "dmesg.txt"
    )
    assert verdict(analyze([server, long_before])) == ("unexplained-kill", "likely")


def test_a_gpu_that_failed_beside_a_server_that_was_stopped(tmp_path: Path) -> None:
    server = write(tmp_path, [*served(), *stopped(40)], "server.log")
    kernel = write(
        tmp_path, ["[Sun May 17 08:00:30 2026] NVRM: Xid (PCI:0000:41:00): 95, Uncontained ECC error."], "dmesg.txt"
    )
    assert analyze([server, kernel]).crashes == []


def test_one_writer_for_all_processes(tmp_path: Path) -> None:
    """Behind a pipe or a container runtime every line has the same pid, main's own lines and the scheduler's."""
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    lines = [STARTED, *short([*served(), *exception(40, error)]), *KILLED, SIGNAL]
    assert verdict(judged(tmp_path, lines)) == ("cuda-error", "likely")
    journal = Journal().started()
    for text in exception(40, error):
        journal.server(40, text)
    path = tmp_path / "journal.json"
    path.write_bytes(journal.exited(45).json())
    assert verdict(analyze([str(path)])) == ("cuda-error", "likely")


def test_a_prompt_that_main_logs_is_not_the_schedulers_word(tmp_path: Path) -> None:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    journal = Journal().started()
    journal.server(32, line(32, BATCH, " TP0"), pid=4755, comm="sglang::schedul")
    for text in exception(40, error)[:-2]:
        journal.server(40, text)
    path = tmp_path / "journal.json"
    path.write_bytes(journal.exited(45).json())
    assert verdict(analyze([str(path)])) == ("unexplained-kill", "likely")


def test_the_same_records_in_a_journal_and_as_text_beside_it(tmp_path: Path) -> None:
    """A copy as text takes nothing from what the journal's fields prove, and is no second death."""
    journal = Journal().started()
    for text in oom(4711, "python3"):
        journal.kernel(44.2, text)
    (tmp_path / "journal.json").write_bytes(journal.exited(45).json())
    records = [f"4,{number},{944_000_000 + number},-;{text}" for number, text in enumerate(oom(4711, "python3"))]
    write(tmp_path, records, "kmsg.txt")
    begin = int(journal.entries[0]["__REALTIME_TIMESTAMP"]) / 1e6
    moment = datetime.fromtimestamp(begin + 44, UTC)
    write(tmp_path, [*served()[:6], f"[{moment:%Y-%m-%d %H:%M:%S}] a last word", "Killed"], "server.log")
    crash = only(analyze([str(tmp_path)]))
    assert (crash["cause"], crash["strength"], crash["invocation_id"]) == ("kernel-oom", "confirmed", INVOCATION)
