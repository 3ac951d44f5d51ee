"""Speculative decoding and the traces that hide the first error: what a crash must say of them."""

from pathlib import Path

from forensics.classify import classify
from forensics.coverage import RECORDED
from forensics.model import Verdict
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.story import Journal, Life

VERIFY = "managers/scheduler.py:2310 in event_loop_overlap; speculative/eagle_info.py:288 in verify"
ILLEGAL = (
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect."
)


def verdict(life: Life, tmp_path: Path) -> Verdict:
    path = tmp_path / "journal.jsonl"
    path.write_text(life.journal.dump())
    tracker = Tracker([life.unit])
    for entry in read_json(path):
        tracker.feed(entry)
    return classify(*tracker.judge_input(life.invocation_id, RECORDED))


def test_i1_the_record_states_how_the_server_speculated(tmp_path: Path) -> None:
    life = Journal("i1").life()
    life.up(
        args="speculative_eagle_topk=1, speculative_num_draft_tokens=4, speculative_draft_model_path='/srv/d', "
        "speculative_draft_model_revision='main', speculative_token_map=None"
    )
    life.scheduler_raised(VERIFY, "RuntimeError: boom").self_kill()
    assert dict(verdict(life, tmp_path).speculation) == {
        "algorithm": "EAGLE",
        "num_steps": "3",
        "eagle_topk": "1",
        "num_draft_tokens": "4",
        "draft_model_path": "/srv/d",
        "draft_model_revision": "main",
    }


def test_i1_a_server_without_speculation_is_said_to_have_none(tmp_path: Path) -> None:
    life = Journal("i1-none").life()
    life.starting().wait(3).say("server_args=ServerArgs(model_path='/srv/m', speculative_algorithm=None, port=30000)")
    life.scheduler_raised(VERIFY, "RuntimeError: boom").self_kill(serving=False)
    assert verdict(life, tmp_path).speculation == ()


def test_i3_the_first_error_wins_over_later_traces_of_other_processes(tmp_path: Path) -> None:
    life = Journal("i3").life()
    life.up()
    life.scheduler_raised(VERIFY, "RuntimeError: The size of tensor a (6) must match the size of tensor b (4)")
    other = life.scheduler + 7
    for error in (
        "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, remote process exited or network error",
        "EOFError",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ):
        life.wait(0.2).raised(VERIFY, error, other)
    life.self_kill()
    found = verdict(life, tmp_path)
    assert found.cause == "python-exception"
    assert "size of tensor a (6)" in found.evidence[0].event.record.message


def test_i4_an_asynchronous_error_is_told_as_reported_there_not_as_caused_there(tmp_path: Path) -> None:
    life = Journal("i4").life()
    life.up()
    life.scheduler_raised(VERIFY, ILLEGAL).self_kill()
    found = verdict(life, tmp_path)
    assert found.cause == "cuda-error"
    assert "reports" in found.summary
    assert "eagle_info.py" not in found.summary
