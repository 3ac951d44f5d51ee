"""Real SGLang with speculative decoding under its generated unit: how it lives, and each way it dies.

A start takes half a minute or more, so that the tests share lives: what one has killed systemd starts
again, and the next waits for that.  The order matters for time only.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.host import ROOTFS
from tests.e2e.inquest import Inquest, Server, decisive, until

pytestmark = [pytest.mark.e2e, pytest.mark.sglang]

DEMO = (ROOTFS / "etc/inquest/servers/demo.toml").read_text()
LONG = {"max_new_tokens": 1500, "temperature": 0, "ignore_eos": True}
HANG = "/var/lib/sglang/hang"
# As demo.toml, but: many deaths are wanted, a stop has little time, a request can be made endless, and
# of the 66 s that SGLang takes to die after a child failed, those for a CUDA core dump are left out.
TESTED = (
    DEMO.replace("[limits]", "[limits]\nstart_limit_burst = 100").replace('"90s"', '"12s"')
    + f"""
SGLANG_CPU_HANG_FILE = "{HANG}"
SGLANG_CUDA_COREDUMP_BEFORE_CRASH = "0"
SGLANG_PYSPY_DUMP_BEFORE_CRASH = "0"
"""
)
ONCE = TESTED.replace("[limits]", '[limits]\nrestart = "no"').replace("port = 30000", "port = 30001")


@pytest.fixture
def tested(demo: Server) -> Server:
    """The demonstration server with the tests' settings; editing its TOML is all that it takes."""
    if demo.spec != TESTED:
        demo.put_spec(TESTED)
    return demo


def test_answers_a_completion(demo: Server) -> None:
    demo.serving()
    answer = demo.post("/v1/completions", {"model": "demo", "prompt": "the quick brown fox", "max_tokens": 64})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] > 0


def test_decodes_speculatively(demo: Server) -> None:
    answer = demo.post(
        "/generate",
        {"text": "the quick brown fox", "sampling_params": {**LONG, "max_new_tokens": 200}},
    )
    assert answer.json()["meta_info"]["spec_accept_length"] > 1


def test_sigterm_is_a_clean_stop_and_no_crash(inquest: Inquest, demo: Server) -> None:
    run = demo.current()
    demo.stop()
    assert demo.show("Result") == "success"
    clean = inquest.clean_end_of(run)
    assert (clean["cause"], clean["is_crash"]) == ("clean-stop", False)
    assert run.invocation_id not in [crash["invocation_id"] for crash in inquest.crashes()]
    assert inquest.alerts(run) == []


@pytest.fixture
def hang(tested: Server) -> Iterator[Path]:
    """A file: the model hangs as long as it exists."""
    path = tested.machine.root / HANG.lstrip("/")
    yield path
    path.unlink(missing_ok=True)


def test_stop_timeout_under_an_endless_request(inquest: Inquest, tested: Server, hang: Path) -> None:
    run = tested.serving()
    with tested.stream("/generate", {"text": "the quick", "stream": True, "sampling_params": LONG}) as lines:
        next(lines)
        hang.touch()
        tested.stop()
    crash = inquest.crash_of(run)
    assert (crash["cause"], crash["strength"]) == ("stop-timeout", "confirmed")
    assert "State 'stop-sigterm' timed out. Killing." in "\n".join(decisive(crash))
    assert crash["became_ready"]


def test_kill_9_of_main_from_outside(inquest: Inquest, tested: Server) -> None:
    run = tested.serving()
    tested.kill(run.main_pid, "KILL")
    crash = inquest.crash_of(run)
    # Nothing on this machine records who sent a signal: more than likely it cannot be.
    assert (crash["cause"], crash["strength"]) == ("external-signal", "likely")
    assert crash["subclass"] == "sigkill-main"
    assert "Main process exited, code=killed, status=9/KILL" in "\n".join(decisive(crash))
    assert "kernel-oom" in {other["cause"] for other in crash["ruled_out"]}
    assert "kernel" in {gap["source"] for gap in crash["gaps"]}
    (alert,) = inquest.told(run)
    assert alert["crash"]["cause"] == "external-signal"


