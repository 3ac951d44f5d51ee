"""PID 1's records about units: starts, stops, exits, timeouts, the signals that it sent, and results.

What has a MESSAGE_ID is known by it (`sd-messages.h`; the ids never change), the rest by its wording, which is that
of systemd 245 to 258. Texts of PID 1 are in the C locale. A record without MESSAGE_ID, such as a line of saved plain
text, is known by its wording throughout.
"""

import re
from collections.abc import Callable, Mapping

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

SOURCE = "systemd"

UNIT_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
UNIT_STARTED = "39f53479d3a045ac8e11786248231fbf"
UNIT_FAILED = "be02cf6855d2428ba40df7e9d022f03d"
UNIT_STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
UNIT_STOPPED = "9d1aaa27d60140bd96365438aad20286"
UNIT_PROCESS_EXIT = "98e322203f7a4ed290d09fe03c09fe15"
UNIT_FAILURE_RESULT = "d9b373ed55a64feb8242e02dbe79a49c"
UNIT_SUCCESS = "7ad2d189f7e94e70a38c781354912448"
AT_REST = frozenset({UNIT_FAILURE_RESULT, UNIT_SUCCESS})
UNIT_SKIPPED = "0e4284a0caca4bfc81c0bb6786972673"
UNIT_RESTART_SCHEDULED = "5eb03494b6584870a536b337290809b3"
UNIT_OUT_OF_MEMORY = "fe6faa94e7774663a0da52717891d8ef"
UNIT_OOMD_KILL = "d989611b15e44c9dbf31e3c81256e4ed"
SPAWN_FAILED = "641257651c1b4ec9a8624d7a40a9e1e7"
# systemd-logind: "The system will reboot now!"
SHUTDOWN = "98268866d1d54a499c4e98921d93bc40"

SHUTDOWN_UNITS = frozenset({"shutdown.target", "reboot.target", "poweroff.target", "halt.target", "kexec.target"})

Groups = Mapping[str, str | None]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _starting(entry: Entry, at: Groups) -> Event:
    return UnitStarting(record=entry.record(SOURCE))


def _started(entry: Entry, at: Groups) -> Event:
    if entry.get("UNIT") in SHUTDOWN_UNITS:
        return HostShutdown(record=entry.record(SOURCE))
    if _SKIPPED.search(entry.message):
        # systemd gives this the id of a successful start, with JOB_RESULT=done.
        return StartFailed(record=entry.record(SOURCE), job_result="skipped")
    return UnitStarted(record=entry.record(SOURCE))


def _start_failed(entry: Entry, at: Groups) -> Event:
    result = entry.get("JOB_RESULT") or {"Timed out": "timeout", "Dependency": "dependency"}.get(
        at.get("how") or "", "failed"
    )
    return StartFailed(record=entry.record(SOURCE), job_result=result)


def _stopping(entry: Entry, at: Groups) -> Event:
    return StopRequested(record=entry.record(SOURCE), job_type=entry.get("JOB_TYPE") or "stop")


def _stopped(entry: Entry, at: Groups) -> Event:
    return UnitStopped(
        record=entry.record(SOURCE),
        job_type=entry.get("JOB_TYPE"),
        job_result=entry.get("JOB_RESULT") or ("timeout" if at.get("how") else "done"),
    )


def _process_exit(entry: Entry, at: Groups) -> Event | None:
    said = _EXITED.match(entry.message)
    code = entry.get("EXIT_CODE") or (said and said["code"]) or ""
    status = entry.get_int("EXIT_STATUS")
    if status is None and said:
        status = _number(said["status"])
    if status is None or not code:
        return None
    return ProcessExit(
        record=entry.record(SOURCE),
        process=said["process"].lower() if said else "",
        command=entry.get("COMMAND"),
        exit_code=code,
        exit_status=status,
    )


def _failure_result(entry: Entry, at: Groups) -> Event:
    return UnitResult(record=entry.record(SOURCE), unit_result=entry.get("UNIT_RESULT") or at.get("result") or "")


def _success(entry: Entry, at: Groups) -> Event:
    return UnitResult(record=entry.record(SOURCE), unit_result="success")


def _restart_scheduled(entry: Entry, at: Groups) -> Event:
    counted = _RESTART.match(entry.message)
    n_restarts = entry.get_int("N_RESTARTS")
    if n_restarts is None:
        n_restarts = int(counted["n"]) if counted else 0
    return RestartScheduled(record=entry.record(SOURCE), n_restarts=n_restarts)


def _oom_kill(entry: Entry, at: Groups) -> Event:
    return UnitOomKill(record=entry.record(SOURCE))


