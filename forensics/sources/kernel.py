"""The kernel's records: OOM kills, NVIDIA Xids, faults of user processes, hung tasks.

Wordings are those of Linux 3.10 to 6.12 (`mm/oom_kill.c`, `mm/memcontrol.c`, `kernel/hung_task.c`,
`arch/*/mm/fault.c`) and of NVIDIA's drivers up to 595 (`kernel_rc.c`). A process chooses its own comm (15 bytes) and
a user with a delegated cgroup parts of its path, so every pattern is anchored where the kernel's own words stand.
"""

import re
from collections.abc import Callable, Mapping

from forensics.entry import Entry
from forensics.events import (
    DriverNoMemory,
    Event,
    GpuLost,
    HungTask,
    OomKill,
    OomLimit,
    OomVictim,
    Record,
    Segfault,
    Unparsed,
    Xid,
)

SOURCE = "kernel"

Groups = Mapping[str, str | None]

# A kernel record is at most 2 KiB long; what is longer was not written by the kernel.
_LONGEST = 4096


def _bytes(kilobytes: str | None) -> int | None:
    return None if kilobytes is None else int(kilobytes) * 1024


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _oom_kill(record: Record, at: Groups) -> Event:
    """5.0 and later, the summary line. `cgroups` is what stands between `mems_allowed=` and `task=`."""
    oom_memcg, task_memcg = _cgroups(at["cgroups"] or "")
    return OomKill(
        record=record,
        constraint=at["constraint"] or "",
        oom_memcg=oom_memcg,
        task_memcg=task_memcg,
        task=at["task"] or "",
        oom_victim_pid=_number(at["pid"]),
        uid=_number(at["uid"]),
    )


def _cgroups(text: str) -> tuple[str | None, str | None]:
    """`,oom_memcg=A,task_memcg=B` or `,global_oom,task_memcg=B`. B lies at or below A, which decides where a cgroup
    that is itself named `x,task_memcg=` would leave the split open."""
    splits = [found.start() for found in re.finditer(",task_memcg=", text)]
    if not splits:
        return None, None
    begin = text.find(",oom_memcg=")
    if begin < 0 or begin > splits[0]:
        return None, text[splits[0] + len(",task_memcg=") :]
    pairs = [(text[begin + len(",oom_memcg=") : at], text[at + len(",task_memcg=") :]) for at in splits if at > begin]
    fitting = (pair for pair in pairs if pair[0] == "/" or f"{pair[1]}/".startswith(f"{pair[0]}/"))
    return next(fitting, pairs[0])


def _oom_kill_before_5(record: Record, at: Groups) -> Event:
    """Before 5.0: whom the kernel meant to kill. A child may be sacrificed: the next line names who died."""
    return OomKill(
        record=record,
        constraint="CONSTRAINT_MEMCG" if at["memcg"] else "CONSTRAINT_NONE",
        oom_memcg=None,
        task_memcg=None,
        task=at["task"] or "",
        oom_victim_pid=_number(at["pid"]),
    )


def _oom_task_in(record: Record, at: Groups) -> Event:
    """Before 5.0: the cgroups of a memory-cgroup kill, without the victim's pid."""
    return OomKill(
        record=record,
        constraint="CONSTRAINT_MEMCG",
        oom_memcg=at["oom_memcg"],
        task_memcg=at["task_memcg"],
        task="",
        oom_victim_pid=None,
    )


def _oom_victim(record: Record, at: Groups) -> Event:
    reason = at["reason"] or ""
    memcg = None
    if reason:
        memcg = True if reason.startswith("Memory cgroup") else False if reason.startswith("Out of memory") else None
    return OomVictim(
        record=record,
        victim_pid=int(at["pid"] or 0),
        task=at["task"] or "",
        memcg=memcg,
        anon_rss_bytes=_bytes(at["anon"]),
        file_rss_bytes=_bytes(at["file"]),
        shmem_rss_bytes=_bytes(at["shmem"]),
    )


def _oom_limit(record: Record, at: Groups) -> Event:
    return OomLimit(record=record, usage_bytes=int(at["usage"] or 0) * 1024, limit_bytes=int(at["limit"] or 0) * 1024)


def _xid(record: Record, at: Groups) -> Event:
    name = at["name"]
    return Xid(
        record=record,
        pci_bus_id=(at["pci_bus_id"] or "").lower(),
        xid=int(at["xid"] or 0),
        xid_pid=_number(at["pid"]),
        name=None if name in (None, "", "<unknown>", "'<unknown>'") else name,
        caused_by_xid=_number(at["caused_by"]),
    )


def _gpu_lost(record: Record, at: Groups) -> Event:
    return GpuLost(record=record, pci_bus_id=at["pci_bus_id"].lower() if at["pci_bus_id"] else None)


def _driver_no_memory(record: Record, at: Groups) -> Event:
    return DriverNoMemory(record=record)


def _segfault(record: Record, at: Groups) -> Event:
    return Segfault(record=record, comm=at["comm"] or "", fault_pid=int(at["pid"] or 0), fault=at["fault"] or "")


def _hung_task(record: Record, at: Groups) -> Event:
    return HungTask(record=record, comm=at["comm"] or "", hung_pid=int(at["pid"] or 0), seconds=int(at["seconds"] or 0))


def _silent(record: Record, at: Groups) -> None:
    """Known words that carry no fact of their own: without this row they would count as unknown wording."""


_PCI = r"[0-9A-Fa-f]{1,8}(?::[0-9A-Fa-f]{2,4})+(?:\.[0-9A-Fa-f])?"

