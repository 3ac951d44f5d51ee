"""A4 to A6, A8, A11 to A13, A16, A18, A20: kills for want of memory, whose they were, and what they are not."""

import itertools
from io import BytesIO
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from forensics.api import create_app
from forensics.belonging import LINGER_USEC
from forensics.codec import dump_run, dump_verdict
from forensics.events import Event
from forensics.model import Crash, Role, Verdict
from forensics.public import crash_shape
from forensics.report import decisive_evidence, decisive_line
from forensics.sources.export import read_json
from forensics.store import Store
from forensics.tracker import Tracker
from tests.cases.replay import Judged, judge, replay
from tests.cases.story import Journal, Life
from tests.forensics.factories import HEALTH
from tests.forensics.rules.telling import SERVE, memory_of, memory_of_host, told, unified_gpu, verdict_on

ANSWERS = ("cause", "strength", "subclass", "summary", "fingerprint", "phase")


def answer(verdict: Verdict) -> tuple[object, ...]:
    return tuple(getattr(verdict, name) for name in ANSWERS)


# --- whose ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["first", "second"])
def test_a4_a_global_kill_is_the_units_whose_cgroup_the_task_was_in(victim: str) -> None:
    """`global_oom` has no `oom_memcg=`: the victim's own cgroup (`task_memcg`) is what names the unit."""
    journal = Journal(name=f"a4-{victim}")
    lives = {"first": journal.life("sglang-alder.service"), "second": journal.life("sglang-birch.service")}
    for life in lives.values():
        life.up()
    struck = lives[victim]
    journal.oom(struck.cgroup, struck.main, "python")
    for life in lives.values():
        life.killed()
    found = replay(read_json(BytesIO(journal.dump().encode())), [life.unit for life in lives.values()])
    causes = {one.run.unit: (one.verdict.cause, one.verdict.subclass) for one in found}
    (other,) = [life for life in lives.values() if life is not struck]
    assert causes == {
        struck.unit: ("kernel-oom", "global-main"),
        other.unit: ("external-signal", "sigkill-main"),
    }


@pytest.mark.parametrize(
    "path",
    [
        "/sglang.slice/sglang-alder.service",
        "/sglang.slice/sglang-alder.service/workers",  # a cgroup below the unit's (Delegate=)
        "/system.slice/sglang-alder.service",  # v1, or before Slice= was changed
        "/sglang.slice/sglang-alder@1.service",
        "/system.slice/sglang-alder.service.d",
        "/sglang.slice/x-sglang-alder.service",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/sglang-alder.service",
    ],
)
def test_a4_of_a_path_whole_components_decide(path: str) -> None:
    ours = path.split("/sglang-alder.service")[-1] in ("", "/workers") and "/user.slice" not in path

    def story(j: Journal, life: Life) -> None:
        life.up()
        j.oom(path, life.main if ours else 777, "python")
        life.killed()

    assert told(story, f"path-{path}").cause == ("kernel-oom" if ours else "external-signal")


# --- not what ended it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pid", "comm", "seconds"),
    [("helper", "cicc", 300), ("helper", "py-spy", 4000), ("replica", "sglang::schedul", 900)],
)
def test_a5_a_kill_that_was_outlived_is_context_of_the_later_cause(pid: str, comm: str, seconds: int) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.oom(life.cgroup, 7701 if pid == "helper" else life.scheduler + 6, comm, limit=life.cgroup)
        life.counted_oom().serve(2).wait(seconds).serve(2).scheduler_raised(
            SERVE, "IndexError: list index out of range"
        )
        life.wait(0.2).exit("exited", 1).failed("exit-code")

    verdict = told(story, f"a5-{comm}-{seconds}")
    assert (verdict.cause, verdict.strength) == ("python-exception", "confirmed")
    assert "kernel-oom" not in verdict.also
    assert any(f"OOM killer had killed a process of this unit, {comm}" in note for note in verdict.notes)
    (why,) = [ruled.why for ruled in verdict.ruled_out if ruled.cause == "kernel-oom"]
    assert "IndexError" in why


