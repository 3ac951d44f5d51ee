"""exec-failure: systemd could not run the command, or a step around it failed, before the server did anything.

Signal:      PID 1's main exit with 200 to 243 (203/EXEC, 200/CHDIR, 217/USER …), a failed ExecStartPre=, a dependency.
Not this:    the program's own exit status of 200 or more after it had logged lines.
Followed by: Result=exit-code; the reason stands in the forked child's own line (a hint: it is not PID 1's).
Needs:       PID 1's records; the reason in words is a line of the forked child.
To do:       correct the path, user or folder that systemd names (`systemd-analyze verify` shows it). A step around the
             server that failed: run it by hand as the unit's user (`systemctl cat` shows it). A dependency: mend the
             unit that failed (`systemctl list-dependencies --failed`). A port that is held: `ss -ltnp` shows by whom.
             No resources: look at the host's limits of processes and memory.
"""

from forensics.causality import Ending
from forensics.events import (
    Batch,
    Event,
    LogStats,
    Milestone,
    PreflightRefused,
    ProcessExit,
    ServerArgs,
    SpawnFailed,
    StartFailed,
    UnitResult,
)
from forensics.model import Evidence, Finding, NotThis, Role, Strength

STATUS = {
    200: "CHDIR", 201: "NICE", 202: "FDS", 203: "EXEC", 204: "MEMORY", 205: "LIMITS", 206: "OOM_ADJUST",
    207: "SIGNAL_MASK", 208: "STDIN", 209: "STDOUT", 210: "CHROOT", 211: "IOPRIO", 212: "TIMERSLACK",
    213: "SECUREBITS", 214: "SETSCHEDULER", 215: "CPUAFFINITY", 216: "GROUP", 217: "USER", 218: "CAPABILITIES",
    219: "CGROUP", 220: "SETSID", 221: "CONFIRM", 222: "STDERR", 224: "PAM", 225: "NETWORK", 226: "NAMESPACE",
    227: "NO_NEW_PRIVILEGES", 228: "SECCOMP", 229: "SELINUX_CONTEXT", 230: "PERSONALITY", 231: "APPARMOR",
    232: "ADDRESS_FAMILIES", 233: "RUNTIME_DIRECTORY", 235: "CHOWN", 236: "SMACK_PROCESS_LABEL", 237: "KEYRING",
    238: "STATE_DIRECTORY", 239: "CACHE_DIRECTORY", 240: "LOGS_DIRECTORY", 241: "CONFIGURATION_DIRECTORY",
    242: "NUMA_POLICY", 243: "CREDENTIALS",
}  # fmt: skip
"""systemd's own exit statuses (systemd.exec(5))."""

_AT_ONCE_USEC = 10_000_000
"""What systemd cannot run has ended by then; a program that lived longer gave the status itself."""


def match(ending: Ending) -> Finding | NotThis | None:
    hint = ending.timeline.first(SpawnFailed)
    hints = (Evidence(role=Role.CONTEXT, event=hint, why="the forked child's own words"),) if hint else ()
    reason = "".join(f": {part}" for part in (hint.executable or hint.step, hint.error) if part) if hint else ""
    main, step = ending.main_exit, ending.start_step_failed
    if ending.run.result == "exec-condition":
        return None
    for exit_ in filter(None, (main, step)):
        if exit_.exit_code == "exited" and exit_.exit_status in STATUS and _of_systemd(ending, exit_):
            name = STATUS[exit_.exit_status]
            return _found(
                exit_,
                f"systemd could not run the command ({exit_.exit_status}/{name}){reason}.",
                f"{exit_.exit_status}-{name.lower()}",
                hints,
            )
    overdue = ending.start_timed_out
    ended_by_it = step is not None and overdue is not None and overdue.usec <= step.usec
    if step is not None and main is None and ending.failure is None and ending.stop is None and not ended_by_it:
        return _step_failed(ending, step, hints)
    failed = ending.timeline.first(StartFailed)
    if failed is not None and failed.job_result == "dependency":
        return _found(failed, "The start was not tried, since a unit that it requires failed.", "dependency", ())
    result = ending.timeline.first(UnitResult)
    if result is not None and result.unit_result == "resources" and main is None:
        words = "systemd could not set up the process (Result=resources), so the server was not started."
        return _found(result, words, "resources", hints)
    return None


def _of_systemd(ending: Ending, exit_: ProcessExit) -> bool:
    """Whether the status is systemd's: a program that wrote a line, or lived longer, gave it itself."""
    at_once = exit_.usec - ending.run.started_usec <= _AT_ONCE_USEC
    return exit_.process == "control" or (at_once and ending.timeline.first(LogStats) is None)


def _step_failed(ending: Ending, step: ProcessExit, hints: tuple[Evidence, ...]) -> Finding | None:
    if not step.command and any(isinstance(e, ServerArgs | Milestone | Batch) for e in ending.timeline.events):
        return None  # Saved text does not name the step; but the server had been started.
    how = f"{step.command or 'A control process'} failed ({step.exit_code}, status {step.exit_status})"
    if step.command != "ExecStartPost":
        return _found(step, f"{how}, so the server was not started.", (step.command or "control").lower(), hints)
    waits = [refused for refused in ending.timeline.all(PreflightRefused) if refused.check == "not-ready"]
    if any("main process ended" in wait.reason for wait in waits):
        return None  # Main was gone before.
    said = tuple(Evidence(role=Role.CONTEXT, event=wait, why="the step's own words") for wait in waits[-1:])
    reason = f": {waits[-1].reason}" if waits else ""
    words = f"The server did not become ready{reason}. {how}, so systemd ended the start."
    return _found(step, words, "execstartpost", (*said, *hints), certain=bool(waits))


def _found(
    event: Event, summary: str, subclass: str, context: tuple[Evidence, ...], *, certain: bool = True
) -> Finding:
    status = str(event.exit_status) if isinstance(event, ProcessExit) else ""
    return Finding(
        strength=Strength.CONFIRMED if certain else Strength.LIKELY,
        summary=summary,
        subclass=subclass,
        evidence=(Evidence(role=Role.INITIATING, event=event, why="systemd's record of the failed step"), *context),
        key=tuple(filter(None, (subclass, status))),
    )