# (a word that must be there, the pattern, what it says). The first row that matches decides.
PATTERNS: tuple[tuple[str, re.Pattern[str], Callable[[Record, Groups], Event | None]], ...] = (
    (
        "oom-kill:constraint",
        re.compile(
            r"oom-kill:constraint=(?P<constraint>\w+),nodemask=[^=]*?"
            r"(?:,cpuset=.*?,mems_allowed=[-\d,]*)?(?P<cgroups>(?:,global_oom|,oom_memcg=|,task_memcg=).*?)?"
            r",task=(?P<task>.{0,16}),pid=(?P<pid>\d{1,10}),uid=(?P<uid>\d{1,10})\s*",
            re.DOTALL,
        ),
        _oom_kill,
    ),
    (
        "Killed process",
        re.compile(
            r"(?:(?P<reason>[^:]{1,120}): )?Killed process (?P<pid>\d{1,10})(?:,? UID:? ?\d+,?)? "
            r"\((?P<task>.*)\)(?:, UID \d+)?,? total-vm:\d+kB, anon-rss:(?P<anon>\d+)kB"
            r"(?:, file-rss:(?P<file>\d+)kB)?(?:, shmem-rss:(?P<shmem>\d+)kB)?.*",
            re.DOTALL,
        ),
        _oom_victim,
    ),
    (
        "or sacrifice child",
        re.compile(
            r"(?:(?P<memcg>Memory cgroup out of memory)|Out of memory[^:]*): Kill process (?P<pid>\d{1,10}) "
            r"\((?P<task>.*)\) score \d+ or sacrifice child\s*",
            re.DOTALL,
        ),
        _oom_kill_before_5,
    ),
    (
        "killed as a result of limit of",
        re.compile(r"Task in (?P<task_memcg>/.*) killed as a result of limit of (?P<oom_memcg>/.*?)\s*", re.DOTALL),
        _oom_task_in,
    ),
    (
        "memory: usage",
        re.compile(r"memory: usage (?P<usage>\d{1,18})kB, limit (?P<limit>\d{1,18})kB, failcnt \d+\s*"),
        _oom_limit,
    ),
    (
        "NVRM: Xid",
        re.compile(
            rf"NVRM: Xid \((?:PCI:)?(?P<pci_bus_id>{_PCI})(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): "
            r"(?P<xid>\d{1,5})(?:, pid='?(?P<pid>[^,']*)'?)?(?:, name=(?P<name>[^,]*))?"
            r"(?:,? ?.*? caused by previous Xid (?P<caused_by>\d{1,5})\.?\s*\Z|.*)",
            re.DOTALL,
        ),
        _xid,
    ),
    (
        "fallen off the bus",
        re.compile(rf"NVRM:(?:.*?(?:GPU|PCI:) ?(?P<pci_bus_id>{_PCI}))?.*?fallen off the bus.*", re.DOTALL),
        _gpu_lost,
    ),
    ("NV_ERR_NO_MEMORY", re.compile(r"NVRM: .*NV_ERR_NO_MEMORY.*", re.DOTALL), _driver_no_memory),
    (
        "]: segfault at ",
        re.compile(r"(?P<comm>.{0,16})\[(?P<pid>\d{1,10})\]: (?P<fault>segfault at .*)", re.DOTALL),
        _segfault,
    ),
    (
        "] general protection",
        re.compile(
            r"(?:traps: )?(?P<comm>.{0,16})\[(?P<pid>\d{1,10})\] (?P<fault>general protection .*)",
            re.DOTALL,
        ),
        _segfault,
    ),
    (
        "] trap ",
        re.compile(r"traps: (?P<comm>.{0,16})\[(?P<pid>\d{1,10})\] (?P<fault>trap .*)", re.DOTALL),
        _segfault,
    ),
    (
        # arm64 (Grace, Jetson, GB10), when debug.exception-trace is on
        "]: unhandled ",
        re.compile(r"(?P<comm>.{0,16})\[(?P<pid>\d{1,10})\]: (?P<fault>unhandled .*)", re.DOTALL),
        _segfault,
    ),
    (
        "INFO: task ",
        re.compile(
            r"INFO: task (?P<comm>.{0,16}):(?P<pid>\d{1,10}) blocked .{0,40}?"
            r"for more than (?P<seconds>\d{1,9}) seconds.*",
            re.DOTALL,
        ),
        _hung_task,
    ),
    ("Killed process", re.compile(r"oom_reaper: .*", re.DOTALL), _silent),
    ("OOM victim", re.compile(r".*: OOM victim \d+ \(.*\) is already exiting\. Skip killing.*", re.DOTALL), _silent),
    ("no killable processes", re.compile(r"(?:Memory cgroup o|O)ut of memory and no killable processes.*"), _silent),
)

_OOM_WORDS = re.compile(r"(?:Memory cgroup o|O)ut of memory|\b(?:OOM|oom)[-_ ]kill(?:ed|ing|s)?\b|Killed process")
"""What a record about a kill says in whatever words; `oom-killer` and the functions of a stack trace are none."""


_ANY_WORD = re.compile("|".join(sorted({re.escape(row[0]) for row in PATTERNS})) + f"|{_OOM_WORDS.pattern}")


def interesting(message: str) -> bool:
    """A cheap gate: False only for lines of which `parse` would make nothing."""
    return _ANY_WORD.search(message) is not None


def parse(entry: Entry) -> Event | None:
    """The fact in one kernel record, or None. Only the kernel itself is believed.

    A record that speaks of an OOM kill in words that no row knows becomes `Unparsed`, never silence.
    """
    if not entry.from_kernel:
        return None
    message = entry.message[:_LONGEST]
    for word, pattern, fact in PATTERNS:
        if word in message and (found := pattern.fullmatch(message)):
            return fact(entry.record(SOURCE), found.groupdict())
    if _OOM_WORDS.search(message) and "NVRM:" not in message:
        return Unparsed(record=entry.record(SOURCE), about="oom")
    return None