@pytest.mark.parametrize("line", [True, False], ids=["with-the-kernels-line", "counter-only"])
def test_a6_a_child_was_killed_and_main_ended_well_is_no_crash(line: bool, store: Store) -> None:
    """OOMPolicy=continue, exit status 0, memory.events oom_kill 1: told with the run, which is no crash."""
    journal = Journal(name=f"a6-{line}")
    life = journal.life()
    life.up()
    if line:
        journal.oom(life.cgroup, 7702, "tokenizers", limit=life.cgroup)
    life.counted_oom().serve(3).wait(900).serve(1).wait(1)
    life.remains("success", "exited", "0", oom_kill=1).success()
    judged = verdict_on(journal, life)
    verdict = judged.verdict
    assert (verdict.cause, verdict.strength, verdict.is_crash) == ("clean-stop", "likely", False)
    assert any("OOM killer" in note for note in verdict.notes), verdict.notes
    store.save(Crash(run=judged.run, timeline=judged.timeline, verdict=verdict))
    assert store.crashes().crashes == ()
    assert [server["runs"] for server in store.servers()] == [1]


@pytest.mark.parametrize("status", [137, 143, 134, 139])
@pytest.mark.parametrize("result", ["exit-code", "oom-kill"])
def test_a8_a_status_of_the_program_is_not_a_signal(status: int, result: str) -> None:
    verdict = told(lambda j, life: life.up().wait(1).exit("exited", status).failed(result), f"a8-{status}-{result}")
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("silent-exit", "likely", f"status-{status}")
    assert f"exited with status {status}" in verdict.summary
    assert any(f"{status} is an exit status that the program gave, not a signal" in note for note in verdict.notes)


# --- what is gone when one looks --------------------------------------------------------------------------------


def oom_death(name: str) -> tuple[Journal, Life]:
    journal = Journal(name=name)
    life = journal.life()
    life.up()
    journal.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    return journal, life


def test_a11_the_record_outlives_the_unit_its_cgroup_and_reset_failed(tmp_path: Path) -> None:
    """systemd forgets: the cgroup at once, the result at the next start, the unit at `systemctl reset-failed`, and the
    daemon drops the run from its memory. The store does not, over a restart of the daemon either."""
    journal, life = oom_death("a11")
    tracker = Tracker((life.unit,))
    for entry in read_json(BytesIO(journal.dump().encode())):
        tracker.feed(entry)
    judged = judge(tracker, life.invocation_id)
    store = Store(tmp_path / "inquest.sqlite")
    store.save(Crash(run=judged.run, timeline=judged.timeline, verdict=judged.verdict))
    store.checkpoint("here", 1, tracker.records())
    store.close()

    # reset-failed unloads the unit, which writes nothing; the next life begins with counters at zero.
    life.journal.wait(LINGER_USEC / 1e6 + 1)
    after = journal.life(life.unit)
    after.starting()
    for entry in read_json(BytesIO(journal.dump().encode())):
        tracker.feed(entry)
    tracker.forget(journal.usec, journal.boot_id)
    assert life.invocation_id not in {record.invocation_id for record in tracker.records()}

    store = Store(tmp_path / "inquest.sqlite")
    client = TestClient(create_app(store, lambda: HEALTH), base_url="http://localhost")
    (listed,) = client.get("/crashes").json()["crashes"]
    shown = client.get(f"/crashes/{life.invocation_id[:12]}").json()
    assert listed["id"] == shown["id"] == life.invocation_id[:12]
    assert (shown["cause"], shown["run"]["result"], shown["run"]["signal"]) == ("kernel-oom", "oom-kill", "SIGKILL")
    assert shown["run"]["main_pid"] == life.main
    assert f"task_memcg={life.cgroup}" in shown["evidence"][0]["message"]
    facts = client.get(f"/crashes/{life.invocation_id[:12]}/timeline").json()["events"]
    assert {"oom-kill", "oom-victim", "unit-oom-kill", "process-exit", "unit-result"} <= {
        fact["kind"] for fact in facts
    }
    store.close()


