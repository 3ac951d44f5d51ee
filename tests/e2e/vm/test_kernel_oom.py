"""The kernel's out-of-memory killer at work on a server's unit, in a virtual machine.

The server is a stand-in that takes memory; its unit, systemd, the kernel and inquestd are real.
"""

import json

import pytest

from tests.e2e.inquest import decisive
from tests.e2e.vm.conftest import VmServer

pytestmark = [pytest.mark.e2e, pytest.mark.vm]


def test_main_over_the_units_limit(server: VmServer) -> None:
    main = server.start("allocate main", 'memory_max = "96M"')
    server.die()
    crash = server.crash()
    assert (crash["cause"], crash["strength"]) == ("kernel-oom", "confirmed")
    assert "memcg" in crash["subclass"]
    assert f"Memory cgroup out of memory: Killed process {main} (python3)" in "\n".join(decisive(crash))


def test_a_child_over_the_units_limit(server: VmServer) -> None:
    server.start("allocate child", 'memory_max = "96M"\noom_policy = "continue"')
    child = server.child()
    server.die()
    crash = server.crash()
    assert (crash["cause"], crash["strength"]) == ("kernel-oom", "confirmed")
    assert "child" in crash["subclass"]
    assert f"Killed process {child} (sglang::schedul)" in "\n".join(decisive(crash))


def test_the_whole_machine_out_of_memory(server: VmServer) -> None:
    main = server.start("allocate main", "")
    server.die()
    crash = server.crash()
    assert (crash["cause"], crash["strength"]) == ("kernel-oom", "confirmed")
    assert "global" in crash["subclass"]
    assert f"Out of memory: Killed process {main} (python3)" in "\n".join(decisive(crash))


def test_kill_9_is_told_from_an_oom_kill_where_the_kernels_log_is_read(server: VmServer) -> None:
    main = server.start("allocate main", "")
    server.vm.run("kill", "-KILL", str(main))
    crash = server.crash()
    assert crash["cause"] == "external-signal"
    assert "Main process exited, code=killed, status=9/KILL" in "\n".join(decisive(crash))
    assert "kernel-oom" in {other["cause"] for other in crash["ruled_out"]}


def test_a_drill_over_the_units_limit(server: VmServer) -> None:
    """What a container has no controller for: tests/e2e/test_terminal.py has the other deaths."""
    drilled = server.vm.run("sh", "-c", "inquest drill --cause kernel-oom --format json 2>/dev/null")
    (played,) = json.loads(drilled)["deaths"]
    assert (played["outcome"], played["verdict"], played["told"]) == ("right", "kernel-oom, confirmed", True)
