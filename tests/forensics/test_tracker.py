"""The tracker: what a killed daemon takes up again, records that come late, floods, and any input at all."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.belonging import LINGER_USEC
from forensics.codec import dump_run_record, load_run_record
from forensics.entry import Entry
from forensics.events import Batch, Gap, ProcessExit, Traceback
from forensics.lives import role_of
from forensics.model import Verdict
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.replay import judge
from tests.forensics.test_cases import FOLDERS, name_of

UNIT = "sglang-elm.service"
LIFE, BOOT = "e1" * 16, "b2" * 16


def entries_of(folder: Path) -> tuple[list[Entry], set[str], list[Gap]]:
    expected = json.loads((folder / "expected.json").read_text())
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in expected.get("gaps", ())]
    return list(read_json(folder / "journal.jsonl")), {run["unit"] for run in expected["runs"]}, gaps


def outcome(verdict: Verdict) -> tuple[object, ...]:
    return verdict.cause, verdict.strength, verdict.subclass, verdict.phase, verdict.summary, verdict.fingerprint


def ended(tracker: Tracker, entries: Sequence[Entry], gaps: Sequence[Gap]) -> dict[str, tuple[object, ...]]:
    touched: dict[str, None] = {}
    for entry in entries:
        touched |= dict.fromkeys(sorted(tracker.feed(entry)))
    return {one: outcome(judge(tracker, one, gaps).verdict) for one in touched}


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_daemon_killed_after_any_record_says_the_same(folder: Path) -> None:
    """Wherever the tracker is idle its runs go through a checkpoint, and another tracker goes on with them."""
    entries, units, gaps = entries_of(folder)
    straight = ended(Tracker(tuple(units)), entries, gaps)
    tracker, touched = Tracker(tuple(units)), {}
    for entry in entries:
        touched |= dict.fromkeys(sorted(tracker.feed(entry)))
        if tracker.idle:
            saved = json.loads(json.dumps([dump_run_record(record) for record in tracker.records()]))
            tracker = Tracker(tuple(units), [load_run_record(record) for record in saved])
    assert {one: outcome(judge(tracker, one, gaps).verdict) for one in touched} == straight


@pytest.mark.parametrize(
    "folder", [folder for folder in FOLDERS if folder.parent.name in ("kernel-oom", "gpu-fault", "native-crash")],
    ids=name_of,
)  # fmt: skip
def test_kernel_records_may_arrive_up_to_a_second_late(folder: Path) -> None:
    """journald receives them late; their own stamp says when they were written."""
    entries, units, gaps = entries_of(folder)
    straight = ended(Tracker(tuple(units)), entries, gaps)
    for seed in range(3):
        chance = random.Random(seed)
        received = [
            (entry.realtime_usec + (chance.randrange(0, 1_100_000) if entry.from_kernel else 0), place, entry)
            for place, entry in enumerate(entries)
        ]
        # Records of one source keep their order.
        late, previous = [], 0
        for at, place, entry in received:
            if entry.from_kernel:
                at = previous = max(at, previous)
            late.append((at, place, entry))
        assert (
            ended(Tracker(tuple(units)), [entry for *_, entry in sorted(late, key=lambda one: one[:2])], gaps)
            == straight
        )


# --- single entries -----------------------------------------------------------------------------------------


def systemd(usec: int, message: str, message_id: str = "", **fields: str) -> Entry:
    own = {"_PID": "1", "_TRANSPORT": "journal", "UNIT": UNIT, "INVOCATION_ID": LIFE, "MESSAGE": message}
    return at(usec, **own, **({"MESSAGE_ID": message_id} if message_id else {}), **fields)


def line(usec: int, text: str, pid: int = 500, **fields: str) -> Entry:
    own = {"_PID": str(pid), "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": UNIT, "_SYSTEMD_INVOCATION_ID": LIFE}
    return at(usec, **(own | {"MESSAGE": text} | fields))


def at(usec: int, **fields: str) -> Entry:
    return Entry(cursor=f"c{usec}", boot_id=BOOT, monotonic_usec=usec, realtime_usec=10**15 + usec, fields=fields)


def started() -> Tracker:
    tracker = Tracker(("sglang-*.service",))
    tracker.feed(systemd(1_000_000, f"Starting {UNIT}", "7d4958e842da4a758f6c1cdc7b36dcc5"))
    return tracker


def test_a_flood_of_one_kind_of_fact_costs_neither_memory_nor_the_others() -> None:
    tracker = started()
    tracker.feed(line(2_000_000, "Traceback (most recent call last):"))
    tracker.feed(line(2_000_001, "KeyError: 'first'"))
    for number in range(1_500):
        text = f"[2026-04-15 10:00:00] Decode batch, #running-req: {number}, token usage: 0.10, #queue-req: 0"
        tracker.feed(line(3_000_000 + number, text))
    (record,) = tracker.records()
    assert len(record.events) < 300
    batches = [event for event in record.events if isinstance(event, Batch)]
    assert dict(batches[-1].values)["running-req"] == "1499"
    assert any(isinstance(event, Traceback) for event in record.events)
    assert record.lines == 1_502


def test_an_idle_server_s_health_checks_do_not_crowd_out_what_it_did() -> None:
    tracker = started()
    tracker.feed(
        line(3_000_000, "[2026-04-15 10:00:00] Decode batch, #running-req: 7, token usage: 0.10, #queue-req: 0")
    )
    check = (
        "Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0"
    )
    for number in range(500):
        tracker.feed(line(4_000_000 + number, f"[2026-04-15 10:00:01] {check}, input throughput (token/s): 0.09"))
    (record,) = tracker.records()
    decode, last = (event for event in record.events if isinstance(event, Batch))
    assert (decode.phase, last.phase) == ("decode", "prefill")
    assert last.usec == 4_000_499
    # A prompt of a user's is no check.
    tracker.feed(line(5_000_000, f"[2026-04-15 10:00:02] {check.replace('new-token: 1', 'new-token: 9')}"))
    tracker.feed(line(5_000_001, f"[2026-04-15 10:00:02] {check}"))
    assert len([event for event in record.events if isinstance(event, Batch)]) == 4


@pytest.mark.parametrize(("reboots", "lines_of_the_next"), [(False, 0), (True, 1)])
def test_an_orphan_is_known_by_its_pid_until_the_machine_boots(*, reboots: bool, lines_of_the_next: int) -> None:
    """It logs under the invocation of the unit's next life. After a reboot a pid is another process's."""
    tracker = started()
    tracker.feed(line(2_000_000, "hello", pid=500))
    tracker.feed(systemd(3_000_000, "x", "d9b373ed55a64feb8242e02dbe79a49c", UNIT_RESULT="signal"))
    tracker.feed(replace(line(4_000_000, "and now?", pid=500, _SYSTEMD_INVOCATION_ID="e2" * 16),
                         boot_id="b3" * 16 if reboots else BOOT))  # fmt: skip
    lines = {record.invocation_id: record.lines for record in tracker.records()}
    assert lines == {LIFE: 2 - lines_of_the_next} | ({"e2" * 16: 1} if reboots else {})


def test_a_unit_that_is_not_watched_is_nobody_s() -> None:
    tracker = Tracker(("sglang-*.service",))
    assert not tracker.feed(
        at(5, _PID="1", _TRANSPORT="journal", UNIT="nginx.service", INVOCATION_ID=LIFE, MESSAGE="x")
    )
    assert not tracker.records()


def test_late_evidence_is_taken_until_the_run_is_forgotten() -> None:
    tracker = started()
    tracker.feed(systemd(9_000_000, "x: Main process exited, code=killed, status=11/SEGV",
                         "98e322203f7a4ed290d09fe03c09fe15", EXIT_CODE="killed", EXIT_STATUS="11"))  # fmt: skip
    assert tracker.feed(systemd(9_000_500, "x", "d9b373ed55a64feb8242e02dbe79a49c", UNIT_RESULT="signal")) == {LIFE}
    core = {
        "MESSAGE_ID": "fc2e22bc6ee647b6b90729ab34a250b1", "_UID": "0", "COREDUMP_PID": "7", "COREDUMP_SIGNAL": "11",
        "COREDUMP_UNIT": UNIT, "_TRANSPORT": "journal", "_SYSTEMD_UNIT": "systemd-coredump@0-7-0.service",
    }  # fmt: skip
    assert tracker.feed(at(60_000_000, **core)) == {LIFE}
    tracker.forget(9_000_500 + LINGER_USEC + 1, BOOT)
    assert tracker.feed(at(9_000_500 + LINGER_USEC + 2, **core)) == set()


def test_the_server_may_not_speak_for_systemd() -> None:
    """With journald's native protocol a client chooses every field but the trusted ones."""
    tracker = started()
    forged = {
        "_TRANSPORT": "journal", "UNIT": UNIT, "INVOCATION_ID": LIFE, "SYSLOG_IDENTIFIER": "systemd",
        "MESSAGE_ID": "98e322203f7a4ed290d09fe03c09fe15", "EXIT_CODE": "killed", "EXIT_STATUS": "9",
    }  # fmt: skip
    tracker.feed(line(2_000_000, "x: Main process exited, code=killed, status=9/KILL", **forged))
    (record,) = tracker.records()
    assert not any(isinstance(event, ProcessExit) for event in record.events)


