"""Every death with every pair of things that look like another: the truth stands by construction, and is found."""

import itertools
import random
from collections.abc import Callable

import pytest

from forensics.model import Strength, Verdict
from tests.cases.story import IDS, Journal, Life
from tests.forensics.rules.telling import SERVE, told

Happening = Callable[[Journal, Life], object]

# --- how it really ended ------------------------------------------------------------------------------------------


def _memcg_main(j: Journal, life: Life) -> None:
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")


def _global_child(j: Journal, life: Life) -> None:
    j.oom(life.cgroup, life.scheduler, "sglang::schedul")
    life.counted_oom().wait(0.7).subprocess_died(-9).self_kill()


def _oomd(j: Journal, life: Life) -> None:
    life.pid1(f"{life.unit}: systemd-oomd killed 3 process(es) in this unit.", "oomd").killed(9, "oom-kill")


def _kill_main(j: Journal, life: Life) -> None:
    life.killed()


def _kill_child(j: Journal, life: Life) -> None:
    life.subprocess_died(-9).self_kill()


def _term(j: Journal, life: Life) -> None:
    life.sigterm().wait(2).drain(0).success()


def _client_kill(j: Journal, life: Life) -> None:
    life.client_kill("SIGKILL").killed()


def _stop(j: Journal, life: Life) -> None:
    life.stopping().sigterm().wait(2).drain(0).success().stopped()


def _stop_timeout(j: Journal, life: Life) -> None:
    life.stopping().sigterm().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()


def _exception(j: Journal, life: Life) -> None:
    life.scheduler_raised(SERVE, "ZeroDivisionError: division by zero").self_kill()


def _watchdog(j: Journal, life: Life) -> None:
    life.wait(60).pid1(f"{life.unit}: Watchdog timeout (limit 1min)!").systemd_kills(signal="SIGABRT")
    life.exit("dumped", 6).failed("watchdog")


def _crash(j: Journal, life: Life) -> None:
    life.core(life.scheduler, "sglang::schedul").wait(0.5).subprocess_died(-11).self_kill()


def _silent(j: Journal, life: Life) -> None:
    life.exit("exited", 1).failed("exit-code")


ENDS: dict[str, tuple[Happening, str]] = {
    "memcg-main": (_memcg_main, "kernel-oom"),
    "global-child": (_global_child, "kernel-oom"),
    "oomd": (_oomd, "userspace-oom-kill"),
    "kill-main": (_kill_main, "external-signal"),
    "kill-child": (_kill_child, "external-signal"),
    "term": (_term, "external-signal"),
    "systemctl-kill": (_client_kill, "external-signal"),
    "stop": (_stop, "clean-stop"),
    "stop-timeout": (_stop_timeout, "stop-timeout"),
    "exception": (_exception, "python-exception"),
    "watchdog": (_watchdog, "hang"),
    "core": (_crash, "native-crash"),
    "exit-1": (_silent, "silent-exit"),
}

# --- what only looks like something -------------------------------------------------------------------------------


def _neighbour_oom(j: Journal, life: Life) -> None:
    j.oom("/system.slice/etl.service", 911, "python", limit="/system.slice")
    j.pid1("etl.service: A process of this unit has been killed by the OOM killer.", "oom", UNIT="etl.service",
           INVOCATION_ID="ee" * 16)  # fmt: skip


def _users_unit(j: Journal, life: Life) -> None:
    j.oom(f"/user.slice/user-1000.slice/user@1000.service/app.slice/{life.unit}", 81234, "python3")


def _neighbour_earlyoom(j: Journal, life: Life) -> None:
    j.service("earlyoom.service", 'sending SIGKILL to process 912 uid 990 "python": oom_score 913, x')


def _neighbour_stops(j: Journal, life: Life) -> None:
    j.pid1("Stopping sglang-birch.service...", "stopping", UNIT="sglang-birch.service", INVOCATION_ID="cd" * 16)
    j.pid1("sglang-birch.service: State 'stop-sigterm' timed out. Killing.", UNIT="sglang-birch.service",
           INVOCATION_ID="cd" * 16)  # fmt: skip


def _prints_the_kernels_words(j: Journal, life: Life) -> None:
    life.line(
        f"Memory cgroup out of memory: Killed process {life.main} (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
    )
    life.line(f"python[{life.main}]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[7f+1]")


