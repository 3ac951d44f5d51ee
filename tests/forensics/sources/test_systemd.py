"""PID 1's records, by id and by wording, and who is believed to be PID 1."""

import dataclasses
from typing import Any

import pytest
from systemd import id128

from forensics.entry import Entry
from forensics.events import (
    ClientKill,
    Event,
    HostShutdown,
    LeftOverProcess,
    ProcessExit,
    RestartScheduled,
    ServiceWatchdogTimeout,
    SpawnFailed,
    StartFailed,
    StartLimitHit,
    StateTimedOut,
    StopRequested,
    SystemdKill,
    UnitOomKill,
    UnitResult,
    UnitStarted,
    UnitStarting,
    UnitStopped,
    Unkillable,
    UserspaceOomKill,
)
from forensics.sources import systemd
from tests.forensics.sources.entries import UNIT, entry, from_pid1, from_server

U = f"{UNIT}: "


def facts(event: Event | None) -> tuple[type[Event], dict[str, Any]]:
    assert event is not None
    named = {field.name: getattr(event, field.name) for field in dataclasses.fields(event) if field.name != "record"}
    return type(event), named


def by_id(message: str, message_id: str, **fields: str) -> Entry:
    return from_pid1(message, MESSAGE_ID=message_id, **fields)


BY_ID: list[tuple[Entry, type[Event], dict[str, Any]]] = [
    (by_id(f"Starting {UNIT} - SGLang...", systemd.UNIT_STARTING, JOB_TYPE="start"), UnitStarting, {}),
    (by_id(f"Started {UNIT} - SGLang.", systemd.UNIT_STARTED, JOB_TYPE="start", JOB_RESULT="done"), UnitStarted, {}),
    (
        by_id(
            f"{UNIT} - SGLang was skipped because of an unmet condition check (ConditionPathExists=/dev/nvidia7).",
            systemd.UNIT_STARTED,
            JOB_RESULT="done",
            INVOCATION_ID="",
        ),
        StartFailed,
        {"job_result": "skipped"},
    ),
    (
        by_id(f"Failed to start {UNIT} - SGLang.", systemd.UNIT_FAILED, JOB_RESULT="timeout"),
        StartFailed,
        {"job_result": "timeout"},
    ),
    (
        by_id(f"Stopping {UNIT} - SGLang...", systemd.UNIT_STOPPING, JOB_TYPE="stop"),
        StopRequested,
        {"job_type": "stop"},
    ),
    (
        by_id(f"Stopped {UNIT} - SGLang.", systemd.UNIT_STOPPED, JOB_TYPE="restart", JOB_RESULT="done"),
        UnitStopped,
        {"job_type": "restart", "job_result": "done"},
    ),
    (
        by_id(
            f"{U}Main process exited, code=killed, status=9/KILL",
            systemd.UNIT_PROCESS_EXIT,
            COMMAND="ExecStart",
            EXIT_CODE="killed",
            EXIT_STATUS="9",
        ),
        ProcessExit,
        {"process": "main", "command": "ExecStart", "exit_code": "killed", "exit_status": 9},
    ),
    (
        by_id(
            f"{U}Control process exited, code=exited, status=17/n/a",
            systemd.UNIT_PROCESS_EXIT,
            COMMAND="ExecStartPre",
            EXIT_CODE="exited",
            EXIT_STATUS="17",
        ),
        ProcessExit,
        {"process": "control", "command": "ExecStartPre", "exit_code": "exited", "exit_status": 17},
    ),
    (
        by_id(f"{U}Failed with result 'oom-kill'.", systemd.UNIT_FAILURE_RESULT, UNIT_RESULT="oom-kill"),
        UnitResult,
        {"unit_result": "oom-kill"},
    ),
    (by_id(f"{U}Deactivated successfully.", systemd.UNIT_SUCCESS), UnitResult, {"unit_result": "success"}),
    (
        by_id(f"{U}Skipped due to 'exec-condition'.", systemd.UNIT_SKIPPED, UNIT_RESULT="exec-condition"),
        UnitResult,
        {"unit_result": "exec-condition"},
    ),
    (
        by_id(f"{U}Scheduled restart job, restart counter is at 12.", systemd.UNIT_RESTART_SCHEDULED, N_RESTARTS="12"),
        RestartScheduled,
        {"n_restarts": 12},
    ),
    (
        by_id(f"{U}A process of this unit has been killed by the OOM killer.", systemd.UNIT_OUT_OF_MEMORY),
        UnitOomKill,
        {},
    ),
    (
        by_id(f"{U}systemd-oomd killed 4 process(es) in this unit.", systemd.UNIT_OOMD_KILL, N_PROCESSES="4"),
        UserspaceOomKill,
        {"tool": "systemd-oomd", "victim_pid": None, "comm": None, "cgroup": None, "unit": UNIT},
    ),
    (
        by_id("Reached target reboot.target - System Reboot.", systemd.UNIT_STARTED, UNIT="reboot.target"),
        HostShutdown,
        {},
    ),
]


