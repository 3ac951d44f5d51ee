"""Who sent the signal, asked of a real kernel: inquest-sigtrace.service beside inquestd in a virtual machine.

The server is a stand-in; its unit, systemd, the kernel's tracing, the tracer under its unit's restrictions and inquestd
are real.
"""

import json

import pytest

from tests.e2e.inquest import decisive
from tests.e2e.vm.conftest import VmServer

pytestmark = [pytest.mark.e2e, pytest.mark.vm]

INSTANCES = "/sys/kernel/tracing/instances"


@pytest.fixture
def traced(server: VmServer) -> VmServer:
    """The machine does without this mount to start sooner; others have it."""
    server.vm.run("mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing")
    server.vm.run("systemctl", "start", "inquest-sigtrace.service")
    return server


def test_a_kill_from_another_unit_is_confirmed_and_names_its_sender(traced: VmServer) -> None:
    main = traced.start("allocate main", "")
    # The sleep keeps the sender until it was looked at, which takes this emulated machine long.
    script = f"kill -9 {main}; sleep 2"
    traced.vm.run("systemd-run", "--wait", "--unit=nightly-cleanup", "--uid=sglang", "/bin/sh", "-c", script)
    crash = traced.crash()
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("external-signal", "confirmed", "sigkill-main")
    uid = traced.vm.run("id", "-u", "sglang").strip()
    assert f"SIGKILL to the main process {main} (python3) by pid" in crash["summary"]
    assert f"(sh, `/bin/sh -c {script}`, uid {uid}, nightly-cleanup.service" in crash["summary"]
    assert f"SIGKILL to python3 [{main}] of {traced.unit} by sh" in "\n".join(decisive(crash))

    # Root without a capability, nothing left behind, and the end is told.
    pid = traced.vm.run("systemctl", "show", "inquest-sigtrace", "--property=MainPID", "--value").strip()
    assert "CapEff:\t0000000000000000" in traced.vm.run("cat", f"/proc/{pid}/status")
    assert traced.vm.run("ls", INSTANCES).split() == ["inquest"]
    traced.vm.run("systemctl", "stop", "inquest-sigtrace.service")
    assert traced.vm.run("ls", INSTANCES).split() == []
    assert "the tracer was stopped" in traced.vm.run("journalctl", "--output=cat", "--identifier=inquest-sigtrace")


def test_a_child_killed_from_outside_and_the_servers_own_kill_of_itself(traced: VmServer) -> None:
    main = traced.start("allocate main", "")
    child = traced.child()
    traced.vm.run("/bin/sh", "-c", f"kill -9 {child}; sleep 2")
    crash = traced.crash()
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("external-signal", "confirmed", "sigkill-child")
    assert f"SIGKILL to sglang::schedul [{child}] of {traced.unit} by sh" in "\n".join(decisive(crash))
    teardown = [piece for piece in crash["evidence"] if piece["kind"] == "signal-sent" and piece["role"] == "teardown"]
    assert [piece["message"].startswith(f"SIGKILL to python3 [{main}]") for piece in teardown] == [True]
    assert "sent by the process itself" in teardown[0]["why"]


def test_the_oom_killer_is_seen_at_work(traced: VmServer) -> None:
    main = traced.start("allocate main", 'memory_max = "96M"')
    traced.die()
    crash = traced.crash()
    assert (crash["cause"], crash["strength"]) == ("kernel-oom", "confirmed")
    assert f"SIGKILL to python3 [{main}] of {traced.unit} by the kernel" in "\n".join(decisive(crash))


def test_a_killed_tracer_comes_back_and_the_run_no_longer_counts_as_watched(traced: VmServer) -> None:
    traced.start("allocate main", "")
    tracer = traced.vm.run("systemctl", "show", "inquest-sigtrace", "--property=MainPID", "--value").strip()
    traced.vm.run("/bin/sh", "-c", f"kill -KILL {tracer}")
    traced.vm.run("systemctl", "start", "inquest-sigtrace.service")
    records = [
        json.loads(line)
        for line in traced.vm.run(
            "journalctl",
            "--output=json",
            "_SYSTEMD_UNIT=inquest-sigtrace.service",
            f"INQUEST_TARGET_UNIT={traced.unit}",
        ).splitlines()
    ]
    since = [int(record["INQUEST_SINCE_USEC"]) for record in records if "INQUEST_SINCE_USEC" in record]
    assert len(since) == 2
    assert since[0] < since[1], "the second tracer must not vouch for the time before it"


def test_sigterm_from_outside_names_its_sender(traced: VmServer) -> None:
    """It drains and leaves with status 0, which systemd calls a success and does not log."""
    main = traced.start("allocate main", "")
    script = f"kill -TERM {main}; sleep 2"
    traced.vm.run("systemd-run", "--wait", "--unit=tidy-up", "/bin/sh", "-c", script)
    crash = traced.crash()
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("external-signal", "confirmed", "sigterm-main")
    assert f"SIGTERM to the main process {main} (python3) by pid" in crash["summary"]
    assert "tidy-up.service" in crash["summary"]


def test_a_stop_that_timed_out_is_proven_by_systemds_own_signal(traced: VmServer) -> None:
    patience = "[Service]\nTimeoutStopSec=4s\nEnvironment=STANDIN_DRAINS=1\n"
    traced.vm.put({f"/etc/systemd/system/{traced.unit}.d/patience.conf": patience})
    main = traced.start("allocate main", "")
    traced.vm.run("systemctl", "stop", traced.unit)
    crash = traced.crash()
    assert (crash["cause"], crash["strength"]) == ("stop-timeout", "confirmed")
    (kill,) = [piece for piece in crash["evidence"] if piece["kind"] == "signal-sent"]
    assert kill["role"] == "teardown"
    assert kill["message"].startswith(f"SIGKILL to python3 [{main}] of {traced.unit} by systemd [1]")
    assert kill["why"] == "traced: sent by systemd (pid 1)"
