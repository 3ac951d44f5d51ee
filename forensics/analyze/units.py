"""Which unit, and which life of it, a line of saved text is about: the trusted fields that told it are gone.

PID 1 names the unit in most of its lines, in some only the description; the server's lines carry the name of a
program. A first look over the file (`Survey`) gathers which names occur, so that the reading itself can decide line
by line.
"""

import re
from collections import Counter, deque
from dataclasses import dataclass, field

from forensics.analyze.senders import Sent
from forensics.analyze.speakers import Speakers

_UNIT = r"[\w@:.\\-]+\.(?:service|scope|slice|target|socket|mount|swap|timer|path|automount|device)"
_NAMED = re.compile(rf"(?P<unit>{_UNIT}): ")
_JOB = re.compile(
    r"(?P<verb>Starting|Started|Stopping|Stopped|Failed to start|Timed out starting|Timed out stopping|Finished"
    r"|Dependency failed for|Reached target) (?P<what>.+?)(?:\.\.\.|…|\.)?$"
)
_IN_JOB = re.compile(rf"(?P<unit>{_UNIT})(?: - .*)?$")
FORKED = re.compile(
    rf"(?:{_UNIT}): (?:Failed at step |Failed to (?:locate|determine|set up|execute) |Changing to the "
    r"|Unable to locate )"
)
_NOT_STARTED = re.compile(r": Job \S+/start failed with result ")
_ENDED = re.compile(
    rf"{_UNIT}: (?:Failed with result|Deactivated successfully|Succeeded|Skipped due to|Unit entered failed state)"
)
_SERVER = re.compile(
    r"\[\d{4}-\d\d-\d\d [\d:.]+(?: [A-Z_]+\d+)*\] |server_args=|Uvicorn running on|vllm|sglang|llama_|Traceback \(most"
)
_OTHERS = frozenset(
    {"kernel", "systemd", "init.scope", "sshd", "CRON", "cron", "sudo", "su", "dbus-daemon", "NetworkManager",
     "dockerd", "containerd", "audit", "auditd", "polkitd", "rsyslogd", "chronyd", "ntpd", "snapd", "login", "dhclient",
     "wpa_supplicant", "avahi-daemon", "earlyoom", "nohang", "nvidia-persistenced", "nv-fabricmanager"}
)  # fmt: skip
_OOM_KILLERS = {"systemd-oomd": "systemd-oomd.service", "earlyoom": "earlyoom.service", "nohang": "nohang.service"}
SHUTDOWN_TARGETS = {"Reboot": "reboot.target", "Power-Off": "poweroff.target", "Power Off": "poweroff.target",
                    "Halt": "halt.target", "Shutdown": "shutdown.target", "System Reboot": "reboot.target",
                    "System Shutdown": "shutdown.target", "System Power Off": "poweroff.target"}  # fmt: skip
_NEAR_LINES = 6


def is_manager(sent: Sent) -> bool:
    """Whether the line claims to be a service manager's: PID 1's, or that of a user's own manager."""
    return sent.ident in ("systemd", "init.scope") and not FORKED.match(sent.message)


def is_forked_child(sent: Sent) -> bool:
    """systemd's child before it became the server says why it could not."""
    if sent.ident.startswith("(") and sent.ident.endswith(")"):
        return True
    return sent.ident in ("systemd", "init.scope") and FORKED.match(sent.message) is not None


def server_like(message: str) -> bool:
    return _SERVER.search(message) is not None


@dataclass(slots=True)
class Survey:
    """What the lines of one file name. `units` counts the service units that the manager speaks of."""

    units: Counter[str] = field(default_factory=Counter)
    idents: Counter[str] = field(default_factory=Counter)
    server_idents: Counter[str] = field(default_factory=Counter)
    kernel_lines: int = 0
    foreign_lines: int = 0
    speakers: Speakers = field(default_factory=Speakers)
    _of_pid_1: set[str] = field(default_factory=set)
    _votes: dict[str, Counter[str]] = field(default_factory=dict)
    _open: deque[tuple[int, str]] = field(default_factory=deque)
    _named: deque[tuple[int, str]] = field(default_factory=deque)
    _count: int = 0

    def look(self, sent: Sent) -> None:
        if sent.ident == "kernel":
            self.kernel_lines += 1
            return
        if sent.ident in ("systemd", "init.scope"):
            self._look_at_manager(sent)
            return
        if sent.ident in _OTHERS or sent.ident.startswith("systemd-"):
            self.foreign_lines += 1
            return
        self.speakers.hear(sent.pid, sent.message)
        if len(self.idents) < 4096:
            self.idents[sent.ident] += 1
            if server_like(sent.message):
                self.server_idents[sent.ident] += 1

    def _look_at_manager(self, sent: Sent) -> None:
        self._count += 1
        unit = unit_in(sent.message)
        if unit is None:
            if job := _JOB.match(sent.message):
                what = job["what"]
                for at, near in self._named:
                    if self._count - at <= _NEAR_LINES:
                        self._vote(what, near)
                self._open.append((self._count, what))
                if len(self._open) > _NEAR_LINES:
                    self._open.popleft()
            else:
                self.foreign_lines += 1
            return
        if not unit.endswith((".service", ".scope")):
            self.foreign_lines += 1
            return
        self.units[unit] += 1
        if sent.pid == 1:
            self._of_pid_1.add(unit)
        for at, what in self._open:
            if self._count - at <= _NEAR_LINES:
                self._vote(what, unit)
        self._named.append((self._count, unit))
        if len(self._named) > _NEAR_LINES:
            self._named.popleft()

    def _vote(self, what: str, unit: str) -> None:
        if len(self._votes) < 4096:
            self._votes.setdefault(what, Counter())[unit] += 1

    def believes(self, sent: Sent) -> bool:
        """Whether a line in a manager's name can be one: where PID 1 speaks of a unit, no other `systemd` does."""
        return sent.pid in (1, None) or unit_in(sent.message) not in self._of_pid_1

    def described(self, what: str) -> str | None:
        """The unit with this description, as far as its neighbours tell."""
        if len(self.services) == 1:
            return self.services[0]
        votes = self._votes.get(what)
        return votes.most_common(1)[0][0] if votes else None

    @property
    def services(self) -> list[str]:
        return [unit for unit in self.units if unit.endswith(".service")]


