"""systemd, asked and told through systemctl."""

import subprocess
from dataclasses import dataclass

from forensics.errors import InquestError

_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class UnitNow:
    """A unit at this moment. `since` is when it left rest, seconds since the epoch, 0 when it never did. The memory is
    None where there is no controller, or nothing runs."""

    active_state: str
    invocation_id: str
    status_text: str
    load_state: str
    need_daemon_reload: bool
    since: int
    memory_current_bytes: int | None = None

    @property
    def serves(self) -> bool:
        """Started and ready, since starting ends when the server answers."""
        return self.active_state == "active"


def unit_name(server: str) -> str:
    return server if server.endswith(".service") else f"sglang-{server}.service"


def look(unit: str) -> UnitNow:
    """The unit's properties now."""
    names = "ActiveState,InvocationID,StatusText,LoadState,NeedDaemonReload,InactiveExitTimestamp,MemoryCurrent"
    out = tell("show", "--timestamp=unix", f"--property={names}", unit)
    values = dict(line.partition("=")[::2] for line in out.splitlines())
    memory = values.get("MemoryCurrent", "")
    since = values.get("InactiveExitTimestamp", "").lstrip("@")
    return UnitNow(
        active_state=values.get("ActiveState", ""),
        invocation_id=values.get("InvocationID", ""),
        status_text=values.get("StatusText", ""),
        load_state=values.get("LoadState", ""),
        need_daemon_reload=values.get("NeedDaemonReload") == "yes",
        since=int(since) if since.isdecimal() else 0,
        memory_current_bytes=int(memory) if memory.isdecimal() else None,
    )


def main_pid(unit: str) -> int:
    """The pid of its main process. InquestError when it has none."""
    pid = tell("show", "--property=MainPID", "--value", unit).strip()
    if not pid.isdecimal() or pid == "0":
        raise InquestError("not-running", f"{unit} has no main process")
    return int(pid)


def tell(*arguments: str, check: bool = True) -> str:
    """Run systemctl; its output. InquestError with its words when it fails."""
    try:
        done = subprocess.run(
            ["systemctl", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InquestError("no-systemd", f"systemctl {arguments[0]}: {error}") from error
    if check and done.returncode != 0:
        raise InquestError("systemctl-failed", f"systemctl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
