"""Deaths that need no real SGLang: refused starts, and failures of a GPU replayed through the whole path.

Units, systemd, journal and daemon are real.  Where a server has to serve first, the stand-in in
standin/ is the unit's main process; its log lines are made after recordings from a real GPU.
"""

import pytest

from tests.e2e.inquest import Inquest, Server, decisive, until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("standin")]

SPEC = """
model_path = "/var/lib/inquest/models/tiny"
port = {port}
python = "/usr/bin/python3"

[limits]
restart = "no"
timeout_stop = "10s"

[env]
PYTHONPATH = "/opt/standin"
"""


def test_illegal_memory_access_while_serving(inquest: Inquest, server: Server) -> None:
    replay = "/opt/recordings/illegal-access-while-serving.txt"
    server.put_spec(SPEC.format(port=30101) + f'STANDIN_DEATH = "replay {replay}"\n')
    run = server.serving()
    server.post_deadly("/die", {})
    crash = inquest.crash_of(run)
    assert (crash["cause"], crash["strength"]) == ("cuda-error", "confirmed")
    assert "CUDA error: an illegal memory access was encountered" in "\n".join(decisive(crash))
    assert crash["phase"] == "serving"
    # SGLang's kill of itself and the abort that followed are echoes.
    assert "SIGQUIT received" not in "\n".join(decisive(crash))


def test_cuda_out_of_memory_at_start(inquest: Inquest, server: Server) -> None:
    replay = "/opt/recordings/cuda-oom-at-start.txt"
    server.put_spec(SPEC.format(port=30102) + f'STANDIN_AT_START = "replay {replay}"\n')
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("cuda-oom", "confirmed")
    assert "CUDA out of memory. Tried to allocate 48.00 MiB" in "\n".join(decisive(crash))
    assert not crash["became_ready"]


def test_systemctl_kill_names_itself(inquest: Inquest, server: Server) -> None:
    server.put_spec(SPEC.format(port=30103))
    run = server.serving()
    inquest.machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", server.unit)
    crash = inquest.crash_of(run)
    assert (crash["cause"], crash["strength"]) == ("external-signal", "confirmed")
    assert "on client request" in "\n".join(decisive(crash))


def test_b8_alive_but_dead(inquest: Inquest, server: Server) -> None:
    """The unit is active and its main process lives; its child and its port are gone. Nobody would end it."""
    given_up = '[limits]\non_hang = "restart"\nhang_timeout = "25s"'
    server.put_spec(SPEC.format(port=30109).replace("[limits]", given_up) + 'STANDIN_DEATH = "linger"\n')
    run = server.serving()
    server.post_deadly("/die", {})
    silent = until(lambda: inquest.not_answering(server), f"{server.unit} is seen not to answer", seconds=30)
    assert server.show("ActiveState") == "active"
    assert server.current() == run
    listed = inquest.machine.run("inquest", "servers").stdout
    assert f"not answering since {silent[:19].replace('T', ' ')}" in listed
    crash = inquest.crash_of(run, seconds=60)
    assert (crash["cause"], crash["strength"]) == ("hang", "confirmed")
    # And nobody else: the step that the heartbeat comes from has ended too, and is no process of the server's.
    assert "(its health check met ConnectionRefusedError; sglang::schedul had ended)" in crash["summary"]


def test_a_port_that_is_taken_is_refused_before_the_start(inquest: Inquest, server: Server) -> None:
    # The webhook's receiver of this very test run holds it.
    server.put_spec(SPEC.format(port=9099))
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("preflight-refused", "confirmed")
    assert "9099" in "\n".join(decisive(crash))


def test_a_missing_model_is_refused_before_the_start(inquest: Inquest, server: Server) -> None:
    server.put_spec(SPEC.format(port=30105).replace("/models/tiny", "/models/nothing-here"))
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("preflight-refused", "confirmed")
    assert "/var/lib/inquest/models/nothing-here" in "\n".join(decisive(crash))


def test_a_wrong_interpreter_is_refused_before_the_start(inquest: Inquest, server: Server) -> None:
    server.put_spec(SPEC.format(port=30106).replace("/usr/bin/python3", "/opt/nowhere/bin/python"))
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("preflight-refused", "confirmed")
    assert "/opt/nowhere/bin/python" in "\n".join(decisive(crash))


def test_a_command_that_systemd_cannot_run(inquest: Inquest, server: Server) -> None:
    """A unit written by hand: the generated ones check the interpreter first."""
    unit = inquest.machine.root / "etc/systemd/system" / server.unit
    unit.write_text("[Service]\nExecStart=/opt/nowhere/bin/python -m sglang.launch_server\nType=exec\n")
    inquest.machine.run("systemctl", "daemon-reload")
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("exec-failure", "confirmed")
    assert "203/EXEC" in "\n".join(decisive(crash))


def test_a_spec_with_a_mistake_fails_in_plain_words(inquest: Inquest, server: Server) -> None:
    server.put_spec(SPEC.format(port=30108).replace("timeout_stop", "timeout_stopp"))
    assert server.start(check=False).returncode != 0
    status = inquest.machine.run("systemctl", "status", "--no-pager", server.unit, check=False).stdout
    assert "limits.timeout_stopp" in status
    assert "timeout_stop" in status
    # The others have their units all the same.
    assert inquest.server("demo").show("LoadState") == "loaded"
