"""Who listens on a port: the kernel's tables read on this machine, and from a small tree."""

import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.listeners import Listener, Process, holder, listeners, owner, owns, user


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_listening_socket_is_found(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        port = sock.getsockname()[1]
        assert listeners(port) == ()
        sock.listen()
        (found,) = listeners(port)
        assert (str(found.address), found.port, found.uid) == (host, port, os.getuid())
        assert owns([os.getpid()], found.inode) is True
        process = owner(found.inode)
        assert process is not None
        assert process.pid == os.getpid()
    assert listeners(port) == ()


def test_another_process_owns_it(serve: Callable[..., tuple[subprocess.Popen[str], int]]) -> None:
    process, port = serve()
    (found,) = listeners(port)
    assert owns([os.getpid()], found.inode) is False
    assert owns([os.getpid(), process.pid], found.inode) is True
    assert holder(found).startswith(f"pid {process.pid} (python")


def test_ended_process_owns_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert owns([process.pid], 1) is False


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_kernel_table_is_read(tmp_path: Path) -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    rest = "00000000:00000000 00:00000000 00000000"
    proc = tree(
        tmp_path,
        self__net__tcp=head
        + f"   0: 0100007F:7530 00000000:0000 0A {rest}  1002 0 4242 1 0 100 0 0 10 0\n"
        + f"   1: 0100007F:7530 0100007F:9C40 01 {rest}  1002 0 4243 1 0 100 0 0 10 0\n"  # a connection
        + f"   2: 00000000:7531 00000000:0000 0A {rest}  1002 0 4244 1 0 100 0 0 10 0\n",  # another port
        self__net__tcp6=head + f"   0: {'0' * 32}:7530 {'0' * 32}:0000 0A {rest}     0 0 4245 1 0 100 0 0 10 0\n",
    )
    assert listeners(30000, proc) == (
        Listener(ipaddress.ip_address("127.0.0.1"), 30000, 1002, 4242),
        Listener(ipaddress.ip_address("::"), 30000, 0, 4245),
    )


def test_machine_without_ipv6(tmp_path: Path) -> None:
    assert listeners(30000, tree(tmp_path, self__net__tcp="head\n")) == ()


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/sglang.slice/sglang-demo.service\n", "sglang-demo.service"),
        ("1:name=systemd:/system.slice/ssh.service\n0::/\n", "ssh.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user@1000.service/app.slice/x.service\n", "user@1000.service"),
        ("0::/\n", ""),
    ],
)
def test_owner_has_its_unit(tmp_path: Path, cgroup: str, unit: str) -> None:
    proc = tree(tmp_path, **{"77__comm": "python3\n", "77__cgroup": cgroup})
    (proc / "77/fd").mkdir()
    (proc / "77/fd/3").symlink_to("socket:[4242]")
    (proc / "77/fd/4").symlink_to("/dev/null")
    assert owner(4242, proc) == Process(77, "python3", unit)
    assert owner(4243, proc) is None


def test_unseen_owner_is_named_by_its_user() -> None:
    nobody_has_it = Listener(ipaddress.ip_address("127.0.0.1"), 1, 0, 2**31)
    assert holder(nobody_has_it) == "a process of user root"


def test_user_without_a_name() -> None:
    assert user(4_000_000_000) == "4000000000"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_other_users_sockets_cannot_be_seen(serve: Callable[..., tuple[subprocess.Popen[str], int]]) -> None:
    process, port = serve()
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[3]); from service.listeners import listeners, owns, owner\n"
        "os.setresuid(65534, 65534, 65534); found, = listeners(int(sys.argv[1]))\n"
        "print(owns([int(sys.argv[2])], found.inode), owner(found.inode))"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, str(port), str(process.pid), root], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None None\n"
