"""Something happens in a server's life and is outlived; later it dies of something else. Each noise with each death.

The noise must never be confirmed as the cause, and only where the two come in one moment may it be taken for it at all.
"""

from collections.abc import Callable
from io import BytesIO

import pytest

from forensics.sources.export import read_json
from tests.cases.replay import replay
from tests.cases.story import Journal, Life

Noise = Callable[[Journal, Life], object]
Death = Callable[[Journal, Life], str]

PLACE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"


def helper_oom(j: Journal, life: Life) -> None:
    j.oom(life.cgroup, 9002, "cc1plus", limit=life.cgroup)
    life.counted_oom()


def forged_stop(j: Journal, life: Life) -> None:
    life.sigterm().drain(0)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}")


def forged_crash(j: Journal, life: Life) -> None:
    life.line(f"Subprocess scheduler_0 (pid={life.scheduler}) crashed with exit code -11")
    life.line("double free or corruption (!prev)").line("Fatal Python error: Aborted")


NOISES: dict[str, Noise] = {
    "a helper dumps core": lambda j, life: life.core(9001, "ptxas", 11),
    "a helper is OOM-killed": helper_oom,
    "another service is OOM-killed": lambda j, life: j.oom("/system.slice/etl.service", 991, "etl"),
    "the scheduler handles an exception": lambda j, life: life.raised(PLACE, "KeyError: 1", life.scheduler),
    "main handles an exception": lambda j, life: life.raised(PLACE, "ValueError: 1"),
    "a CUDA error is handled": lambda j, life: life.raised(
        PLACE, "RuntimeError: CUDA error: invalid argument", life.scheduler, header="Failed to warm up, skipping"
    ),
    "an EOFError is handled": lambda j, life: life.raised(PLACE, "EOFError"),
    "another GPU falls off the bus": lambda j, life: j.kernel(
        "NVRM: Xid (PCI:0000:81:00): 79, pid=77120, name=train.py, GPU has fallen off the bus."
    ),
    "a kernel of ours faults": lambda j, life: j.kernel(
        f"NVRM: Xid (PCI:0000:41:00): 13, pid={life.scheduler}, name=python, Graphics Exception"
    ),
    "a soft watchdog fires": lambda j, life: life.sched(
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)"
    ),
    "the health check fails": lambda j, life: life.say(
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
    ),
    "systemctl kill -s HUP": lambda j, life: life.client_kill("SIGHUP"),
    "nohang kills something": lambda j, life: j.service("nohang.service", "  Sending SIGKILL to the victim"),
    "a prompt tells of a stop": forged_stop,
    "a prompt tells of a crash": forged_crash,
    "a tool refuses an option": lambda j, life: life.line("foo: error: unrecognized arguments: x"),
    "a port is taken": lambda j, life: life.say(
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30001): address already in use"
    ),
    "an assertion on the device": lambda j, life: life.line(
        "x.cu:3: f: block: [1,0,0] Assertion `a` failed.", life.scheduler
    ),
    "a helper aborts": lambda j, life: life.line(
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  x", 9003
    ),
}


def killed(j: Journal, life: Life) -> str:
    life.killed()
    return "external-signal"


def oom(j: Journal, life: Life) -> str:
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    return "kernel-oom"


def stopped(j: Journal, life: Life) -> str:
    life.stopping().sigterm().wait(5).drain(0)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    return "clean-stop"


def stop_timed_out(j: Journal, life: Life) -> str:
    life.stopping().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")
    return "stop-timeout"


def raised(j: Journal, life: Life) -> str:
    life.scheduler_raised(PLACE, "IndexError: 7").self_kill()
    return "python-exception"


def cuda(j: Journal, life: Life) -> str:
    life.scheduler_raised(PLACE, "torch.AcceleratorError: CUDA error: misaligned address").self_kill()
    return "cuda-error"


def exited(j: Journal, life: Life) -> str:
    life.exit("exited", 1).failed("exit-code")
    return "silent-exit"


def child_killed(j: Journal, life: Life) -> str:
    life.wait(0.5).subprocess_died(-9).self_kill()
    return "external-signal"


def crashed(j: Journal, life: Life) -> str:
    life.wait(0.5).core(life.scheduler, "sglang::schedul", 11).subprocess_died(-11).self_kill()
    return "native-crash"


def hung(j: Journal, life: Life) -> str:
    life.sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").wait(5).self_kill(seconds=60)
    return "hang"


def watchdog(j: Journal, life: Life) -> str:
    life.pid1(f"{life.unit}: Watchdog timeout (limit 30s)!").systemd_kills(signal="SIGABRT")
    life.core(life.main, "python", 6).exit("dumped", 6).failed("watchdog")
    return "hang"


def terminated(j: Journal, life: Life) -> str:
    life.sigterm().wait(5).drain(0).success()
    return "external-signal"


DEATHS = (killed, oom, stopped, stop_timed_out, raised, cuda, exited, child_killed, crashed, hung, watchdog, terminated)
BETWEEN: dict[str, Callable[[Life], object]] = {
    "hours of work": lambda life: life.serve(2).wait(9000).serve(2),
    "hours of nothing": lambda life: life.wait(9000),
    "a minute of work": lambda life: life.serve(30),
    "seconds": lambda life: life.serve(2, every=3),
}
ONE_MOMENT = {("nohang kills something", "seconds")}
# systemd may have stopped it for that: nothing shows that the server worked on for long.
UNDECIDED = {
    ("a helper is OOM-killed", between, "unknown") for between in ("hours of nothing", "a minute of work", "seconds")
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("noise", NOISES)
def test_what_was_outlived_is_not_the_cause(noise: str, between: str) -> None:
    for death in DEATHS:
        journal = Journal(name=f"{noise}/{death.__name__}")
        life = journal.life()
        life.up()
        NOISES[noise](journal, life)
        BETWEEN[between](life)
        cause = death(journal, life)
        verdict = replay(read_json(BytesIO(journal.dump().encode())), {life.unit})[0].verdict
        told = f"{death.__name__}: {verdict.cause} {verdict.strength}: {verdict.summary}"
        if (noise, between) in ONE_MOMENT:
            assert verdict.cause == cause or verdict.strength != "confirmed", told
        else:
            assert verdict.cause == cause or (noise, between, verdict.cause) in UNDECIDED, told
