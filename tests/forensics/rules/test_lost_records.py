"""D: what journald dropped, and cores that are absent, cut, or somewhere else, at the moment of death."""

import itertools

import pytest

from forensics.model import Verdict
from tests.cases.story import IDS, Journal, Life
from tests.forensics.rules.telling import SERVE, told


def dropped(j: Journal, unit: str, count: int = 412) -> None:
    """journald's word on its rate limit, for a unit."""
    j.write({"_TRANSPORT": "driver", "_PID": "402", "_COMM": "systemd-journal", "MESSAGE_ID": IDS["dropped"],
             "N_DROPPED": count, "OBJECT_SYSTEMD_UNIT": unit,
             "MESSAGE": f"Suppressed {count} messages from {unit}"})  # fmt: skip


def raised(j: Journal, life: Life) -> None:
    life.scheduler_raised(SERVE, "KeyError: 'lora'").self_kill()


def killed(j: Journal, life: Life) -> None:
    life.killed()


def shown(verdict: Verdict) -> bool:
    return any("rate limit: Suppressed 412 messages" in gap.reason for gap in verdict.gaps)


def test_d2_lines_dropped_in_the_window_lower_what_is_known_and_are_shown() -> None:
    """What was dropped may have been the first error."""

    def whole(j: Journal, life: Life) -> None:
        life.up()
        raised(j, life)

    def with_drop(j: Journal, life: Life) -> None:
        life.up()
        dropped(j, life.unit)
        raised(j, life)

    before, after = told(whole), told(with_drop)
    assert (before.cause, before.strength, shown(before)) == ("python-exception", "confirmed", False)
    assert (after.cause, after.strength, shown(after)) == ("python-exception", "likely", True)
    assert any("Part of the server's log is missing" in note for note in after.notes)


def test_d2_a_kill_is_nobody_s_where_the_server_s_words_were_dropped() -> None:
    """SGLang's announcement of its own kill may have been among them."""

    def with_drop(j: Journal, life: Life) -> None:
        life.up()
        dropped(j, life.unit)
        killed(j, life)

    verdict = told(with_drop)
    assert verdict.cause == "unexplained-kill"
    assert "rate limit" in verdict.summary
    assert shown(verdict)


def test_d2_told_after_the_end_it_counts_as_well() -> None:
    """journald tells only with the next line that it accepts of the unit."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        raised(j, life)
        j.wait(20)
        dropped(j, life.unit)

    verdict = told(story)
    assert (verdict.strength, shown(verdict)) == ("likely", True)


@pytest.mark.parametrize("which", ["another unit's", "of days before"])
def test_d2_what_cannot_hide_the_end_changes_nothing(which: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        dropped(j, "nginx.service" if which == "another unit's" else life.unit)
        life.wait(200_000 if which == "of days before" else 0).serve(2)
        raised(j, life)

    verdict = told(story)
    assert (verdict.cause, verdict.strength) == ("python-exception", "confirmed")


def test_d2_the_kernel_s_record_stands_whatever_was_dropped() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        dropped(j, life.unit)
        j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
        killed(j, life)

    verdict = told(story)
    assert (verdict.cause, verdict.strength) == ("kernel-oom", "confirmed")
    assert shown(verdict)


CORES = ("whole", "absent", "truncated", "of the container", "forwarded by the host")


def core(j: Journal, life: Life, kind: str, pid: int, comm: str, signal: int) -> None:
    """What systemd-coredump writes: inside, or for a container of the unit on the host, or forwarded by it."""
    if kind == "absent":
        return
    fields = {
        "_TRANSPORT": "journal", "_PID": pid + 900, "_COMM": "systemd-coredum", "_UID": "0",
        "_SYSTEMD_UNIT": f"systemd-coredump@1-{pid}-0.service", "MESSAGE_ID": IDS["core"], "COREDUMP_PID": pid,
        "COREDUMP_COMM": comm, "COREDUMP_SIGNAL": signal, "COREDUMP_UNIT": life.unit,
        "MESSAGE": f"Process {pid} ({comm}) of user 990 dumped core.",
    }  # fmt: skip
    if kind == "truncated":
        fields |= {"COREDUMP_TRUNCATED": "1"}
    elif kind == "of the container":
        fields |= {"COREDUMP_UNIT": "docker-4f2a.scope", "COREDUMP_CONTAINER_CMDLINE": "/usr/bin/containerd-shim"}
    elif kind == "forwarded by the host":
        fields |= {"COREDUMP_FORWARDED": "1"}
    j.write(fields)


@pytest.mark.parametrize(("signal", "victim"), list(itertools.product((6, 11), ("main", "scheduler"))))
def test_d4_the_class_does_not_hang_on_the_core(signal: int, victim: str) -> None:
    classes = set()
    for kind in CORES:

        def story(j: Journal, life: Life, kind: str = kind) -> None:
            life.up()
            pid, comm = (life.main, "python") if victim == "main" else (life.scheduler, "sglang::schedul")
            said = "Aborted" if signal == 6 else "Segmentation fault"
            life.line(f'Fatal Python error: {said}\n\nCurrent thread 0x00007f (most recent call first):\n'
                      '  File "/srv/eagle_worker.py", line 612 in verify', pid)  # fmt: skip
            core(j, life, kind, pid, comm, signal)
            if victim == "main":
                life.exit("killed" if kind == "absent" else "dumped", signal).failed("core-dump")
            else:
                life.wait(0.6).subprocess_died(-signal).self_kill()

        verdict = told(story, f"d4-{kind}")
        classes.add((verdict.cause, verdict.strength, verdict.subclass, verdict.fingerprint))
    assert len(classes) == 1
    assert {(cause, subclass) for cause, _, subclass, _ in classes} == {
        ("native-crash", f"{'sigabrt' if signal == 6 else 'sigsegv'}-{victim}")
    }


@pytest.mark.parametrize("kind", ["absent", "of the container"])
def test_d4_a_child_of_which_only_main_tells_is_one_all_the_same(kind: str) -> None:
    """Without faulthandler's words and without a core there is main's word on its status."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        core(j, life, kind, life.scheduler, "sglang::schedul", 11)
        life.wait(0.6).subprocess_died(-11).self_kill()

    verdict = told(story)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("native-crash", "likely", "sigsegv-scheduler")


def test_d4_a_core_of_a_helper_is_not_the_server_s() -> None:
    """A compiler crashes in the unit; the server serves on, and is killed later."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        core(j, life, "whole", life.scheduler + 300, "cicc", 11)
        life.serve(100)
        killed(j, life)

    assert told(story).cause == "external-signal"
