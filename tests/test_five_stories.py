"""The five stories that Inquest comes from: deaths that people explained wrong, and the answer they should have had.

Told in the language of `tests/cases`, replayed through the real pipeline, and where memory of earlier deaths matters,
through the store.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forensics.alerts.sample import sample
from forensics.alerts.words import words
from forensics.events import Gap
from forensics.model import Crash, Strength, Verdict
from forensics.shapes import CrashShape
from forensics.sources import export
from forensics.store import Store
from tests.cases.replay import Judged, replay
from tests.cases.story import IDS, Journal

DEEP = "speculative_num_steps=10, speculative_num_draft_tokens=11"


@pytest.fixture
def journal(request: pytest.FixtureRequest) -> Journal:
    return Journal(request.node.name)


def judge(journal: Journal, tmp_path: Path) -> list[Judged]:
    """What the daemon would say of each run in this journal, in the order in which they ended."""
    path = tmp_path / "journal.jsonl"
    path.write_text(journal.dump(), encoding="utf-8")
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in journal.gaps]
    return replay(export.read_json(path), ["sglang-*.service"], gaps)


def shown(judged: Judged, store: Store) -> CrashShape:
    """The crash as people see it, with what the store remembers."""
    store.save(Crash(run=judged.run, timeline=judged.timeline, verdict=judged.verdict))
    shape = store.shown(judged.run.invocation_id)
    assert shape is not None
    return shape


def decisive(verdict: Verdict) -> str:
    return verdict.evidence[0].event.record.message


# (a) deep speculation dies with no error in the log


def test_deep_speculation_dies_silently_and_the_kernels_record_shows_the_oom(journal: Journal, tmp_path: Path) -> None:
    """Ten steps deep, the log ends in the middle of a decode line; the grep finds nothing. The kernel knows."""
    life = journal.life()
    life.up(serve=8, args=DEEP)
    journal.oom(life.cgroup, life.main, "python")
    life.counted_oom().killed(9, "oom-kill")
    (one,) = judge(journal, tmp_path)
    assert (one.verdict.cause, one.verdict.strength) == ("kernel-oom", Strength.CONFIRMED)
    assert "oom-kill:constraint=CONSTRAINT_NONE" in decisive(one.verdict)
    assert one.verdict.memory is not None


def test_deep_speculation_dies_silently_and_without_the_kernels_log_it_stays_unexplained(
    journal: Journal, tmp_path: Path
) -> None:
    """The same silence where nobody may read the kernel's log: no OOM is read into it."""
    life = journal.life()
    life.up(serve=8, args=DEEP)
    life.killed()
    journal.gap("kernel", "no right to read the kernel's log")
    (one,) = judge(journal, tmp_path)
    assert one.verdict.cause == "unexplained-kill"
    assert "no right to read the kernel's log" in one.verdict.summary
    assert not any(other.cause == "kernel-oom" for other in one.verdict.ruled_out)


# (b) "load crashed" after a change of steps 5 → 10


def test_the_load_that_crashed_was_the_stop_of_a_server_that_had_served_well(journal: Journal, tmp_path: Path) -> None:
    """Steps 5 → 10, restart, status=9/KILL: "it crashed on load". It had served at 280 tok/s with accept rate 0.92, and
    it was the old server's stop that ran into its timeout; the new one came up."""
    old = journal.life(throughput=280.0)
    old.up(serve=0, args="speculative_num_steps=5")
    for _ in range(5):
        old.wait(2).sched(
            "Decode batch, #running-req: 1, #token: 900, token usage: 0.01, accept len: 5.52, accept rate: 0.92, "
            "cuda graph: True, gen throughput (token/s): 280.00, #queue-req: 0"
        )
    old.stopping().sigterm().wait(5).drain(1).wait(85).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")
    new = journal.life()
    new.up(serve=2, args=DEEP)
    (one,) = judge(journal, tmp_path)
    verdict = one.verdict
    assert one.run.invocation_id == old.invocation_id
    assert (verdict.cause, verdict.strength) == ("stop-timeout", Strength.CONFIRMED)
    assert "State 'stop-sigterm' timed out" in "".join(piece.event.record.message for piece in verdict.evidence)
    assert "served well" in verdict.summary
    assert "the configuration is not to blame" in verdict.summary
    assert dict(verdict.doing.figures)["gen throughput (token/s)"] == "280.00"
    assert dict(verdict.doing.figures)["accept rate"] == "0.92"


# (c) a tensor-size mismatch comes back after a fix

MISMATCH = "RuntimeError: The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 0"
VERIFY = "managers/scheduler.py:2310 in event_loop_overlap; speculative/eagle_info.py:288 in verify"


def test_a_mismatch_that_comes_back_after_the_fix_is_recognised(journal: Journal, tmp_path: Path) -> None:
    """(160) must match (2), steps 3 → 2, and the next night (96) must match (3): another message to a reader, the same
    death to Inquest."""
    first = journal.life()
    first.up(serve=4, args="max_running_requests=48")
    first.scheduler_raised(VERIFY, MISMATCH.format(160, 2)).self_kill().restart()
    journal.wait(40_000)
    second = journal.life()
    second.starting().wait(3).say(
        "server_args=ServerArgs(model_path='/srv/models/birch-8b', tp_size=1, port=30000, "
        "speculative_algorithm='EAGLE', speculative_num_steps=2, max_running_requests=48, watchdog_timeout=300)"
    )
    second.pools().graphs().open().ready().serve(3)
    second.scheduler_raised(VERIFY.replace("2310", "2318"), MISMATCH.format(96, 3)).self_kill()
    store = Store(tmp_path / "inquest.sqlite")
    before, after = (shown(one, store) for one in judge(journal, tmp_path))
    store.close()
    assert before["cause"] == after["cause"] == "python-exception"
    assert before["fingerprint"] == after["fingerprint"]
    assert after["history"] is not None
    assert after["history"]["occurrence"] == 2
    assert after["history"]["sentence"].startswith(
        "The same death as before your change of `speculative_num_steps` 3 → 2: the change did not cure it."
    )
    told = replace(sample("pager", datetime.now(UTC)), crash=after)
    assert after["history"]["sentence"] in words(told, host="alder", link="http://127.0.0.1:8642").history


