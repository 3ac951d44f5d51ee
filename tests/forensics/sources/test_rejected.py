"""Records that imitate a sender: found by what the true sender's parser would make of them, counted, never believed."""

from dataclasses import replace
from io import BytesIO

import pytest

from forensics.codec import dump_run_record, dump_verdict, load_run_record, load_verdict
from forensics.entry import Entry
from forensics.events import Rejected
from forensics.model import Verdict
from forensics.sources import losses, rejected, sigtrace, systemd
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.replay import judge
from tests.cases.story import IDS, Journal, Life

UNIT = "sglang-alder.service"


def line(message: str, **fields: str) -> Entry:
    own = {"_TRANSPORT": "stdout", "_PID": "4321", "_UID": "990", "_COMM": "python", "_SYSTEMD_UNIT": UNIT}
    given = own | fields | {"MESSAGE": message}
    return Entry(cursor="s=1;i=1", boot_id="b0", monotonic_usec=9, realtime_usec=9, fields=given)


KILLED = "Out of memory: Killed process 4321 (python) total-vm:9kB, anon-rss:7kB, file-rss:1kB, shmem-rss:0kB"


@pytest.mark.parametrize(
    ("message", "claims", "imitates"),
    [
        (KILLED, "kernel", "oom-victim"),
        (f"[ 9120.004711] {KILLED}", "kernel", "oom-victim"),
        (f"<3>[19120.004711] {KILLED}", "kernel", "oom-victim"),
        (f"kernel: {KILLED}\n", "kernel", "oom-victim"),
        ("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python,pid=4321,uid=990", "kernel", "oom-kill"),
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=4321, name=python, GPU has fallen off the bus.", "kernel", "xid"),
        ("python[4321]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[7f+1]", "kernel", "segfault"),
        (f"{UNIT}: Main process exited, code=killed, status=9/KILL", "systemd", "process-exit"),
        (f"{UNIT}: Failed with result 'oom-kill'.", "systemd", "unit-result"),
        (f"{UNIT}: State 'stop-sigterm' timed out. Killing.", "systemd", "state-timed-out"),
        (f"Stopping {UNIT} - SGLang server alder...", "systemd", "stop-requested"),
        ("Killed /sglang.slice due to memory pressure for /sglang.slice being 61% > 50%", "systemd-oomd",
         "userspace-oom-kill"),
        ('sending SIGTERM to process 4321 uid 990 "python": oom_score 9', "earlyoom", "userspace-oom-kill"),
        ("  Sending SIGKILL to the victim", "nohang", "userspace-oom-kill"),
    ],
)  # fmt: skip
def test_a_line_that_its_sender_did_not_write(message: str, claims: str, imitates: str) -> None:
    found = rejected.parse(line(message))
    assert found is not None
    assert (found.claims, found.imitates, found.writer, found.record.pid) == (claims, imitates, "python", 4321)


@pytest.mark.parametrize(
    ("message_id", "claims"),
    [
        *((message_id, "systemd") for message_id in systemd.BY_ID),
        *((message_id, "inquest-sigtrace") for message_id in sigtrace.MESSAGE_IDS),
        (systemd.SHUTDOWN, "systemd-logind"),
        (IDS["core"], "systemd-coredump"),
        (IDS["remains"], "inquest"),
        (losses.JOURNAL_DROPPED, "systemd-journald"),
        (losses.JOURNAL_MISSED, "systemd-journald"),
    ],
)
def test_a_message_id_that_is_anothers(message_id: str, claims: str) -> None:
    found = rejected.parse(line("whatever", MESSAGE_ID=message_id, UNIT=UNIT, _TRANSPORT="journal"))
    assert found is not None
    assert found.claims == claims
    assert found.about_unit == UNIT


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (KILLED, {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}),
        (f"{UNIT}: Failed with result 'oom-kill'.", {"_PID": "1", "_TRANSPORT": "journal"}),
        ("sending SIGTERM to process 4321", {"_SYSTEMD_UNIT": "earlyoom.service"}),
        ("Killed /a due to memory pressure for /a being 61% > 50%", {"_SYSTEMD_UNIT": "systemd-oomd.service"}),
        ("a user's own service: Failed", {"MESSAGE_ID": IDS["failed"], "USER_UNIT": UNIT}),
        ("Failed at step EXEC spawning /x: No such file", {"MESSAGE_ID": IDS["spawn"], "_COMM": "(python)",
                                                           "_TRANSPORT": "journal"}),
        ("Missed 4 kernel messages", {"MESSAGE_ID": losses.JOURNAL_MISSED, "_TRANSPORT": "driver"}),
        # What a server says of itself, and what it quotes behind its own prefix.
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", {}),
        ("Out of memory: the KV cache pool is full, retracting requests", {}),
        (f"[2026-04-15 10:00:00] Receive: obj=GenerateReqInput(text='{KILLED}')", {}),
        ("Started server process [4321]", {}),
        ("Stopping the profiler...", {}),
        ("a user asked: " + KILLED + " " + "x" * 5000, {}),
    ],
)  # fmt: skip
def test_what_imitates_nobody(message: str, fields: dict[str, str]) -> None:
    assert rejected.parse(line(message, **fields)) is None