def test_sigkill_of_the_scheduler_child(inquest: Inquest, tested: Server) -> None:
    run = tested.serving()
    scheduler = tested.child("sglang::scheduler")
    tested.kill(scheduler, "KILL")
    crash = inquest.crash_of(run, seconds=120)
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("external-signal", "likely", "sigkill-child")
    assert f"(pid={scheduler}) crashed with exit code -9" in "\n".join(decisive(crash))


def test_traceback_while_serving(inquest: Inquest, tested: Server) -> None:
    run = tested.serving()
    # A token beyond the vocabulary is not validated: the forward pass of the whole server dies of it.
    tested.post_deadly("/generate", {"input_ids": [1, 5000, 3], "sampling_params": {"max_new_tokens": 4}})
    crash = inquest.crash_of(run, seconds=120)
    assert (crash["cause"], crash["strength"]) == ("python-exception", "confirmed")
    assert "IndexError: index out of range in self" in "\n".join(decisive(crash))
    assert crash["phase"] == "serving"


def test_a_death_while_the_daemon_is_down_is_found_once(inquest: Inquest, tested: Server) -> None:
    run = tested.serving()
    daemon = inquest.daemon_pid()
    tested.machine.run("bash", "-c", f"kill -9 {daemon} && kill -9 {run.main_pid}")
    until(lambda: inquest.daemon_pid() not in (0, daemon), "systemd starts inquestd again", seconds=30)
    until(inquest.answers, "inquestd answers again", seconds=30)
    crash = inquest.crash_of(run, seconds=60)
    assert "Main process exited, code=killed, status=9/KILL" in "\n".join(decisive(crash))
    (alert,) = inquest.told(run)
    assert alert["crash"]["id"] == crash["id"]


def test_a_death_at_full_length(inquest: Inquest, demo: Server) -> None:
    """SIGKILL of the detokenizer: main lives for 65 s more, hoping for a core dump of a GPU."""
    demo.put_spec(DEMO)
    run = demo.serving()
    detokenizer = demo.child("sglang::detokenizer")
    demo.kill(detokenizer, "KILL")
    crash = inquest.crash_of(run, seconds=180)
    assert (crash["cause"], crash["strength"], crash["subclass"]) == ("external-signal", "likely", "sigkill-child")
    assert f"(pid={detokenizer}) crashed with exit code -9" in "\n".join(decisive(crash))
    demo.stop()


def test_traceback_at_start(inquest: Inquest, server: Server) -> None:
    server.put_spec(ONCE.replace("max_total_tokens = 4096", "max_total_tokens = 1"))
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("configuration-error", "confirmed")
    assert "AssertionError: max_running_request is zero" in "\n".join(decisive(crash))
    assert not crash["became_ready"]


def test_a_value_that_sglang_does_not_take(inquest: Inquest, server: Server) -> None:
    """Only SGLang itself can tell: what is wrong by name alone, the check before the start refuses."""
    server.put_spec(f'extra_args = ["--tokenizer-worker-num", "many"]\n{ONCE}')
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("configuration-error", "confirmed")
    assert "argument --tokenizer-worker-num: invalid int value: 'many'" in "\n".join(decisive(crash))


def test_an_option_that_sglang_does_not_know_is_refused_before_the_start(inquest: Inquest, server: Server) -> None:
    server.put_spec(f'extra_args = ["--mem-fraction-statik", "0.3"]\n{ONCE}')
    assert server.start(check=False).returncode != 0
    crash = inquest.newest_crash(server)
    assert (crash["cause"], crash["strength"]) == ("preflight-refused", "confirmed")
    assert "--mem-fraction-statik" in "\n".join(decisive(crash))