def unit_in(message: str) -> str | None:
    """The unit that a manager's line names, or None."""
    if named := _NAMED.match(message):
        return named["unit"]
    job = _JOB.match(message)
    inside = _IN_JOB.match(job["what"]) if job else None
    return inside["unit"] if inside else None


@dataclass(slots=True)
class _Life:
    number: int = 0
    begun: bool = False
    ended: bool = False
    restarts: bool = False


@dataclass(slots=True)
class Attribution:
    """Gives each line its unit and the invocation id that stands for the life it belongs to.

    `only` is the unit that the user named, or None; `label` distinguishes the ids of one file from another's.
    """

    survey: Survey
    label: str
    only: str | None = None
    changes: int = 0
    """How often a life began or ended: what was said of a program's lines holds as long as it stays the same."""

    _lives: dict[str, _Life] = field(default_factory=dict)
    _started: deque[str] = field(default_factory=deque)
    _of_pid: dict[tuple[str, int | None], str] = field(default_factory=dict)

    def manager(self, message: str) -> tuple[str, str] | None:
        """Unit and life of a line of the manager; None for one about no unit that can be named."""
        unit = unit_in(message)
        job = _JOB.match(message)
        if unit is None:
            if job is None:
                return None
            what = job["what"]
            if what in SHUTDOWN_TARGETS:
                return SHUTDOWN_TARGETS[what], ""
            unit = self.survey.described(what) if job["verb"] != "Reached target" else None
            if unit is None:
                return None
        verb = job["verb"] if job else ""
        if verb == "Dependency failed for" or _NOT_STARTED.search(message):
            return unit, ""  # never started: it has no life
        life = self._lives.setdefault(unit, _Life())
        if (verb == "Starting" and (life.begun or life.ended)) or (verb == "Started" and life.ended):
            self._lives[unit] = life = _Life(number=life.number + 1)
        if verb in ("Starting", "Started"):
            life.begun = True
            self.changes += 1
            if unit.endswith(".service"):
                self._started.append(unit)
                if len(self._started) > 64:
                    self._started.popleft()
        life.restarts = life.restarts or "Scheduled restart job" in message
        if _ENDED.match(message) or verb in ("Stopped", "Failed to start"):
            life.ended = True
            self.changes += 1
        return unit, self.life_of(unit)

    def restarts(self, unit: str) -> bool:
        """Whether systemd restarts the unit's present life of its own accord: then `Stopped` is nobody's wish."""
        return self._lives.setdefault(unit, _Life()).restarts

    def unit_of_pid(self, pid: int) -> str | None:
        return next((unit for (_, known), unit in self._of_pid.items() if known == pid), None)

    def life_of(self, unit: str) -> str:
        """The id of the unit's present life."""
        life = self._lives.setdefault(unit, _Life())
        return f"{self.label}:{unit}:{life.number}"

    def program(self, ident: str, pid: int | None, message: str) -> str | None:
        """The unit of a program's line, or None when that cannot be told."""
        if ident in _OOM_KILLERS:
            return _OOM_KILLERS[ident]
        if ident.endswith((".service", ".scope")):
            return ident  # journalctl -o with-unit
        if ident in _OTHERS or ident.startswith("systemd-"):
            return f"{ident}.service"
        if self.only is not None and ("*" not in self.only):
            return self.only if self._could_be(ident) else None
        if known := self._of_pid.get((ident, pid)):
            return known
        unit = self._guess(ident)
        if unit is not None and len(self._of_pid) < 65_536:
            self._of_pid[(ident, pid)] = unit
        return unit

    def _could_be(self, ident: str) -> bool:
        """Whether a program's lines can be the named unit's: in a file of one unit all are."""
        services = self.survey.services
        return len(services) <= 1 or self._guess(ident) == self.only

    def _guess(self, ident: str) -> str | None:
        services = self.survey.services
        if len(services) == 1:
            return services[0]
        if not services:
            return f"{ident}.service"
        stem = ident.lower()
        alike = [unit for unit in services if _stem(unit) == stem] or [
            unit for unit in services if stem in _stem(unit) or _stem(unit) in stem
        ]
        if len(alike) == 1:
            return alike[0]
        servers = [unit for unit in services if re.search(r"sglang|vllm|llm|llama|tgi|triton|serve", unit)]
        if self.survey.server_idents[ident]:
            living = [
                unit for unit in self._started if not self._lives[unit].ended and (not servers or unit in servers)
            ]
            if living:
                return living[-1]
            if len(servers) == 1:
                return servers[0]
        return None


def _stem(unit: str) -> str:
    return unit.rsplit(".", 1)[0].split("@", 1)[0].lower()