def test_a12_without_the_cgroups_files_the_verdict_is_the_same() -> None:
    """The cgroup is removed with the unit: whether memory.events was read in time changes nothing."""
    journal, life = oom_death("a12")
    without = verdict_on(journal, life).verdict
    read = [
        memory_of(life, current_bytes=2**34, peak_bytes=2**34, max_bytes=2**34, oom=1, oom_kill=1),
        memory_of(life, current_bytes=0, peak_bytes=2**34, max_bytes=2**34, oom=3, oom_kill=2),
    ]
    for sampled in ([], read[:1], read):
        assert answer(verdict_on(journal, life, sampled).verdict) == answer(without)
    assert (without.cause, without.strength, without.subclass) == ("kernel-oom", "confirmed", "memcg-main")


# --- in any order -----------------------------------------------------------------------------------------------


def in_order(order: tuple[str, ...], lateness: float, result: str) -> Verdict:
    """The same four records in another order; the kernel's were stamped `lateness` before they arrived."""

    def story(j: Journal, life: Life) -> None:
        life.up().wait(2)
        for step in order:
            if step == "kernel":
                j.oom(life.cgroup, life.main, "python", limit=life.cgroup, late=lateness)
            elif step == "notice":
                life.counted_oom()
            elif step == "exit":
                life.exit("killed", 9)
            else:
                life.failed(result)
            j.wait(0.05)

    return told(story, "order")