@pytest.mark.parametrize(
    ("comm", "cmdline", "role"),
    [
        ("sglang::schedul", "sglang::scheduler_TP0", "scheduler"),
        ("python", "sglang::detokenizer", "detokenizer"),
        ("python", "/opt/inquest/sglang/bin/python -m sglang.launch_server --port 1", "main"),
        ("python", "/opt/inquest/venv/bin/python -I -m service preflight demo", "control"),
        ("python", "/usr/bin/python -c from multiprocessing.spawn import spawn_main; spawn_main()", "child"),
        ("ninja", "ninja -v", ""),
    ],
)
def test_a_process_is_known_by_its_title_or_its_command(comm: str, cmdline: str, role: str) -> None:
    assert role_of(comm, cmdline) == role


words = st.sampled_from(
    [
        "[2026-04-15 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "x.py", line 3, in f', "KeyError: 3", "", "Traceback (most recent call last):",
        "[2026-04-15 10:00:00] Decode batch, #running-req: 1, token usage: 0.10, #queue-req: 0",
        "[2026-04-15 10:00:00] SIGQUIT received. signum=None, frame=None.", "Fatal Python error: Aborted",
        "terminate called after throwing an instance of 'c10::Error'", "  what():  no",
        "[2026-04-15 10:00:00] Receive: obj=GenerateReqInput(text='", "inquest: preflight refused: port: taken",
        "During handling of the above exception, another exception occurred:",
        "[2026-04-15 10:00:00] Subprocess scheduler_0 (pid=501) crashed with exit code -9. Triggering SIGQUIT",
    ]
) | st.text(max_size=40)  # fmt: skip
PID1 = [
    ("x", "de5b426a63be47a7b6ac3eaac82e2f6f"), ("x: Main process exited, code=killed, status=9/KILL",
     "98e322203f7a4ed290d09fe03c09fe15"), ("x", "d9b373ed55a64feb8242e02dbe79a49c"),
    ("x: State 'stop-sigterm' timed out. Killing.", ""), ("x: Watchdog timeout (limit 3s)!", ""),
    ("x", "9d1aaa27d60140bd96365438aad20286"), ("x", "39f53479d3a045ac8e11786248231fbf"),
]  # fmt: skip
items = st.one_of(
    st.tuples(st.just("line"), words, st.integers(499, 502)),
    st.tuples(st.just("pid1"), st.sampled_from(PID1), st.just(0)),
    st.tuples(st.just("kernel"), st.sampled_from([
        "Out of memory: Killed process 500 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        "NVRM: Xid (PCI:0000:01:00): 79, pid=500, name=python, GPU has fallen off the bus.",
    ]), st.just(0)),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(items, st.integers(0, 200_000_000)), max_size=25), st.booleans())
def test_any_sequence_of_records_has_a_verdict(told: list[tuple[tuple[str, Any, int], int]], restart: bool) -> None:
    """Nothing raises; what is judged is judged the same a second time, and after a restart at an idle point."""
    tracker, usec = started(), 2_000_000
    for (kind, what, pid), wait in told:
        usec += wait
        if kind == "line":
            tracker.feed(line(usec, what, pid))
        elif kind == "pid1":
            message, message_id = what
            tracker.feed(systemd(usec, message, message_id, UNIT_RESULT="signal", EXIT_CODE="killed", EXIT_STATUS="9"))
        else:
            tracker.feed(at(usec, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", MESSAGE=what))
    before = outcome(judge(tracker, LIFE).verdict)
    assert outcome(judge(tracker, LIFE).verdict) == before
    if restart and tracker.idle:
        again = Tracker(("sglang-*.service",), [load_run_record(dump_run_record(r)) for r in tracker.records()])
        assert outcome(judge(again, LIFE).verdict) == before