def _oomd_kill(entry: Entry, at: Groups) -> Event:
    return UserspaceOomKill(record=entry.record(SOURCE), tool="systemd-oomd", unit=entry.get("UNIT") or None)


def _state_timed_out(entry: Entry, at: Groups) -> Event:
    # v245 spells it 'stop-final-sigterm'.
    state = (at["state"] or "").removeprefix("stop-final-")
    state = f"final-{state}" if (at["state"] or "").startswith("stop-final-") else state
    return StateTimedOut(record=entry.record(SOURCE), state=state, action=at["action"] or "")


def _stopping_timed_out(entry: Entry, at: Groups) -> Event:
    return StateTimedOut(record=entry.record(SOURCE), state="stop", action=at["action"] or "")


def _runtime_limit(entry: Entry, at: Groups) -> Event:
    return StateTimedOut(record=entry.record(SOURCE), state="running", action=at["action"] or "")


def _systemd_kill(entry: Entry, at: Groups) -> Event:
    return SystemdKill(
        record=entry.record(SOURCE), target_pid=int(at["pid"] or 0), comm=at["comm"] or "", signal=at["signal"] or ""
    )


def _client_kill(entry: Entry, at: Groups) -> Event:
    return ClientKill(
        record=entry.record(SOURCE), signal=at["signal"] or "", target_pid=_number(at["pid"]), comm=at["comm"]
    )


def _start_limit(entry: Entry, at: Groups) -> Event:
    return StartLimitHit(record=entry.record(SOURCE))


def _watchdog(entry: Entry, at: Groups) -> Event:
    return ServiceWatchdogTimeout(record=entry.record(SOURCE), limit=at.get("limit") or "")


def _left_over(entry: Entry, at: Groups) -> Event:
    return LeftOverProcess(record=entry.record(SOURCE), left_pid=int(at["pid"] or 0), comm=at["comm"] or "")


def _unkillable(entry: Entry, at: Groups) -> Event:
    return Unkillable(record=entry.record(SOURCE))


def _host_shutdown(entry: Entry, at: Groups) -> Event:
    return HostShutdown(record=entry.record(SOURCE))


Fact = Callable[[Entry, Groups], Event | None]

BY_ID: dict[str, Fact] = {
    UNIT_STARTING: _starting,
    UNIT_STARTED: _started,
    UNIT_FAILED: _start_failed,
    UNIT_STOPPING: _stopping,
    UNIT_STOPPED: _stopped,
    UNIT_PROCESS_EXIT: _process_exit,
    UNIT_FAILURE_RESULT: _failure_result,
    UNIT_SUCCESS: _success,
    UNIT_SKIPPED: _failure_result,
    UNIT_RESTART_SCHEDULED: _restart_scheduled,
    UNIT_OUT_OF_MEMORY: _oom_kill,
    UNIT_OOMD_KILL: _oomd_kill,
}

# Most lines begin with the unit's name, and a unit's name has no space; saved text may have lost it.
_UNIT = r"(?:\S+: )?"
_SKIPPED = re.compile(r" was skipped because (?:of an unmet condition check|all trigger condition checks failed)")
_EXITED = re.compile(
    rf"{_UNIT}(?P<process>\w+) process exited, code=(?P<code>\w+),? status=(?P<status>\d{{1,9}})(?:/\S+)?"
)
_RESTART = re.compile(rf"{_UNIT}Scheduled restart job, restart counter is at (?P<n>\d{{1,9}})")
_ACTION = r"(?P<action>Terminating|Aborting|Killing|Skipping SIGKILL|Stopping)"

