"""The edges of single conditions: what lies just beside one is another cause, or no evidence of this one."""

from io import BytesIO

import pytest

from forensics.events import Gap, Xid
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.replay import judge
from tests.cases.story import Journal, Life
from tests.forensics.rules.telling import SERVE, told, verdict_on


@pytest.mark.parametrize("ours", [True, False])
def test_only_an_xid_of_our_own_process_is_evidence_of_our_cuda_error(*, ours: bool) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        pid = life.scheduler if ours else 31
        j.kernel(f"NVRM: Xid (PCI:0000:c1:00): 13, pid={pid}, name=python, Graphics Exception: ESR 0x50")
        life.wait(0.2).scheduler_raised(SERVE, "RuntimeError: CUDA error: an illegal memory access was encountered")
        life.self_kill()

    verdict = told(story)
    assert verdict.cause == "cuda-error"
    assert [type(piece.event) for piece in verdict.evidence].count(Xid) == ours


@pytest.mark.parametrize(
    ("seconds", "died", "cause"),
    [(0.1, None, "kernel-oom"), (30.0, None, "unexplained-kill"), (0.1, -9, "kernel-oom"), (0.1, -11, "native-crash")],
)
def test_a_counted_kill_is_of_its_own_moment_and_of_no_other_signal(
    seconds: float, died: int | None, cause: str
) -> None:
    """Without the kernel's log: systemd counted a kill, and some time later main lost a child."""
    journal = Journal(name="counted")
    journal.gap("kernel", "not read")
    life = journal.life()
    life.up().counted_oom().wait(seconds)
    if died is None:
        life.say("Rank 0 scheduler is dead. Please check if there are relevant logs.").self_kill(serving=False)
    else:
        life.subprocess_died(died).self_kill()
    verdict = verdict_on(journal, life).verdict
    assert verdict.cause == cause
    assert verdict.strength != "confirmed"


def test_a_status_of_nine_is_no_sigkill_although_a_kill_was_counted() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().exit("exited", 9).remains("exit-code", "exited", "9", oom_kill=1).failed("exit-code")

    assert told(story).cause == "silent-exit"


@pytest.mark.parametrize(
    ("code", "cause"),
    [(-9, "userspace-oom-kill"), (-15, "userspace-oom-kill"), (-11, "native-crash"), (1, "silent-exit")],
)
def test_nohangs_unnamed_victim_died_of_its_signals_only(code: int, cause: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.service("nohang.service", "  Sending SIGKILL to the victim")
        life.wait(0.3).subprocess_died(code).self_kill()

    assert told(story).cause == cause


@pytest.mark.parametrize(
    ("unit", "cause"), [("sglang-alder.service", "userspace-oom-kill"), ("etl.service", "external-signal")]
)
def test_oomds_kill_of_another_unit_in_the_same_moment_is_not_ours(unit: str, cause: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.pid1(f"{unit}: systemd-oomd killed 3 process(es) in this unit.", UNIT=unit)
        pressure = "memory pressure for /sglang.slice being 61.20% > 50.00% for > 20s with reclaim activity"
        j.service("systemd-oomd.service", f"Killed /sglang.slice/{unit} due to {pressure}", comm="systemd-oomd")
        life.wait(0.1).killed()

    assert told(story).cause == cause


@pytest.mark.parametrize(("action", "signal"), [("Killing", "SIGKILL"), ("Aborting", "SIGABRT")])
def test_a_stop_timeout_names_the_signal_that_systemd_sent(action: str, signal: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().stopping().sigterm().wait(90).timed_out("stop-sigterm", action)
        life.systemd_kills(signal=signal).exit("killed" if action == "Killing" else "dumped", 6).failed("timeout")

    verdict = told(story)
    assert verdict.cause == "stop-timeout"
    assert f"systemd ended it by {signal} after 90 s" in verdict.summary


@pytest.mark.parametrize(("status", "cause"), [(143, "external-signal"), (3, "silent-exit"), (1, "silent-exit")])
def test_after_a_sigterm_only_a_status_that_it_leads_to_is_its(status: int, cause: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().sigterm().wait(1).drain(0).wait(0.1).exit("exited", status).failed("exit-code")

    assert told(story).cause == cause


@pytest.mark.parametrize(
    ("since", "until", "cause"),
    [
        (-3600, -1800, "external-signal"),
        (-10, None, "unexplained-kill"),
        (-3600, 5, "unexplained-kill"),
        (1, None, "unexplained-kill"),
        (600, None, "external-signal"),
    ],
)
def test_a_gap_counts_only_where_it_may_hide_what_ended_the_run(since: int, until: int | None, cause: str) -> None:
    """Seconds from the death. The kernel's record of it may come a little late, but not ten minutes."""
    journal = Journal(name="gap")
    life = journal.life()
    life.up().killed()
    tracker = Tracker((life.unit,))
    for entry in read_json(BytesIO(journal.dump().encode())):
        tracker.feed(entry)
    began, over = (None if at is None else journal.usec + at * 1_000_000 for at in (since, until))
    gap = Gap(source="kernel", reason="the ring buffer overran", from_usec=began, to_usec=over)
    assert judge(tracker, life.invocation_id, [gap]).verdict.cause == cause
