"""Speculative decoding and the traces that hide the first error: what a crash must say of them."""

from pathlib import Path

from forensics.classify import classify
from forensics.coverage import RECORDED
from forensics.model import Verdict
from forensics.sources.export import read_json
from forensics.tracker import Tracker
from tests.cases.story import Journal, Life
from tests.forensics.rules.telling import unit_state, verdict_on

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


def test_i4_with_blocking_launches_it_is_told_as_caused_there() -> None:
    life = Journal("i4-blocking").life()
    life.up()
    life.scheduler_raised(VERIFY, ILLEGAL).self_kill()
    for blocking in (False, True):
        found = verdict_on(life.journal, life, [unit_state(life, launch_blocking=blocking)]).verdict
        assert found.cause == "cuda-error"
        assert ("is where it failed" in found.summary) == blocking
        assert ("is often not the kernel that failed" in found.summary) != blocking
        assert found.advice[0].startswith("Run once with CUDA_LAUNCH_BLOCKING=1") != blocking


WARNED = (
    "Warning: Target model's context_length (32768) is greater than the derived context_length (2048). This may lead "
    "to incorrect model outputs or CUDA errors. Note that the derived context_length may differ from "
    "max_position_embeddings in the model's config."
)
OUT_OF_BOUNDS = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [17,0,0], thread: [5,0,0] "
    'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
)
DRAFT = "speculative/eagle_worker.py:533 in draft_forward; models/llama_eagle.py:88 in forward"


def drafted(name: str, *, warned: bool = True, error: str, assertion: str = "") -> Life:
    """A life with a draft model, of which SGLang warned at the start or did not, and its end."""
    life = Journal(name).life()
    life.starting().load()
    if warned:
        life.sched(WARNED)
    life.pools().graphs().open().ready().serve(2)
    if assertion:
        life.line(assertion, life.scheduler)
    life.scheduler_raised(DRAFT, error).self_kill()
    return life


ASSERTED = "torch.AcceleratorError: CUDA error: device-side assert triggered"


def test_i2_a_draft_that_knows_fewer_positions_is_named_as_the_limit(tmp_path: Path) -> None:
    """The assertion says that an index was out of bounds, the configuration says whose table was too short."""
    found = verdict(drafted("i2", error=ASSERTED, assertion=OUT_OF_BOUNDS), tmp_path)
    assert found.cause == "cuda-error"
    (note,) = [note for note in found.notes if note.startswith("Draft limit")]
    assert "knows positions up to 2048" in note
    assert "the target's context has 32768" in note
    assert "Set context_length to 2048 at most" in note


def test_i2_so_it_is_where_sglang_refuses_the_pair_at_start(tmp_path: Path) -> None:
    life = Journal("i2-refused").life()
    life.starting().load()
    life.scheduler_raised("configs/model_config.py:1314 in _derive_context_length", f"ValueError: {WARNED}")
    life.self_kill(serving=False)
    found = verdict(life, tmp_path)
    assert found.cause == "configuration-error"
    assert any("knows positions up to 2048" in note for note in found.notes)


def test_i2_it_is_not_named_where_it_explains_nothing(tmp_path: Path) -> None:
    """No warning; another kind of failure; a warning that a prompt quotes while the server serves."""
    unwarned = drafted("i2-unwarned", warned=False, error=ASSERTED, assertion=OUT_OF_BOUNDS)
    other = drafted("i2-other", error="KeyError: 'lora'")
    quoted = Journal("i2-quoted").life()
    quoted.up().say(f"what is this? {WARNED}").serve(1)
    quoted.line(OUT_OF_BOUNDS, quoted.scheduler).scheduler_raised(DRAFT, ASSERTED).self_kill()
    for life in (unwarned, other, quoted):
        assert not any("Draft limit" in note for note in verdict(life, tmp_path).notes)