@pytest.mark.parametrize(("given", "fact", "named"), BY_ID, ids=[row[0].message[:60] for row in BY_ID])
def test_records_with_an_id(given: Entry, fact: type[Event], named: dict[str, Any]) -> None:
    assert facts(systemd.parse(given)) == (fact, named)


# The words, each with the unit's name before it and without.
WORDINGS: list[tuple[str, type[Event], dict[str, Any]]] = [
    (
        "Killing process 5150 (sglang::detoken) with signal SIGKILL.",
        SystemdKill,
        {"target_pid": 5150, "comm": "sglang::detoken", "signal": "SIGKILL"},
    ),
    (
        "Killing process 5151 (a) with signal SIGKILL.) with signal SIGABRT.",
        SystemdKill,
        {"target_pid": 5151, "comm": "a) with signal SIGKILL.", "signal": "SIGABRT"},
    ),
    (
        "State 'stop-sigterm' timed out. Killing.",
        StateTimedOut,
        {"state": "stop-sigterm", "action": "Killing"},
    ),
    (
        "State 'stop-final-sigterm' timed out. Killing.",  # v245
        StateTimedOut,
        {"state": "final-sigterm", "action": "Killing"},
    ),
    (
        "State 'final-sigterm' timed out. Skipping SIGKILL. Entering failed mode.",
        StateTimedOut,
        {"state": "final-sigterm", "action": "Skipping SIGKILL"},
    ),
    (
        "State 'stop-watchdog' timed out. Killing.",
        StateTimedOut,
        {"state": "stop-watchdog", "action": "Killing"},
    ),
    ("start operation timed out. Terminating.", StateTimedOut, {"state": "start", "action": "Terminating"}),
    ("start-post operation timed out. Aborting.", StateTimedOut, {"state": "start-post", "action": "Aborting"}),
    ("Stopping timed out. Terminating.", StateTimedOut, {"state": "stop", "action": "Terminating"}),
    (
        "Service reached runtime time limit. Stopping.",
        StateTimedOut,
        {"state": "running", "action": "Stopping"},
    ),
    (
        "Sent signal SIGKILL to main process 5152 (python3) on client request.",
        ClientKill,
        {"signal": "SIGKILL", "target_pid": 5152, "comm": "python3"},
    ),
    (
        "Sending signal SIGTERM to process 5153 (sglang::schedul) on client request.",
        ClientKill,
        {"signal": "SIGTERM", "target_pid": 5153, "comm": "sglang::schedul"},
    ),
    ("Start request repeated too quickly.", StartLimitHit, {}),
    ("Watchdog timeout (limit 30s)!", ServiceWatchdogTimeout, {"limit": "30s"}),
    ("Watchdog request (last status: <unset>)!", ServiceWatchdogTimeout, {"limit": ""}),
    (
        "Found left-over process 5154 (sglang::schedul) in control group while starting unit. Ignoring.",
        LeftOverProcess,
        {"left_pid": 5154, "comm": "sglang::schedul"},
    ),
    (
        "Unit process 5155 (python3) remains running after unit stopped.",
        LeftOverProcess,
        {"left_pid": 5155, "comm": "python3"},
    ),
    ("Processes still around after SIGKILL. Ignoring.", Unkillable, {}),
    ("Processes still around after final SIGKILL. Entering failed mode.", Unkillable, {}),
]


@pytest.mark.parametrize("prefix", [U, ""], ids=["with unit", "without unit"])
@pytest.mark.parametrize(("message", "fact", "named"), WORDINGS, ids=[row[0][:50] for row in WORDINGS])
def test_records_without_an_id(prefix: str, message: str, fact: type[Event], named: dict[str, Any]) -> None:
    assert facts(systemd.parse(from_pid1(prefix + message))) == (fact, named)


def test_the_host_goes_down() -> None:
    assert facts(systemd.parse(from_pid1("Shutting down.", UNIT=""))) == (HostShutdown, {})
    logind = entry("The system will reboot now!", MESSAGE_ID=systemd.SHUTDOWN, _SYSTEMD_UNIT="systemd-logind.service")
    assert facts(systemd.parse(logind)) == (HostShutdown, {})
    assert systemd.parse(from_server("The system will reboot now!", MESSAGE_ID=systemd.SHUTDOWN)) is None