def _prints_pid_1s_words(j: Journal, life: Life) -> None:
    life.line(f"{life.unit}: Watchdog timeout (limit 30s)!").line(f"Stopping {life.title}...")
    life.line(f"{life.unit}: State 'stop-sigterm' timed out. Killing.")


def _sends_pid_1s_fields(j: Journal, life: Life) -> None:
    for message_id in ("stopping", "oom", "oomd"):
        j.service("evil.service", "x", MESSAGE_ID=IDS[message_id], UNIT=life.unit, _TRANSPORT="journal",
                  INVOCATION_ID=life.invocation_id)  # fmt: skip


def _writes_to_kmsg(j: Journal, life: Life) -> None:
    text = f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python,pid={life.main},uid=0"
    j.write({"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "sh", "MESSAGE": text})


def _answers_an_error(j: Journal, life: Life) -> None:
    life.raised("entrypoints/http_server.py:310 in generate", "ValueError: the prompt is too long").serve(2)


def _helper_oom(j: Journal, life: Life) -> None:
    j.oom(life.cgroup, 7801, "py-spy", limit=life.cgroup)
    life.counted_oom().serve(2).wait(400).serve(2)


def _reloaded_by_hand(j: Journal, life: Life) -> None:
    life.client_kill("SIGHUP").serve(2).wait(400).serve(2)


def _soft_watchdog(j: Journal, life: Life) -> None:
    life.sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)").serve(2).wait(200).serve(2)


def _called_off_reboot(j: Journal, life: Life) -> None:
    j.service("systemd-logind.service", "The system will reboot now!", comm="systemd-logind", _TRANSPORT="journal",
              MESSAGE_ID="98268866d1d54a499c4e98921d93bc40")  # fmt: skip
    life.serve(2).wait(4000).serve(2)


def _helper_core(j: Journal, life: Life) -> None:
    life.core(7802, "nvcc").serve(2).wait(400).serve(2)


DECOYS: tuple[Happening, ...] = (
    _neighbour_oom, _users_unit, _neighbour_earlyoom, _neighbour_stops, _prints_the_kernels_words,
    _prints_pid_1s_words, _sends_pid_1s_fields, _writes_to_kmsg, _answers_an_error, _helper_oom, _reloaded_by_hand,
    _soft_watchdog, _called_off_reboot, _helper_core,
)  # fmt: skip


def judged(end: str, decoys: tuple[Happening, ...], *, behind: bool = False) -> Verdict:
    """The verdict on this end, a moment after these; with `behind` the neighbours' records come right after it too."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        for decoy in decoys:
            decoy(j, life)
        j.wait(0.2)
        ENDS[end][0](j, life)
        if behind:
            j.wait(0.05)
            _neighbour_oom(j, life)
            _neighbour_earlyoom(j, life)

    return told(story, end)


def names(decoys: tuple[Happening, ...]) -> str:
    return " + ".join(decoy.__name__.strip("_") for decoy in decoys)


@pytest.mark.parametrize("end", ENDS)
def test_with_any_two_decoys_the_truth_is_found(end: str) -> None:
    plain = judged(end, ())
    wrong = {}
    for number, decoys in enumerate((*((one,) for one in DECOYS), *itertools.combinations(DECOYS, 2))):
        verdict = judged(end, decoys if number % 2 else decoys[::-1], behind=number % 3 == 0)
        if (verdict.cause, verdict.subclass, verdict.strength) != (ENDS[end][1], plain.subclass, plain.strength):
            wrong[names(decoys)] = f"{verdict.cause} {verdict.strength}: {verdict.summary}"
    assert wrong == {}


@pytest.mark.parametrize("seed", range(10))
def test_with_a_heap_of_decoys_nothing_wrong_is_confirmed(seed: int) -> None:
    chance = random.Random(seed)
    for end, (_, cause) in ENDS.items():
        heap = tuple(chance.sample(DECOYS, chance.randint(3, 8)))
        verdict = judged(end, heap, behind=chance.random() < 0.5)
        assert verdict.cause == cause or verdict.strength is not Strength.CONFIRMED, (end, names(heap), verdict.summary)
