"""exec-failure: systemd could not run the command, or a step around it failed, before the server did anything.

Signal:      PID 1's main exit with 200 to 243 (203/EXEC, 200/CHDIR, 217/USER …), a failed ExecStartPre=, a dependency.
Not this:    the program's own exit status of 200 or more after it had logged lines.
Followed by: Result=exit-code; the reason stands in the forked child's own line (a hint: it is not PID 1's).
"""

from forensics.causality import Ending
from forensics.events import LogStats, SpawnFailed, StartFailed
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


def match(ending: Ending) -> Finding | NotThis | None:
    hint = ending.timeline.first(SpawnFailed)
    hints = (Evidence(role=Role.CONTEXT, event=hint, why="the forked child's own words"),) if hint else ()
    reason = f": {hint.executable or hint.step}: {hint.error}" if hint else ""
    main, control = ending.main_exit, ending.control_exit
    silent = ending.timeline.first(LogStats) is None
    for exit_ in filter(None, (main, control)):
        if exit_.exit_code == "exited" and exit_.exit_status in STATUS and (silent or exit_.process == "control"):
            name = STATUS[exit_.exit_status]
            return Finding(
                strength=Strength.CONFIRMED,
                summary=f"systemd could not run the command ({exit_.exit_status}/{name}){reason}.",
                subclass=f"{exit_.exit_status}-{name.lower()}",
                evidence=(
                    Evidence(role=Role.INITIATING, event=exit_, why="systemd's record of the failed step"),
                    *hints,
                ),
                key=(str(exit_.exit_status),),
            )
    if control is not None and main is None and ending.failure is None and ending.stop is None:
        return Finding(
            strength=Strength.CONFIRMED,
            summary=f"{control.command or 'A control process'} failed "
            f"({control.exit_code}, status {control.exit_status}), so the server was not started.",
            subclass=(control.command or "control").lower(),
            evidence=(Evidence(role=Role.INITIATING, event=control, why="systemd's record of the failed step"), *hints),
            key=(control.command, str(control.exit_status)),
        )
    failed = ending.timeline.first(StartFailed)
    if failed is not None and failed.job_result == "dependency":
        return Finding(
            strength=Strength.CONFIRMED,
            summary="The start was not tried, since a unit that it requires failed.",
            subclass="dependency",
            evidence=(Evidence(role=Role.INITIATING, event=failed, why="systemd's record of the start job"),),
            key=("dependency",),
        )
    return None
