"""What /proc tells of a process at this moment. A process that sent a signal may be gone a moment later."""

import os
from dataclasses import dataclass

from forensics.redact import redact
from forensics.sigtrace.pipe import printable

_LONGEST_CMDLINE = 400
_LONGEST_FILE = 4096
_NO_LOGIN = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """`pid` is the process of the thread that was asked for. What could not be read is None or empty.

    `uid` is the real user id, `login_uid` who logged in before sudo or su; `cgroup` the path in systemd's hierarchy;
    `inner_pids` its pids in the pid namespaces below the first: there is one when it runs in a container.
    """

    pid: int
    comm: str = ""
    cmdline: str = ""
    uid: int | None = None
    login_uid: int | None = None
    parent_pid: int | None = None
    parent_cmdline: str = ""
    cgroup: str = ""
    inner_pids: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What of it could not be read."""
        facts = {"command line": self.cmdline, "user": self.uid is not None, "cgroup": self.cgroup}
        return tuple(name for name, known in facts.items() if not known)


def look(tid: int, proc: str = "/proc") -> Process:
    """Everything that can be read of a thread's process; never raises. What vanishes first is read first."""
    cmdline = _read(f"{proc}/{tid}/cmdline")
    status_text = _read(f"{proc}/{tid}/status")
    cgroup = cgroup_path(_read(f"{proc}/{tid}/cgroup"))
    login_uid = _number(_read(f"{proc}/{tid}/loginuid").strip())
    status = dict(line.split(":\t", 1) for line in status_text.splitlines() if ":\t" in line)
    if cgroup == "/" and not cmdline:
        cgroup = ""  # where cgroup v1 shows the exiting, wherever they were
    parent_pid = _number(status.get("PPid", ""))
    return Process(
        pid=_number(status.get("Tgid", "")) or tid,
        comm=printable(status.get("Name", "")),
        cmdline=_cmdline(cmdline),
        uid=_number(status.get("Uid", "").split("\t")[0]),
        login_uid=None if login_uid == _NO_LOGIN else login_uid,
        parent_pid=parent_pid,
        parent_cmdline=_cmdline(_read(f"{proc}/{parent_pid}/cmdline")) if parent_pid not in (None, 0, 1) else "",
        cgroup=cgroup,
        inner_pids=tuple(int(pid) for pid in status.get("NSpid", "").split("\t")[1:]),
    )


def process_of(tid: int, proc: str = "/proc") -> int:
    """The process that a thread belongs to; the thread's own id when it is gone."""
    tgid = next((line for line in _read(f"{proc}/{tid}/status").splitlines() if line.startswith("Tgid:")), "")
    return _number(tgid.removeprefix("Tgid:").strip()) or tid


def cgroup_of(tid: int, proc: str = "/proc") -> str:
    """The path of its cgroup in systemd's hierarchy; empty when the process is gone."""
    return cgroup_path(_read(f"{proc}/{tid}/cgroup"))


def cgroup_path(text: str) -> str:
    """systemd's path in a /proc/PID/cgroup: of `name=systemd` (v1 and hybrid) or of the one hierarchy of v2."""
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in text.splitlines())}
    named = paths.get("name=systemd", "/")
    return named if named != "/" else paths.get("", named if paths else "")


def _cmdline(text: str) -> str:
    """The arguments with blanks between them, secrets removed."""
    words = text.rstrip("\0").replace("\0", " ").strip()
    clean = printable(redact(words))
    return clean if len(clean) <= _LONGEST_CMDLINE else clean[: _LONGEST_CMDLINE - 1] + "…"


def _read(path: str) -> str:
    # Unbuffered and without pathlib: there are some 200 µs until the sender is gone.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return ""  # it went between the two
    finally:
        os.close(descriptor)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
