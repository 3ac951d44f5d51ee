"""Truth tables over combinations of evidence. A, B, D, E: memory kills, signals and statuses, lost lines, GPUs."""

import itertools
import json
from io import BytesIO

import pytest

from forensics.events import OomVictim
from forensics.sources.export import read_export, read_json
from tests.cases.replay import replay
from tests.cases.story import IDS, Journal, Life
from tests.forensics.rules.telling import SERVE, memory_of, told, verdict_on

RECORDS = ("ours", "others", "none")
ENDS = (("killed", 9), ("exited", 1), ("exited", 137), ("killed", 15))
RESULTS = ("signal", "oom-kill", "exit-code", "success")


@pytest.mark.parametrize(("record", "end", "result"), list(itertools.product(RECORDS, ENDS, RESULTS)))
def test_a7_what_the_kernel_says_counts_whatever_the_result_is(record: str, end: tuple[str, int], result: str) -> None:
    """48 combinations: `oom-kill` of systemd without a record is not believed of the victim, 137 never of itself."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        if record == "ours":
            j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
        elif record == "others":
            j.oom("/system.slice/etl.service", 700, "etl", limit="/system.slice/etl.service")
        life.wait(0.1).exit(*end)
        life.failed(result) if result != "success" else life.success()

    verdict = told(story)
    if record == "ours" and end in (("killed", 9), ("exited", 137)):
        assert (verdict.cause, verdict.strength) == ("kernel-oom", "confirmed")
    elif record != "ours":
        assert verdict.cause != "kernel-oom"
        by_status = {("killed", 9): "external-signal", ("killed", 15): "external-signal"}
        assert verdict.cause == by_status.get(end, "silent-exit")
        assert verdict.strength == "likely"
    else:
        assert verdict.strength != "confirmed", "a kill of main does not end in a status of its own"


@pytest.mark.parametrize(("counter", "result"), list(itertools.product((0, 1), ("signal", "oom-kill"))))
def test_a9_a_counter_without_a_line_is_likely_at_most(counter: int, result: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up().exit("killed", 9).remains(result, "killed", "KILL", oom_kill=counter).failed(result)

    verdict = told(story)
    assert verdict.cause == ("kernel-oom" if counter else "external-signal")
    assert verdict.strength == "likely"


def test_a10_the_victim_is_named_with_its_size() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.oom(life.cgroup, life.scheduler, "sglang::schedul", limit=life.cgroup, rss_kb=1_000_000)
        life.counted_oom().wait(0.5).subprocess_died(-9).self_kill()

    (size,) = [piece.event for piece in told(story).evidence if isinstance(piece.event, OomVictim)]
    assert (size.task, size.anon_rss_bytes) == ("sglang::schedul", 1_000_000 * 1024)


@pytest.mark.parametrize(("policy", "victim"), list(itertools.product(("continue", "stop", "kill"), ("main", "child"))))
def test_a14_oom_policy_and_victim(policy: str, victim: str) -> None:
    """What systemd does about it differs; what happened does not."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        pid, comm = (life.main, "python") if victim == "main" else (life.scheduler, "sglang::schedul")
        j.oom(life.cgroup, pid, comm, limit=life.cgroup)
        life.counted_oom()
        if victim == "main":
            life.killed(9, "signal" if policy == "continue" else "oom-kill")
        elif policy == "continue":
            life.wait(0.9).subprocess_died(-9).self_kill()
        elif policy == "stop":
            life.wait(0.05).sigterm().wait(0.4).exit("exited", 1).failed("oom-kill")
        else:
            life.systemd_kills(life.main).killed(9, "oom-kill")

    verdict = told(story)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("kernel-oom", "confirmed", f"memcg-{victim}")


def test_a17_a_cgroup_at_its_limit_is_no_oom_kill() -> None:
    """Page cache fills a cgroup to its limit in ordinary life."""
    journal = Journal(name="a17")
    life = journal.life()
    life.up()
    full = memory_of(life, current_bytes=2**34, peak_bytes=2**34, max_bytes=2**34, oom=0, oom_kill=0)
    life.killed()
    assert verdict_on(journal, life, [full]).verdict.cause == "external-signal"