def test_words_that_no_kernel_uses_count_where_they_were_written_to_its_log() -> None:
    """Root can write to /dev/kmsg: the transport is the kernel's then, the name is not."""
    text = "Out of memory: reaped task 4321 by policy"
    assert rejected.parse(line(text)) is None
    kmsg = rejected.parse(line(text, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="python", _SYSTEMD_UNIT=""))
    assert kmsg is not None
    assert (kmsg.claims, kmsg.imitates) == ("kernel", "unparsed")


def test_a_secret_in_it_is_removed_and_a_long_one_cut() -> None:
    found = rejected.parse(line(f"{UNIT}: Failed with result 'hf_{'a' * 30}'. {'x' * 900}", UNIT=UNIT))
    assert found is not None
    assert "hf_aaa" not in found.record.message
    assert len(found.record.message) <= 400


def fed(journal: Journal, *units: str) -> Tracker:
    tracker = Tracker(units)
    for entry in read_json(BytesIO(journal.dump().encode())):
        tracker.feed(entry)
    return tracker


def verdicts(journal: Journal, *lives: Life) -> list[Verdict]:
    tracker = fed(journal, *(life.unit for life in lives))
    return [judge(tracker, life.invocation_id).verdict for life in lives]


def test_thousands_are_one_row_with_their_number() -> None:
    journal = Journal(name="flood")
    life = journal.life()
    life.up()
    for _ in range(3000):
        life.line(KILLED)
    life.killed()
    (verdict,) = verdicts(journal, life)
    (row,) = verdict.rejected
    assert (row.count, row.imitates) == (3000, "oom-victim")
    assert verdict.cause == "external-signal"


def test_kinds_without_end_are_bounded() -> None:
    found = rejected.parse(line(KILLED))
    assert found is not None
    kept: list[Rejected] = []
    for number in range(100):
        rejected.tally(kept, replace(found, imitates=f"kind-{number}"))
    assert len(kept) <= 16


def test_another_services_forgery_is_told_with_the_run_that_it_speaks_of() -> None:
    journal = Journal(name="foreign")
    first, second = journal.life("sglang-alder.service"), journal.life("sglang-birch.service")
    first.up()
    second.up()
    journal.service("evil.service", "done", MESSAGE_ID=IDS["failed"], UNIT=second.unit, UNIT_RESULT="oom-kill",
                    INVOCATION_ID=second.invocation_id, _TRANSPORT="journal")  # fmt: skip
    first.killed()
    second.killed()
    one, other = verdicts(journal, first, second)
    assert one.rejected == ()
    (row,) = other.rejected
    assert (row.writer_unit, row.imitates, row.about_unit) == ("evil.service", "unit-result", second.unit)
    assert other.cause == "external-signal"


def test_a_record_of_our_own_step_by_the_server_itself_is_rejected() -> None:
    journal = Journal(name="remains")
    life = journal.life()
    life.up()
    life.line("ended: oom-kill", _UID="0", _TRANSPORT="journal", MESSAGE_ID=IDS["remains"],
              INQUEST_INVOCATION_ID=life.invocation_id, INQUEST_SERVICE_RESULT="oom-kill",
              INQUEST_MEMORY_EVENTS_OOM_KILL="1")  # fmt: skip
    life.killed()
    (verdict,) = verdicts(journal, life)
    assert [(row.claims, row.imitates) for row in verdict.rejected] == [("inquest", "remains")]


def test_after_the_end_nothing_is_added() -> None:
    journal = Journal(name="late")
    life = journal.life()
    life.up().killed().wait(30)
    life.line(KILLED)
    assert verdicts(journal, life)[0].rejected == ()


def test_it_survives_the_checkpoint_and_the_store() -> None:
    journal = Journal(name="checkpoint")
    life = journal.life()
    life.up().line(KILLED).line(KILLED).killed()
    (record,) = fed(journal, life.unit).records()
    assert load_run_record(dump_run_record(record)).rejected == record.rejected
    assert record.rejected[0].count == 2
    (verdict,) = verdicts(journal, life)
    assert load_verdict(dump_verdict(verdict)).rejected == verdict.rejected != ()
