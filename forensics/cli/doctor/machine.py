"""What the machine shows of a death, and what it hides."""

from collections.abc import Iterator

from forensics.cli.doctor.facts import Disk, Facts
from forensics.cli.doctor.row import Row, failed, ok, warning
from forensics.report import size_words

OLDEST_SYSTEMD = 252
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 1 << 30, 64 << 20
_LITTLE_SHARE = 0.05


def systemd(facts: Facts) -> Row:
    if not facts.systemd:
        return failed(
            "systemd", "systemd is not PID 1 here", "Boot a machine with `./deploy/up`, or use a host with systemd."
        )
    if facts.systemd < OLDEST_SYSTEMD:
        remedy = f"Use systemd {OLDEST_SYSTEMD} or newer: its records are worded as Inquest knows them."
        return warning("systemd", f"systemd {facts.systemd}", remedy)
    return ok("systemd", f"systemd {facts.systemd}{', in a container' if facts.container else ''}")


def journal(facts: Facts) -> Row:
    """What the daemon says of it counts; without a daemon, what this user may read."""
    reason = _blind(facts, "systemd") or _blind(facts, "server") if facts.health else facts.journal
    if reason:
        remedy = "Let the daemon's user read it: `usermod -aG systemd-journal inquest && systemctl restart inquestd`."
        return failed("journal", reason, remedy)
    return ok("journal", "it can be read")


def journal_persistent(facts: Facts) -> Row:
    if facts.persistent:
        return ok("journal-persistent", "it outlives a reboot")
    remedy = "Set Storage=persistent in journald.conf, or `mkdir /var/log/journal`, and restart systemd-journald."
    return warning("journal-persistent", "it is lost at a reboot, and with it what led to a host-reset", remedy)


def kernel_log(facts: Facts) -> Row:
    reason = _blind(facts, "kernel") if facts.health else facts.kernel
    if not reason:
        return ok("kernel-log", "the kernel's records can be read")
    if facts.container:
        remedy = "Install Inquest on the host itself; here only the kernel's counter of OOM kills is left."
    else:
        remedy = "Have journald read it (ReadKMsg=yes), and the daemon's user in the group systemd-journal."
    return warning("kernel-log", reason, remedy)


def core_dumps(facts: Facts) -> Row:
    if "systemd-coredump" not in facts.core_pattern:
        remedy = "Install systemd-coredump: it keeps the stacks of native crashes in the journal."
        if facts.container:
            remedy = "The host decides: install systemd-coredump there."
        found = f"core dumps do not go to systemd-coredump (core_pattern: {facts.core_pattern or 'unreadable'})"
        return warning("core-dumps", found, remedy)
    if facts.coredump_storage == "none":
        remedy = "Set Storage=external in coredump.conf."
        return warning("core-dumps", "systemd-coredump keeps the stacks, and no core to read further", remedy)
    return ok("core-dumps", "systemd-coredump keeps them")


def memory_controller(facts: Facts) -> Row:
    if facts.journald.get("MemoryCurrent", "").isdecimal():
        return ok("memory-controller", "units have memory.events and limits")
    remedy = "Boot without cgroup_disable=memory; to a container its host has to delegate the controller."
    found = "units have no memory controller: no limits, no memory.events, no peak"
    return warning("memory-controller", found, remedy)


def gpus(facts: Facts) -> Row:
    if facts.gpu_problem:
        return failed("gpus", facts.gpu_problem, "Look at `nvidia-smi` and at `journalctl -k --grep 'NVRM|Xid'`.")
    return ok("gpus", facts.gpus or "no NVIDIA driver on this machine: there is nothing to see")


def d_bus(facts: Facts) -> Row:
    if facts.health and (reason := _blind(facts, "unit")):
        remedy = "Start it: `systemctl start dbus.socket`; Inquest looks again within a minute."
        return warning("d-bus", f"living units cannot be asked: {reason}", remedy)
    if not facts.journald:
        remedy = "Start it: `systemctl start dbus.socket`."
        return warning("d-bus", "systemd does not answer `systemctl show`", remedy)
    return ok("d-bus", "systemd answers")


def clock(facts: Facts) -> Row:
    if facts.clock_synchronized is None:
        return warning("clock", "the kernel does not say how right it is", "Look at `timedatectl`.")
    if not facts.clock_synchronized:
        remedy = "Run a time service, for example `systemctl enable --now systemd-timesyncd` or chrony."
        return warning("clock", "it is not synchronized: times of several machines cannot be compared", remedy)
    return ok("clock", "synchronized")


def disks(facts: Facts) -> Iterator[Row]:
    for disk in facts.disks:
        yield _disk(disk)


def _disk(disk: Disk) -> Row:
    found = f"{disk.path}: {size_words(disk.free_bytes)} of {size_words(disk.total_bytes)} free"
    remedy = f"Make room on the file system of {disk.path}."
    if disk.free_bytes < _TOO_LITTLE_BYTES:
        return failed("disk", found, remedy)
    if disk.free_bytes < _LITTLE_BYTES and disk.free_bytes < disk.total_bytes * _LITTLE_SHARE:
        return warning("disk", found, remedy)
    return ok("disk", found)


def _blind(facts: Facts, source: str) -> str:
    """Why the daemon cannot see a source; empty when it can."""
    sources = facts.health["sources"] if facts.health else ()
    return next((one["detail"] for one in sources if one["name"] == source and one["state"] == "blind"), "")
