"""Who listens on a TCP port, by the kernel's tables in ``/proc``."""

from __future__ import annotations

import ipaddress
import os
import pwd
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Listener", "Process", "holder", "listeners", "owner", "owns", "user"]

_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket: its address, its owner's user id and its inode (0 until it is bound for good)."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    uid: int
    inode: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process as an operator would look for it; `unit` is empty where systemd has none for it."""

    pid: int
    comm: str
    unit: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.comm}{', ' + self.unit if self.unit else ''})"


def listeners(port: int, proc: Path = Path("/proc")) -> tuple[Listener, ...]:
    """Every socket that listens on `port` in this network namespace."""
    found: list[Listener] = []
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "self/net" / table).read_text().splitlines()[1:]
        except OSError:  # no IPv6
            continue
        for line in lines:
            _, local, _, state, _, _, _, uid, _, inode, *_ = line.split()
            address, _, number = local.partition(":")
            if state == _LISTEN and int(number, 16) == port:
                found.append(Listener(_address(address), port, int(uid), int(inode)))
    return tuple(found)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel prints an address as 32-bit words in the machine's own byte order."""
    words = bytes.fromhex(text)
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    return ipaddress.ip_address(packed)


def owns(pids: Iterable[int], inode: int, proc: Path = Path("/proc")) -> bool | None:
    """Whether one of `pids` has the socket open; None where that could not be seen for all of them."""
    unseen = False
    for pid in pids:
        try:
            if inode in _socket_inodes(pid, proc):
                return True
        except PermissionError:
            unseen = True
        except OSError:  # ended meanwhile
            continue
    return None if unseen else False


def owner(inode: int, proc: Path = Path("/proc")) -> Process | None:
    """The process that has the socket open, as far as this user may see; None otherwise."""
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                if inode in _socket_inodes(int(entry), proc):
                    return _process(int(entry), proc)
            except OSError:
                continue
    return None


def holder(listener: Listener, proc: Path = Path("/proc")) -> str:
    """Who has the socket, in words: the process where this user may see it, else the user it belongs to."""
    process = owner(listener.inode, proc)
    return str(process) if process else f"a process of user {user(listener.uid)}"


def user(uid: int) -> str:
    """A user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _socket_inodes(pid: int, proc: Path) -> Iterator[int]:
    folder = proc / str(pid) / "fd"
    for descriptor in os.listdir(folder):
        try:
            target = os.readlink(folder / descriptor)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])


def _process(pid: int, proc: Path) -> Process:
    comm = (proc / str(pid) / "comm").read_text().strip()
    unit = ""
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "name=systemd"}:
            parts = [p for p in path.split("/") if p.endswith((".service", ".scope"))]
            unit = parts[0] if parts else unit
    return Process(pid, comm, unit)