# (d) death before the first log line


def test_death_before_the_first_line_says_that_nothing_was_logged(journal: Journal, tmp_path: Path) -> None:
    """Nothing in the log, nothing running, GPUs idle: systemd's own record says that it could not execute."""
    life = journal.life()
    life.starting().exit("exited", 203, "EXEC").remains("exit-code", "exited", "203").failed("exit-code").start_failed()
    (one,) = judge(journal, tmp_path)
    assert (one.verdict.cause, one.verdict.strength) == ("exec-failure", Strength.CONFIRMED)
    assert one.verdict.phase == "before-logging"
    assert "203" in decisive(one.verdict)
    assert one.verdict.ground == ("The server logged nothing.",)


def test_what_the_unit_itself_saw_after_the_death_goes_with_the_crash(journal: Journal, tmp_path: Path) -> None:
    """The step after the stop looked at log, processes and GPUs before all of it was gone."""
    life = journal.life()
    life.starting().killed()
    journal.write(
        {
            "_TRANSPORT": "journal", "_PID": 9001, "_UID": "0", "_SYSTEMD_UNIT": life.unit,
            "_SYSTEMD_INVOCATION_ID": life.invocation_id, "MESSAGE_ID": IDS["remains"],
            "INQUEST_INVOCATION_ID": life.invocation_id, "MESSAGE": "ended", "INQUEST_LEFT_PROCESSES": "",
            "INQUEST_GPUS": "0 GPU-11 8 4194304 85899345920\n1 GPU-22 0 68719476736 85899345920",
            "INQUEST_GPU_PROCESSES": "1 7100 68182605824 other ollama ollama.service",
        }
    )  # fmt: skip
    (one,) = judge(journal, tmp_path)
    assert one.verdict.phase == "before-logging"
    assert one.verdict.ground == (
        "The server logged nothing.",
        "Nothing of the unit still runs.",
        "GPU 0 holds 0.0 of 80.0 GiB, P8: no process.",
        "GPU 1 holds 64.0 of 80.0 GiB, P0: ollama (7100, ollama.service) with 63.5 GiB.",
    )


def test_what_outlived_the_server_is_named_with_what_it_holds(journal: Journal, tmp_path: Path) -> None:
    life = journal.life()
    life.up().killed()
    journal.write(
        {
            "_TRANSPORT": "journal", "_PID": 9001, "_UID": "0", "_SYSTEMD_UNIT": life.unit,
            "_SYSTEMD_INVOCATION_ID": life.invocation_id, "MESSAGE_ID": IDS["remains"],
            "INQUEST_INVOCATION_ID": life.invocation_id, "MESSAGE": "ended",
            "INQUEST_LEFT_PROCESSES": "7200 41 D sglang::schedul", "INQUEST_GPUS": "0 GPU-11 2 32212254720 85899345920",
            "INQUEST_GPU_PROCESSES": "0 7200 31138512896 left sglang::schedul",
        }
    )  # fmt: skip
    (one,) = judge(journal, tmp_path)
    assert one.verdict.ground[1:] == (
        "Still there after its end: sglang::schedul, waiting in the kernel (7200).",
        "GPU 0 holds 30.0 of 80.0 GiB, P2: left over sglang::schedul (7200) with 29.0 GiB.",
    )


# (e) every speculative configuration dies after KV-cache allocation


def test_max_running_request_is_zero_amid_warnings_that_mean_nothing(journal: Journal, tmp_path: Path) -> None:
    """CUDA-version warnings fill the log; the assertion, the memory that the cache took, and the difference to the
    server that worked are the answer."""
    plain = journal.life()
    plain.up(serve=3, args="max_running_requests=4").stopping().sigterm().wait(5).drain(0)
    plain.say(f"kill_process_tree called: parent_pid={plain.main}, include_parent=True, pid={plain.main}").killed()
    broken = journal.life()
    broken.starting().load("max_running_requests=48")
    broken.line("/usr/lib/python3/torch/cuda/__init__.py:235: UserWarning: CUDA 13.0 was found, 12.8 was expected")
    broken.sched("Ignore import error when loading sglang.srt.models.qwen3: CUDA error or missing kernel")
    broken.pools()
    broken.scheduler_raised(
        "managers/scheduler.py:568 in __init__; managers/tp_worker.py:420 in alloc_memory_pool",
        "AssertionError: max_running_request is zero",
    ).self_kill(serving=False)
    store = Store(tmp_path / "inquest.sqlite")
    clean, crash = (shown(one, store) for one in judge(journal, tmp_path))
    store.close()
    assert clean["cause"] == "clean-stop"
    assert (crash["cause"], crash["strength"]) == ("configuration-error", "confirmed")
    assert crash["evidence"][0]["message"] == "AssertionError: max_running_request is zero"
    assert crash["memory"] is not None
    assert any(figure["what"].startswith("target KV cache") for figure in crash["memory"]["figures"])
    assert crash["history"] is not None
    assert {"name": "max_running_requests", "before": "4", "after": "48"} in crash["history"]["since_good"]
    assert not any(other == "cuda-error" for other in crash["also"])