# Records without an id in any version.
WORDINGS: tuple[tuple[re.Pattern[str], Fact], ...] = (
    (
        re.compile(rf"{_UNIT}Killing process (?P<pid>\d{{1,10}}) \((?P<comm>.*)\) with signal (?P<signal>SIG\S+?)\.?"),
        _systemd_kill,
    ),
    (re.compile(rf"{_UNIT}State '(?P<state>[\w-]+)' timed out\. {_ACTION}\..*"), _state_timed_out),
    (re.compile(rf"{_UNIT}(?P<state>[\w-]+) operation timed out\. {_ACTION}\b.*", re.IGNORECASE), _state_timed_out),
    (re.compile(rf"{_UNIT}Stopping timed out\. {_ACTION}\..*"), _stopping_timed_out),
    (re.compile(rf"{_UNIT}\w+ reached runtime time limit\. {_ACTION}\..*"), _runtime_limit),
    (
        re.compile(
            rf"{_UNIT}(?:Sent|Sending) signal (?P<signal>SIG\S+)"
            r"(?: to (?:\w+ )?process (?P<pid>\d{1,10}) \((?P<comm>.*)\)| to .*)? on client request\.?"
        ),
        _client_kill,
    ),
    (re.compile(rf"{_UNIT}Start request repeated too quickly\.?"), _start_limit),
    (re.compile(rf"{_UNIT}Watchdog timeout \(limit (?P<limit>[^)]*)\)!.*"), _watchdog),
    (re.compile(rf"{_UNIT}Watchdog request \(last status: .*\)!"), _watchdog),
    (
        re.compile(rf"{_UNIT}Found left-over process (?P<pid>\d{{1,10}}) \((?P<comm>.*)\) in control group .*"),
        _left_over,
    ),
    (re.compile(rf"{_UNIT}Unit process (?P<pid>\d{{1,10}}) \((?P<comm>.*)\) remains running after .*"), _left_over),
    (re.compile(rf"{_UNIT}Processes still around after (?:final )?SIGKILL\..*"), _unkillable),
    (re.compile(r"Shutting down\.|Rebooting\.|Powering off\.|Halting system\."), _host_shutdown),
)

# Records that have an id in the journal: for texts that lost it.
LOST_ID_WORDINGS: tuple[tuple[re.Pattern[str], Fact], ...] = (
    (_EXITED, _process_exit),
    (re.compile(rf"{_UNIT}Failed with result '(?P<result>[\w-]+)'"), _failure_result),
    (re.compile(rf"{_UNIT}Skipped due to '(?P<result>[\w-]+)'"), _failure_result),
    (re.compile(rf"{_UNIT}(?:Deactivated successfully|Succeeded)\.?\s*\Z"), _success),
    (_RESTART, _restart_scheduled),
    (re.compile(rf"{_UNIT}A process of this unit has been killed by the OOM killer\."), _oom_kill),
    (re.compile(rf"{_UNIT}systemd-oomd killed (?:some|\d+) process\(es\) in this unit\."), _oomd_kill),
    (re.compile(r"(?P<how>Timed out|Failed to|Dependency) (?:start|starting|failed for) ."), _start_failed),
    (re.compile(r"Starting .*(?:\.\.\.|…)\Z"), _starting),
    (re.compile(r"(?:Started|Reached target) ."), _started),
    (re.compile(r"Stopping .*(?:\.\.\.|…)\Z"), _stopping),
    (re.compile(r"(?:Stopped|(?P<how>Timed out) stopping) ."), _stopped),
)

_LONGEST = 8192


def parse(entry: Entry) -> Event | None:
    """The fact in one record of PID 1, of a child that it forked and could not execute, or of logind's shutdown."""
    message_id = entry.get("MESSAGE_ID")
    if not entry.from_systemd:
        if message_id == SPAWN_FAILED:
            return _spawn_failed(entry)
        if message_id == SHUTDOWN and entry.get("_SYSTEMD_UNIT") == "systemd-logind.service":
            return HostShutdown(record=entry.record(SOURCE))
        return None
    if message_id in BY_ID:
        return BY_ID[message_id](entry, {})
    message = entry.message[:_LONGEST]
    for pattern, fact in WORDINGS:
        if found := pattern.fullmatch(message):
            return fact(entry, found.groupdict())
    if not message_id:
        for pattern, fact in LOST_ID_WORDINGS:
            if found := pattern.match(message):
                return fact(entry, found.groupdict())
    return None


_SPAWNING = re.compile(r"(?:\S+: )?Failed at step (?P<step>[A-Z_]+) spawning (?P<executable>.+?): (?P<error>[^:]*)\Z")
_PREPARING = re.compile(r"(?:\S+: )?(?P<what>.+?): (?P<error>[^:]*)\Z")


def _spawn_failed(entry: Entry) -> Event | None:
    """The forked child says why it could not execute the command. It runs in the unit's cgroup, perhaps already as
    the unit's user, so that this is a hint beside PID 1's `status=203/EXEC`, never evidence by itself."""
    if not entry.get("_COMM").startswith("(") or entry.get("_TRANSPORT") != "journal":
        return None
    message = entry.message[:_LONGEST]
    found = _SPAWNING.match(message)
    if found:
        return SpawnFailed(
            record=entry.record(SOURCE), step=found["step"], executable=found["executable"], error=found["error"]
        )
    said = _PREPARING.match(message)
    return SpawnFailed(
        record=entry.record(SOURCE),
        step="",
        executable=entry.get("EXECUTABLE") or None,
        error=said["error"] if said else message,
    )