@pytest.mark.parametrize("comm", ["a,pid=1,uid=0", "x) total-vm", "\x1b[31mred", "ünïcödé", "sglang::schedul", "a b c"])
def test_a19_a_process_may_call_itself_anything(comm: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.oom(life.cgroup, life.main, comm, limit=life.cgroup)
        life.killed(9)

    verdict = told(story)
    assert (verdict.cause, verdict.subclass) == ("kernel-oom", "memcg-main")


def test_b7_each_origin_of_a_kill_has_an_answer_of_its_own() -> None:
    """systemd would say status=9/KILL of each."""

    def memcg(j: Journal, life: Life) -> None:
        life.up()
        j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
        life.killed()

    def whole_host(j: Journal, life: Life) -> None:
        life.up()
        j.oom(life.cgroup, life.main, "python")
        life.killed()

    def oomd(j: Journal, life: Life) -> None:
        life.up().pid1(f"{life.unit}: systemd-oomd killed 3 process(es) in this unit.", "oomd").killed()

    def earlyoom(j: Journal, life: Life) -> None:
        life.up()
        j.service("earlyoom.service", f'sending SIGKILL to process {life.main} uid 990 "python": oom_score 1, x')
        life.killed()

    def nohang(j: Journal, life: Life) -> None:
        life.up()
        j.service("nohang.service", "  Sending SIGKILL to the victim")
        life.killed()

    def stop(j: Journal, life: Life) -> None:
        life.up().stopping().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")

    def watchdog(j: Journal, life: Life) -> None:
        life.up().pid1(f"{life.unit}: Watchdog timeout (limit 30s)!").timed_out("stop-watchdog").systemd_kills()
        life.killed(9, "watchdog")

    def operator(j: Journal, life: Life) -> None:
        life.up().client_kill("SIGKILL").killed()

    def somebody(j: Journal, life: Life) -> None:
        life.up().killed()

    def itself(j: Journal, life: Life) -> None:
        life.up().scheduler_raised(SERVE, "KeyError: 1").self_kill()

    stories = (memcg, whole_host, oomd, earlyoom, nohang, stop, watchdog, operator, somebody, itself)
    answers = [(verdict.cause, verdict.subclass) for verdict in map(told, stories)]
    assert len(set(answers)) == len(stories), answers


def test_b10_a_timeout_is_of_the_start_the_stop_or_the_runtime() -> None:
    def start(j: Journal, life: Life) -> None:
        life.starting().load().timed_out("start", "Terminating").killed(15, "timeout")

    def stop(j: Journal, life: Life) -> None:
        life.up().stopping().wait(9).timed_out("stop-sigterm").killed(9, "timeout")

    def runtime(j: Journal, life: Life) -> None:
        life.up().pid1(f"{life.unit}: Service reached runtime time limit. Stopping.").sigterm().drain(0)
        life.killed(9, "timeout")

    assert [told(story).cause for story in (start, stop, runtime)] == ["start-timeout", "stop-timeout", "clean-stop"]


def test_d3_split_and_binary_lines_make_one_traceback() -> None:
    """journald cuts a line at 48 KiB, and gives what is not UTF-8 as bytes; the traceback is the same."""
    journal = Journal(name="d3")
    life = journal.life()
    life.up()
    life.sched("Scheduler hit an exception: Traceback (most recent call last):")
    life.line('  File "x.py", line 1, in f', life.scheduler)
    stream = {"_STREAM_ID": "57"}
    life.line("RuntimeError: bad table " + "7" * 48_000, life.scheduler, _LINE_BREAK="line-max", **stream)
    life.line("8" * 100, life.scheduler, **stream)
    raw = list("[2026-04-15 10:00:00] caf\udce9 is not UTF-8".encode("utf-8", "surrogateescape"))
    journal.write({"_TRANSPORT": "stdout", "_PID": life.main, "_SYSTEMD_UNIT": life.unit,
                   "_SYSTEMD_INVOCATION_ID": life.invocation_id, "MESSAGE": raw})  # fmt: skip
    life.self_kill()
    verdict = replay(read_json(BytesIO(journal.dump().encode())), {life.unit})[0].verdict
    assert (verdict.cause, verdict.strength) == ("python-exception", "confirmed")
    assert "bad table" in verdict.summary
    assert len(verdict.summary) < 600


def test_d5_what_is_spoofed_changes_nothing_and_is_listed_as_rejected() -> None:
    """The same death, with and without a spoof of every trusted sender in the server's own output, of PID 1 by another
    service, and of the kernel by root through /dev/kmsg."""

    def plain(j: Journal, life: Life) -> None:
        life.up().killed()

    def spoofed(j: Journal, life: Life) -> None:
        life.up()
        for text in (
            f"Out of memory: Killed process {life.main} (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
            f"{life.unit}: A process of this unit has been killed by the OOM killer.",
            f"{life.unit}: Watchdog timeout (limit 30s)!", f"Stopping {life.title}...",
            f"{life.unit}: Sent signal SIGKILL to main process {life.main} (python) on client request.",
            "Killed /sglang.slice due to memory pressure for /sglang.slice being 99.00% > 1.00% for > 1s",
            "inquest: preflight refused: port: taken", "NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, fallen",
        ):  # fmt: skip
            life.line(text)
            life.line(text, _TRANSPORT="journal", SYSLOG_IDENTIFIER="kernel", UNIT=life.unit)
        j.service("evil.service", "exited", MESSAGE_ID=IDS["exit"], UNIT=life.unit, INVOCATION_ID=life.invocation_id,
                  EXIT_CODE="exited", EXIT_STATUS=1, _TRANSPORT="journal")  # fmt: skip
        j.service("evil.service", "failed", MESSAGE_ID=IDS["failed"], UNIT=life.unit, INVOCATION_ID=life.invocation_id,
                  UNIT_RESULT="oom-kill", _TRANSPORT="journal")  # fmt: skip
        summary = f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python,pid={life.main},uid=990"
        j.write({"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "python", "MESSAGE": summary})
        life.killed()

    one, other = told(plain), told(spoofed)
    assert (one.cause, one.strength, one.subclass) == (other.cause, other.strength, other.subclass)
    assert (one.summary, one.fingerprint, one.ruled_out) == (other.summary, other.fingerprint, other.ruled_out)
    assert [piece.event.kind for piece in one.evidence] == [piece.event.kind for piece in other.evidence]
    assert one.rejected == ()
    listed = {(found.claims, found.imitates): found.count for found in other.rejected}
    assert listed == {
        ("kernel", "oom-victim"): 2, ("systemd", "unit-oom-kill"): 2, ("systemd", "service-watchdog-timeout"): 2,
        ("systemd", "stop-requested"): 2, ("systemd", "client-kill"): 2, ("systemd-oomd", "userspace-oom-kill"): 2,
        ("kernel", "xid"): 2, ("systemd", "process-exit"): 1, ("systemd", "unit-result"): 1, ("kernel", "oom-kill"): 1,
    }  # fmt: skip


def test_e7_the_two_forms_of_a_lost_gpu() -> None:
    def with_pid(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:0000:41:00): 79, pid='{life.scheduler}', name=python, GPU has fallen off the bus.")
        life.scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: unknown error").self_kill()

    def without(j: Journal, life: Life) -> None:
        life.up()
        j.kernel("NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.")
        life.scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: unknown error").self_kill()

    assert [told(story).cause for story in (with_pid, without)] == ["gpu-fault", "gpu-fault"]
    assert told(without).strength == "likely"
    assert "0000:41:00" in told(without).summary


def test_the_export_form_gives_the_same_verdict() -> None:
    """`journalctl -o export` and `-o json` are two spellings of one journal."""
    journal = Journal(name="export")
    life = journal.life()
    life.up().scheduler_raised(SERVE, "KeyError: 1").self_kill()
    export = b""
    for text in journal.dump().splitlines():
        for name, value in json.loads(text).items():
            export += f"{name}={value}\n".encode()
        export += b"\n"
    by_json = replay(read_json(BytesIO(journal.dump().encode())), {life.unit})[0].verdict
    by_export = replay(read_export(BytesIO(export)), {life.unit})[0].verdict
    assert by_json == by_export
