"""What systemd was told to do, and what it does next: OOMPolicy= × Restart= × Result=, and its own records."""

from io import BytesIO

import pytest

from forensics.codec import dump_run, dump_verdict
from forensics.events import UnitState
from forensics.inquest import report
from forensics.public import crash_shape
from forensics.shapes import CrashShape
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.replay import judge
from tests.cases.story import Journal, Life
from tests.forensics.rules.telling import unit_state


def shown(life: Life, seen: UnitState | None = None) -> CrashShape:
    tracker = Tracker((life.unit,))
    for entry in read_json(BytesIO(life.journal.dump().encode())):
        tracker.feed(entry)
    if seen is not None:
        tracker.add(life.invocation_id, [seen])
    judged = judge(tracker, life.invocation_id)
    return crash_shape(dump_run(judged.run), dump_verdict(judged.verdict))


def line_of(crash: CrashShape, name: str) -> str:
    return next(line.text for line in report(crash) if line.text.startswith(f"  {name:<13} "))[16:]


@pytest.mark.parametrize("oom_policy", ["continue", "stop", "kill"])
@pytest.mark.parametrize(
    ("restart", "again"),
    [
        ("no", False), ("on-success", False), ("on-failure", True), ("on-abnormal", True), ("on-abort", False),
        ("on-watchdog", False), ("always", True),
    ],
)  # fmt: skip
def test_a15_the_report_of_an_oom_kill_shows_result_policy_restart_and_what_comes_next(
    oom_policy: str, restart: str, *, again: bool
) -> None:
    journal = Journal(name=f"a15-{oom_policy}-{restart}")
    life = journal.life()
    life.up()
    seen = unit_state(life, oom_policy=oom_policy, restart=restart)
    journal.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    crash = shown(life, seen)
    assert crash["cause"] == "kernel-oom"
    assert line_of(crash, "systemd") == f"Result=oom-kill, OOMPolicy={oom_policy}, Restart={restart}"
    what_next = line_of(crash, "next")
    assert what_next.startswith(f"Restart={restart}: ")
    assert ("starts it again by itself 5 s after the end" in what_next) is again
    assert ("stays down" in what_next) is not again


@pytest.mark.parametrize(
    ("restart", "ends"),
    [
        ("on-failure", {"exited": True, "killed": True, "clean": False}),
        ("on-abnormal", {"exited": False, "killed": True, "clean": False}),
        ("on-abort", {"exited": False, "killed": True, "clean": False}),
        ("on-success", {"exited": False, "killed": False, "clean": True}),
        ("always", {"exited": True, "killed": True, "clean": True}),
        ("no", {"exited": False, "killed": False, "clean": False}),
    ],
)
def test_restart_is_systemds_own_table(restart: str, ends: dict[str, bool]) -> None:
    """systemd.service(5), table "Exit causes and the effect of the Restart= settings"."""
    for end, again in ends.items():
        life = Journal(name=f"restart-{restart}-{end}").life()
        life.up()
        seen = unit_state(life, restart=restart)
        if end == "exited":
            life.exit("exited", 1).failed("exit-code")
        elif end == "killed":
            life.killed()
        else:
            life.success()
        said = shown(life, seen)["supervision"]["next"]
        assert ("starts it again" in said) is again, (end, said)


def test_what_systemd_did_goes_before_what_it_would_do() -> None:
    journal = Journal(name="scheduled")
    life = journal.life()
    life.up()
    seen = unit_state(life, restart="no")
    life.killed().wait(5).restart(3)
    said = shown(life, seen)["supervision"]["next"]
    assert said == "systemd starts it again by itself: restart number 3 was scheduled."
    life.pid1(f"{life.unit}: Start request repeated too quickly.")
    assert "start limit" in shown(life, seen)["supervision"]["next"]


def test_a_stop_on_request_is_followed_by_nothing_and_a_restart_job_by_a_start() -> None:
    said = []
    for job in ("stop", "restart"):
        life = Journal(name=f"job-{job}").life()
        life.up().stopping().sigterm().wait(2).drain(0).success().stopped(job)
        said.append(shown(life, unit_state(life, restart="always"))["supervision"]["next"])
    assert "stays down until somebody starts it" in said[0]
    assert "started again at once" in said[1]


def test_without_the_units_properties_nothing_is_promised() -> None:
    life = Journal(name="unread").life()
    life.up().killed()
    crash = shown(life)
    assert (crash["supervision"]["oom_policy"], crash["supervision"]["restart"]) == (None, None)
    assert line_of(crash, "systemd") == "Result=signal"
    assert "was not read" in line_of(crash, "next")


def test_a_verdict_from_before_this_was_known_is_still_shown() -> None:
    life = Journal(name="old").life()
    life.up().killed()
    tracker = Tracker((life.unit,))
    for entry in read_json(BytesIO(life.journal.dump().encode())):
        tracker.feed(entry)
    judged = judge(tracker, life.invocation_id)
    verdict = dump_verdict(judged.verdict)
    del verdict["supervision"], verdict["rejected"]
    crash = crash_shape(dump_run(judged.run), verdict)
    assert (crash["rejected"], crash["supervision"]["next"]) == ([], "")
    assert not any(line.text.startswith("  next") for line in report(crash))