# Saved plain text has lost the ids.
LOST: list[tuple[str, type[Event], dict[str, Any]]] = [
    (
        f"{U}Main process exited, code=dumped, status=11/SEGV",
        ProcessExit,
        {"process": "main", "command": "", "exit_code": "dumped", "exit_status": 11},
    ),
    (f"{U}Failed with result 'core-dump'.", UnitResult, {"unit_result": "core-dump"}),
    (f"{U}Succeeded.", UnitResult, {"unit_result": "success"}),  # up to v247
    (f"{U}Deactivated successfully.", UnitResult, {"unit_result": "success"}),
    (f"{U}Scheduled restart job, restart counter is at 3.", RestartScheduled, {"n_restarts": 3}),
    (f"{U}A process of this unit has been killed by the OOM killer.", UnitOomKill, {}),
    ("Starting SGLang of the demo...", UnitStarting, {}),
    ("Started SGLang of the demo.", UnitStarted, {}),
    ("Failed to start SGLang of the demo.", StartFailed, {"job_result": "failed"}),
    ("Timed out starting SGLang of the demo.", StartFailed, {"job_result": "timeout"}),
    ("Dependency failed for SGLang of the demo.", StartFailed, {"job_result": "dependency"}),
    ("Stopping SGLang of the demo...", StopRequested, {"job_type": "stop"}),
    ("Stopped SGLang of the demo.", UnitStopped, {"job_type": "", "job_result": "done"}),
]


@pytest.mark.parametrize(("message", "fact", "named"), LOST, ids=[row[0][:50] for row in LOST])
def test_records_that_lost_their_id(message: str, fact: type[Event], named: dict[str, Any]) -> None:
    assert facts(systemd.parse(from_pid1(message))) == (fact, named)


@pytest.mark.parametrize("message", ["Reloading.", f"{U}Consumed 3.1s CPU time.", f"{U}Killing time.", ""])
def test_records_without_a_fact(message: str) -> None:
    assert systemd.parse(from_pid1(message)) is None


def forgeries() -> list[Entry]:
    """The same records, as a server could write them through the native socket or to its standard output."""
    believable = [given for given, _, _ in BY_ID] + [from_pid1(U + message) for message, _, _ in WORDINGS]
    sender = from_server("").fields
    return [entry(given.message, **{**given.fields, **sender, "MESSAGE": given.message}) for given in believable]


@pytest.mark.parametrize("forged", forgeries(), ids=lambda forged: forged.message[:50])
def test_a_server_is_not_pid_1(forged: Entry) -> None:
    assert forged.get("UNIT") == UNIT or forged.get("UNIT") == "reboot.target"
    assert systemd.parse(forged) is None


def forked_child(message: str, **fields: str) -> Entry:
    own = {"_TRANSPORT": "journal", "_PID": "5160", "_COMM": "(python3)", "_SYSTEMD_UNIT": UNIT, "UNIT": UNIT}
    return entry(message, **{**own, "MESSAGE_ID": systemd.SPAWN_FAILED, **fields})


def test_why_a_command_could_not_be_executed() -> None:
    gone, error = "/opt/gone/bin/python3", "No such file or directory"
    step = forked_child(f"{U}Failed at step EXEC spawning {gone}: {error}", EXECUTABLE=gone)
    assert facts(systemd.parse(step)) == (SpawnFailed, {"step": "EXEC", "executable": gone, "error": error})
    before = forked_child(f"{U}Failed to locate executable {gone}: {error}", EXECUTABLE=gone)
    assert facts(systemd.parse(before)) == (SpawnFailed, {"step": "", "executable": gone, "error": error})


def test_a_server_cannot_say_that_it_was_not_executed() -> None:
    assert systemd.parse(forked_child(f"{U}Failed at step EXEC spawning /x: y", _COMM="python3")) is None
    assert systemd.parse(forked_child(f"{U}Failed at step EXEC spawning /x: y", _TRANSPORT="stdout")) is None


def test_the_ids_are_systemd_s() -> None:
    ours = {
        "UNIT_STARTING": systemd.UNIT_STARTING,
        "UNIT_STARTED": systemd.UNIT_STARTED,
        "UNIT_FAILED": systemd.UNIT_FAILED,
        "UNIT_STOPPING": systemd.UNIT_STOPPING,
        "UNIT_STOPPED": systemd.UNIT_STOPPED,
        "UNIT_PROCESS_EXIT": systemd.UNIT_PROCESS_EXIT,
        "UNIT_FAILURE_RESULT": systemd.UNIT_FAILURE_RESULT,
        "UNIT_SUCCESS": systemd.UNIT_SUCCESS,
        "UNIT_SKIPPED": systemd.UNIT_SKIPPED,
        "UNIT_RESTART_SCHEDULED": systemd.UNIT_RESTART_SCHEDULED,
        "UNIT_OUT_OF_MEMORY": systemd.UNIT_OUT_OF_MEMORY,
        "UNIT_OOMD_KILL": systemd.UNIT_OOMD_KILL,
        "SPAWN_FAILED": systemd.SPAWN_FAILED,
        "SHUTDOWN": systemd.SHUTDOWN,
    }
    theirs = {name: getattr(id128, f"SD_MESSAGE_{name}").hex for name in ours if hasattr(id128, f"SD_MESSAGE_{name}")}
    assert theirs
    assert {name: ours[name] for name in theirs} == theirs
