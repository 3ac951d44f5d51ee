"""`systemctl show` and `systemctl status` → what PID 1 said of a unit when they were saved."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from forensics.analyze import stamps
from forensics.analyze.lines import Line
from forensics.events import (
    Event,
    ProcessExit,
    Record,
    ServiceWatchdogTimeout,
    StateTimedOut,
    UnitOomKill,
    UnitResult,
    UnitState,
)
from forensics.sources.unit import launch_blocking

SOURCE = "unit"

_CODES = {"exited": 1, "killed": 2, "dumped": 3}
_NAMES = {1: "exited", 2: "killed", 3: "dumped"}
_SPANS = {"us": 1, "ms": 1_000, "s": 1_000_000, "sec": 1_000_000, "min": 60_000_000, "h": 3_600_000_000,
          "d": 86_400_000_000, "w": 604_800_000_000}  # fmt: skip
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(us|ms|sec|min|s|h|d|w)\b")
_HEAD = re.compile(r"\s*(?:[^\w\s] )?(?P<unit>[\w@.\\:-]+\.(?:service|scope))(?: - .*)?$")
_ACTIVE = re.compile(r"\s+Active: (?P<active>[\w-]+)(?: \((?P<inside>[^)]*)\))?(?: since (?P<since>[^;]+))?")
_MAIN = re.compile(r"\s+Main PID: (?P<pid>\d+)(?: \((?P<inside>[^)]*)\))?")
_INVOCATION = re.compile(r"\s+Invocation: (?P<id>[0-9a-f]{32})")
_UNLIMITED = 1 << 63


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One unit as it was saved. `invocation_id` is empty where the text does not say.

    `started_usec` and `exited_usec` are wall-clock, `offset_usec` is wall clock less monotonic clock of that boot;
    None where unknown.
    """

    unit: str
    invocation_id: str
    description: str
    state: UnitState
    started_usec: int | None
    exited_usec: int | None
    offset_usec: int | None
    control_exit: tuple[str, str, int] | None = None
    was_active: bool = False
    watchdog: str = ""

    @property
    def died(self) -> bool:
        """Whether this is a run that is over, and not well."""
        return self.over and (self.state.active_state == "failed" or self.state.result not in ("", "success"))

    @property
    def over(self) -> bool:
        """Whether the run that the properties speak of has ended; systemd may be about to start the next."""
        waits = "auto-restart" in self.state.sub_state
        return self.state.active_state in ("failed", "inactive") or waits

    def facts(self) -> Iterator[Event]:
        """The state, and what PID 1 would have logged of this end: for a journal that no longer has it."""
        yield self.state
        if not self.over:
            return
        state, record = self.state, self.state.record
        if state.result == "oom-kill":
            yield UnitOomKill(record=record)
        elif state.result == "watchdog":
            yield ServiceWatchdogTimeout(record=record, limit=self.watchdog or "WatchdogSec=")
        elif state.result == "timeout":
            # Of a unit that was up only its stop can take too long.
            yield StateTimedOut(record=record, state="stop-sigterm" if self.was_active else "start", action="Killing")
        code = _NAMES.get(state.exec_main_code or 0)
        if code is not None and state.exec_main_status is not None:
            yield ProcessExit(
                record=record, process="main", command="ExecStart", exit_code=code, exit_status=state.exec_main_status
            )
        elif self.control_exit is not None:
            yield ProcessExit(
                record=record,
                process="control",
                command=self.control_exit[0],
                exit_code=self.control_exit[1],
                exit_status=self.control_exit[2],
            )
        if state.result:
            yield UnitResult(record=record, unit_result=state.result)


def show(lines: Iterable[Line], name: str, reference: datetime) -> Iterator[Snapshot]:
    """`systemctl show UNIT…`: properties, a blank line between units."""
    block: dict[str, str] = {}
    first = 1
    for line in lines:
        text = line.text.strip()
        if not text:
            if block:
                yield _snapshot(block, f"{name}:{first}", reference)
            block, first = {}, line.number + 1
            continue
        key, equals, value = text.partition("=")
        if equals and re.fullmatch(r"[A-Z][A-Za-z0-9]{1,60}", key):
            block.setdefault(key, value)
    if block:
        yield _snapshot(block, f"{name}:{first}", reference)


def _snapshot(block: dict[str, str], ref: str, reference: datetime) -> Snapshot:
    started, exited = (_wall(block.get(f"ExecMain{what}Timestamp", ""), reference) for what in ("Start", "Exit"))
    exited = exited or _wall(block.get("StateChangeTimestamp", ""), reference)
    at = exited or started or 0
    message = " ".join(
        f"{key}={block[key]}"
        for key in (
            "Id",
            "ActiveState",
            "SubState",
            "Result",
            "ExecMainCode",
            "ExecMainStatus",
            "NRestarts",
            "InvocationID",
            "ExecMainExitTimestamp",
        )
        if block.get(key)
    )
    return Snapshot(
        unit=block.get("Id") or (block.get("Names", "").split() or [""])[0],
        invocation_id=_invocation(block.get("InvocationID", "")),
        description=block.get("Description", ""),
        state=UnitState(
            record=_record(ref, at, message),
            active_state=block.get("ActiveState", ""),
            sub_state=block.get("SubState", ""),
            result=block.get("Result", ""),
            exec_main_pid=_number(block.get("ExecMainPID")) or None,
            exec_main_code=_code(block.get("ExecMainCode", "")),
            exec_main_status=_status(block.get("ExecMainStatus", "")),
            n_restarts=_number(block.get("NRestarts")),
            control_group=block.get("ControlGroup", ""),
            timeout_stop_usec=span_usec(block.get("TimeoutStopUSec", "")),
            memory_max_bytes=_bytes(block.get("MemoryMax", "")),
            oom_policy=block.get("OOMPolicy") or None,
            restart=block.get("Restart") or None,
            restart_usec=span_usec(block.get("RestartUSec", "")),
            launch_blocking=launch_blocking(block.get("Environment", "").split()),
        ),
        started_usec=started,
        exited_usec=exited,
        offset_usec=_offset(block, reference),
        control_exit=_failed_step(block),
        was_active=bool(_wall(block.get("ActiveEnterTimestamp", ""), reference))
        and block.get("ActiveEnterTimestampMonotonic") != "0",
        watchdog=block.get("WatchdogUSec", ""),
    )