ORDERS = [
    order
    for order in itertools.permutations(("kernel", "notice", "exit", "result"))
    if order.index("exit") < order.index("result")
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("lateness", [0.0, 0.9])
@pytest.mark.parametrize("result", ["signal", "oom-kill"])
def test_a13_a18_child_exit_before_the_oom_notice_and_after_it(
    order: tuple[str, ...], lateness: float, result: str
) -> None:
    """PID 1 may see the exit before memory.events (Result=signal), journald the kernel's record after both."""
    verdict = in_order(order, lateness, result)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("kernel-oom", "confirmed", "memcg-main")


@pytest.mark.parametrize("result", ["signal", "oom-kill"])
def test_a13_the_kernels_line_alone_suffices_in_both_orders(result: str) -> None:
    for lateness, order in ((0.0, ("kernel", "exit", "result")), (0.4, ("exit", "result", "kernel"))):
        verdict = in_order(order, lateness, result)
        assert (verdict.cause, verdict.strength) == ("kernel-oom", "confirmed"), order


def test_a13_a_kernel_line_long_after_the_end_is_another_processes() -> None:
    """The number was given to another process; its kill is not ours."""

    def story(j: Journal, life: Life) -> None:
        life.up().killed()
        j.wait(40)
        j.oom("/system.slice/etl.service", life.main, "etl")

    assert told(story).cause == "external-signal"


# --- userspace --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(("oomd", "pid1", "exit", "result"))), ids="-".join)
def test_a16_oomds_kill_is_a_class_of_its_own_in_any_order(order: tuple[str, ...]) -> None:
    """oomd marks the cgroup (xattr) before or after PID 1 looks, and its own line takes a third way."""
    if order.index("result") < order.index("exit"):
        order = tuple({"result": "exit", "exit": "result"}.get(step, step) for step in order)

    def story(j: Journal, life: Life) -> None:
        life.up().wait(1)
        for step in order:
            if step == "oomd":
                j.service("systemd-oomd.service", f"Killed {life.cgroup} due to memory pressure for {life.slice_path} "
                          "being 71.90% > 60.00% for > 30s with reclaim activity")  # fmt: skip
            elif step == "pid1":
                life.pid1(f"{life.unit}: systemd-oomd killed 4 process(es) in this unit.", "oomd", N_PROCESSES=4)
            elif step == "exit":
                life.exit("killed", 9)
            else:
                life.failed("oom-kill" if order.index("pid1") < order.index("result") else "signal")
            j.wait(0.1)

    verdict = told(story, f"a16-{'-'.join(order)}")
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("userspace-oom-kill", "confirmed", "systemd-oomd")
    assert "kernel-oom" in {ruled.cause for ruled in verdict.ruled_out}


@pytest.mark.parametrize("witness", ["oomd", "pid1"])
def test_a16_either_witness_alone_suffices(witness: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        if witness == "oomd":
            j.service("systemd-oomd.service", f"Killed {life.cgroup} due to memory used (9) / total (9) and swap used "
                      "(9) / total (9) being more than 90.00%")  # fmt: skip
        else:
            life.pid1(f"{life.unit}: systemd-oomd killed some process(es) in this unit.", "oomd")
        life.killed(9, "signal")

    verdict = told(story, witness)
    assert (verdict.cause, verdict.strength) == ("userspace-oom-kill", "confirmed")


# --- unified memory ---------------------------------------------------------------------------------------------


def starving(name: str, *, kernel_log: bool) -> Judged:
    """A unit far below its limit, on a machine whose memory its GPU has eaten."""
    journal = Journal(name=name)
    life = journal.life()
    life.up()
    sampled: list[Event] = []
    for available in (2**35, 2**33, 2**29):
        sampled += [memory_of(life, current_bytes=2**31, peak_bytes=2**31, max_bytes=2**36, oom=0, oom_kill=0)]
        sampled += [memory_of_host(life, available), unified_gpu(life)]
        life.serve(2)
    journal.kernel("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned "
                   "from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359")  # fmt: skip
    life.wait(1.5).killed()
    if not kernel_log:
        journal.gap("kernel", "no kernel record of this boot in the journal")
    return verdict_on(journal, life, sampled)


def test_a20_on_a_machine_with_unified_memory_an_unreached_limit_proves_nothing() -> None:
    verdict = starving("a20-unread", kernel_log=False).verdict
    assert verdict.cause == "unexplained-kill"
    assert "kernel-oom" not in {ruled.cause for ruled in verdict.ruled_out}
    assert verdict.memory is not None
    assert "no cgroup counts that" in verdict.memory.sentence
    assert "The host's used memory grew by 31.50 GiB" in verdict.memory.sentence
    assert "steady" not in verdict.memory.sentence


def test_a20_that_the_driver_could_not_get_memory_is_said_whatever_the_cause() -> None:
    verdict = starving("a20-read", kernel_log=True).verdict
    assert verdict.cause == "external-signal"
    assert verdict.strength == "likely"
    assert any("GPU driver could not get host memory" in note for note in verdict.notes)


def test_a20_the_advice_for_a_kill_there_is_about_the_gpus_share() -> None:
    journal = Journal(name="a20-kill")
    life = journal.life()
    life.up(args="mem_fraction_static=0.85")
    seen = unified_gpu(life)
    journal.oom(life.cgroup, life.main, "python")
    life.killed()
    verdict = verdict_on(journal, life, [seen]).verdict
    assert (verdict.cause, verdict.subclass) == ("kernel-oom", "global-main")
    assert verdict.advice == ("Lower mem_fraction_static (it was 0.85): the GPU's memory is the host's here.",)


def test_a20_elsewhere_nothing_of_it_is_said() -> None:
    journal, life = oom_death("a20-elsewhere")
    verdict = verdict_on(journal, life, [memory_of(life, current_bytes=2**34, max_bytes=2**34, oom_kill=1)]).verdict
    assert verdict.memory is not None
    assert "no cgroup counts that" not in verdict.memory.sentence
    assert "memory_max" in verdict.advice[0]


# --- what an alert says -----------------------------------------------------------------------------------------


def test_a10_sentence_and_decisive_line_name_victim_unit_size_and_score() -> None:
    """These are what an alert is made of."""
    journal, life = oom_death("a10-alert")
    judged = verdict_on(journal, life)
    crash = crash_shape(dump_run(judged.run), dump_verdict(judged.verdict))
    assert f"process {life.main} (python)" in crash["summary"]
    assert f"limit of {life.cgroup}" in crash["summary"]
    decisive = decisive_evidence(crash)
    assert decisive is not None
    assert f"task_memcg={life.cgroup},task=python,pid={life.main}" in decisive_line(decisive)
    (size,) = [piece["message"] for piece in crash["evidence"] if "Killed process" in piece["message"]]
    assert "anon-rss:24117248kB" in size
    assert "oom_score_adj:0" in size
    assert [piece.role for piece in judged.verdict.evidence][:2] == [Role.INITIATING, Role.INITIATING]