def _failed_step(block: dict[str, str]) -> tuple[str, str, int] | None:
    """`ExecStartPre={ path=… ; code=exited ; status=1 }` of a step that failed: its command, code and status."""
    for key in ("ExecCondition", "ExecStartPre", "ExecStartPost", "ExecStopPost"):
        found = re.search(r"code=(exited|killed|dumped) ; status=(\d{1,9})", block.get(key, ""))
        if found and found[2] != "0":
            return key, found[1], int(found[2])
    return None


def _offset(block: dict[str, str], reference: datetime) -> int | None:
    for key in ("ExecMainExitTimestamp", "ExecMainStartTimestamp", "StateChangeTimestamp", "InactiveExitTimestamp"):
        wall, mono = _wall(block.get(key, ""), reference), _number(block.get(f"{key}Monotonic"))
        if wall and mono:
            return wall - mono
    return None


def status(lines: Iterable[Line], name: str, reference: datetime) -> Iterator[Snapshot | Line]:
    """`systemctl status UNIT…`: a snapshot for each unit, and the journal's lines below it as they are."""
    unit, ref = "", ""
    active: re.Match[str] | None = None
    main: re.Match[str] | None = None
    invocation = ""
    in_log = False
    for line in lines:
        text = line.text.rstrip()
        head = _HEAD.match(text) if not text.startswith(" " * 4) else None
        if (head and not in_log) or (head and text[:1] not in " \t" and not head["unit"][0].isdigit()):
            if unit:
                yield _from_status(unit, ref, active, main, invocation, reference)
            unit, ref, active, main, invocation, in_log = head["unit"], f"{name}:{line.number}", None, None, "", False
        elif in_log:
            yield line
        elif not text and unit and active:
            in_log = True
        else:
            active = _ACTIVE.match(text) or active
            main = _MAIN.match(text) or main
            invocation = found["id"] if (found := _INVOCATION.match(text)) else invocation
    if unit:
        yield _from_status(unit, ref, active, main, invocation, reference)


def _from_status(
    unit: str, ref: str, active: re.Match[str] | None, main: re.Match[str] | None, invocation: str, reference: datetime
) -> Snapshot:
    inside = (active["inside"] or "") if active else ""
    result = re.search(r"Result: ([\w-]+)", inside)
    since = _wall(active["since"].strip(), reference) if active and active["since"] else None
    ended = dict(re.findall(r"(code|status|signal)=([\w/-]+)", main["inside"] or "")) if main else {}
    code = _CODES.get(ended.get("code", "").rstrip(","))
    state = active["active"] if active else ""
    number = _status(ended.get("status", "") or ended.get("signal", ""))
    text = " ".join(filter(None, (unit, active[0].strip() if active else "", main[0].strip() if main else "")))
    return Snapshot(
        unit=unit,
        invocation_id=invocation,
        description="",
        state=UnitState(
            record=_record(ref, since or 0, text),
            active_state=state,
            sub_state=inside,
            result=result[1] if result else ("success" if state == "inactive" else ""),
            exec_main_pid=int(main["pid"]) if main else None,
            exec_main_code=code,
            exec_main_status=number,
            n_restarts=None,
            control_group="",
            timeout_stop_usec=None,
            memory_max_bytes=None,
            oom_policy=None,
        ),
        started_usec=since if state == "active" else None,
        exited_usec=since if state != "active" else None,
        offset_usec=None,
        was_active=True,
    )


def _record(ref: str, usec: int, message: str) -> Record:
    return Record(source=SOURCE, ref=ref, boot_id="text-0", monotonic_usec=usec, realtime_usec=usec, message=message)


def _wall(text: str, reference: datetime) -> int | None:
    """`Thu 2026-11-19 09:12:45 UTC` as microseconds since the epoch."""
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:]) * 1_000_000
    found = stamps.parse(text.strip() + " ", reference)
    return found[0].realtime_usec if found else None


def _invocation(text: str) -> str:
    text = text.strip().replace("-", "").lower()
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and text.isascii() and len(text) < 20 else None


def _code(text: str) -> int | None:
    """`ExecMainCode=2`; older systemctl and busctl print the name."""
    return _number(text) if text.isdecimal() else _CODES.get(text)


def _status(text: str) -> int | None:
    """`9`, `9/KILL` or `KILL`."""
    import signal

    first, _, name = text.partition("/")
    if (number := _number(first)) is not None:
        return number
    named = getattr(signal, f"SIG{(name or first).removeprefix('SIG')}", None)
    return int(named) if isinstance(named, int) else None


def span_usec(text: str) -> int | None:
    """`1min 30s` in microseconds; None for infinity and for what is no span."""
    pieces = _SPAN.findall(text)
    return int(sum(float(number) * _SPANS[unit] for number, unit in pieces)) if pieces else None


def _bytes(text: str) -> int | None:
    number = _number(text)
    return number if number is not None and number < _UNLIMITED else None
