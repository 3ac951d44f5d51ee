"""What people cut out of a log and send: without the start, behind a shipper's prefix, from a container."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.analyze.shippers import learned
from tests.forensics.analyze.saved import exception, judged, line, only, served, short, verdict

IMA = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
PREFILL = (
    "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.31, #running-req: {}, #queue-req: 0,"
)
FRAMES = [
    '  File "/opt/maple/sglang/srt/model_loader/loader.py", line 433, in load_model',
    "    model.load_weights(weights)",
    "KeyError: 'layers.7.mixer.weight'",
]

SHIPPERS: dict[str, Callable[[int, str], str]] = {
    "a CI": lambda step, text: f"[2026-05-17T08:00:{step:02d}.702Z] {text}",
    "a job's name and Ray": lambda step, text: (
        f"[2026-05-17T16:00:{step:02d}+08:00] maple-rl-0517-x7 >> (SGLangEngine pid=3111) {text}"
    ),
    "Ray on another node": lambda step, text: f"\x1b[36m(SGLangEngine pid=3111, ip=10.0.0.7)\x1b[0m {text}",
    "Kibana": lambda step, text: f"May 17, 2026 @ 20:46:{step:02d}.892    {text}",
    "month and day": lambda step, text: f"05-17 08:00:{step:02d}.784 {text}",
    "mpirun": lambda step, text: f"[1,{step % 2}]<stderr>:{text}",
    "a node's name": lambda step, text: f"node-{step % 3}: {text}",
    "indented": lambda step, text: f"        {text}",
    "quoted": lambda step, text: f"> {text}",
    "a stamp before JSON": lambda step, text: (
        f"2026-05-17T08:00:{step:02d}.5Z {json.dumps({'asctime': '2026-05-17 08:00:00,1', 'message': text})}"
    ),
    "JSON in docker's JSON": lambda step, text: json.dumps(
        {"log": json.dumps({"levelname": "INFO", "message": text}) + "\n", "stream": "stderr"}
    ),
    "a name in a shipper's JSON": lambda step, text: json.dumps(
        {"@timestamp": "2026-05-17T08:00:00Z", "log": f"maple-7f9 | {text}"}
    ),
}


@pytest.mark.parametrize("shipper", SHIPPERS)
def test_a_shippers_prefix_is_learned(shipper: str, tmp_path: Path) -> None:
    lines = [SHIPPERS[shipper](step, text) for step, text in enumerate([*served(), *exception(40, IMA)])]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["phase"]) == ("cuda-error", "serving")
    assert crash["doing"]["figures"]["accept rate"] == "0.54"


@pytest.mark.parametrize("shipper", SHIPPERS)
def test_of_a_traceback_alone_too(shipper: str, tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [SHIPPERS[shipper](step, text) for step, text in enumerate(FRAMES)]))
    assert (crash["cause"], crash["phase"]) == ("configuration-error", "startup")


def test_a_line_that_quotes_another_teaches_nothing(tmp_path: Path) -> None:
    quoting = f"answer 1: {line(30, 'Scheduler hit an exception: Traceback (most recent call last):')}"
    assert learned([*served(), quoting, quoting]) is None
    assert judged(tmp_path, [*served(), quoting, f"answer 1: {IMA}"]).crashes == []


@pytest.mark.parametrize(("running", "ready"), [(3, True), (0, None)])
def test_a_prefill_alone_does_not_make_it_a_start(running: int, ready: bool | None, tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [line(30, PREFILL.format(running), " TP0"), *exception(31, IMA)]))
    assert (crash["phase"], crash["became_ready"]) == ("serving", ready)


def test_without_a_start_or_a_frame_the_phase_is_not_known(tmp_path: Path) -> None:
    lines = [line(30, PREFILL.format(0), " TP0"), "Fatal Python error: Segmentation fault"]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["subclass"], crash["phase"]) == ("native-crash", "sigsegv-child", None)


def test_what_came_up_through_the_serving_loop_is_no_refusal_at_the_start(tmp_path: Path) -> None:
    error = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Limit: 101376."
    crash = only(judged(tmp_path, exception(40, error)))
    assert (crash["cause"], crash["phase"]) == ("python-exception", "serving")
    assert only(judged(tmp_path, [*served()[:3], *exception(12, error)]))["cause"] == "configuration-error"


@pytest.mark.parametrize(
    ("frame", "subclass"),
    [
        ("model_runner.py: in load_model", "weights"),
        ("model_executor/cuda_graph_runner.py: in __init__", "graph-capture"),
        ("mem_cache/memory_pool.py: in __init__", "kv-cache"),
        ("managers/scheduler.py: in event_loop_normal", "runtime"),
    ],
)
def test_the_frames_tell_where_gpu_memory_ran_out(frame: str, subclass: str, tmp_path: Path) -> None:
    path, _, function = frame.partition(": in ")
    lines = [
        line(12, "Scheduler hit an exception: Traceback (most recent call last):", " TP0"),
        f'  File "/opt/maple/sglang/srt/{path}", line 44, in {function}',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.",
    ]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["subclass"]) == ("cuda-oom", subclass)
    assert ("while serving" in crash["summary"]) == (subclass == "runtime")


def test_the_evidence_says_what_a_chain_began_as(tmp_path: Path) -> None:
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 24.00 MiB.\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "/opt/maple/experts.py", line 3, in build\nRuntimeError: no experts'
    )
    crash = only(judged(tmp_path, [*served()[:3], *exception(12, error)]))
    assert crash["cause"] == "cuda-oom"
    assert "Tried to allocate 24.00 MiB" in crash["evidence"][0]["why"]


def test_advice_names_no_unit_that_is_not_there(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served(), "Fatal Python error: Segmentation fault"]))
    assert "`coredumpctl info`" in crash["advice"][0]


@pytest.mark.parametrize("missing", [True, False])
def test_a_hang_whose_stacks_are_missing(missing: bool, tmp_path: Path) -> None:
    failed = [line(340, "Pyspy failed to dump PID 5171. Error: /bin/sh: 1: py-spy: not found", " TP0")] * missing
    lines = [*served(), line(340, "Watchdog timeout (self.watchdog_timeout=300)", " TP0"), *failed]
    crash = only(judged(tmp_path, [*lines, line(345, "Received sigquit from a child process. It usually means …")]))
    assert crash["cause"] == "hang"
    assert ("Install py-spy" in crash["advice"][0]) == missing


def test_the_token_pool_is_not_gpu_memory(tmp_path: Path) -> None:
    error = "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 148 tokens."
    crash = only(judged(tmp_path, [*served(), *exception(40, error)]))
    assert (crash["cause"], crash["subclass"]) == ("python-exception", "token-pool")
    assert any("not of GPU memory" in note for note in crash["notes"])


def test_a_child_that_an_other_logger_tells_of(tmp_path: Path) -> None:
    """SGLang's diffusion server stamps its lines with month and day alone."""
    lines = ["[05-17 08:00:08] Rank 0 scheduler is dead. Please check if there are relevant logs.",
             "[05-17 08:00:10] Exit code: -9"]  # fmt: skip
    crash = only(judged(tmp_path, lines))
    assert verdict(judged(tmp_path, lines)) == ("unexplained-kill", "likely")
    assert "SIGKILL" in crash["summary"]


def test_one_record_holds_a_whole_traceback(tmp_path: Path) -> None:
    text = "\n".join(exception(40, IMA)[:6])
    record = json.dumps({"asctime": "2026-05-17 08:00:40,123", "levelname": "ERROR", "message": text})
    assert verdict(judged(tmp_path, [*served(), record])) == ("cuda-error", "likely")


@pytest.mark.parametrize("cut", [8, 10, 15])
def test_the_last_lines_of_a_journal_as_text(cut: int, tmp_path: Path) -> None:
    """`journalctl -n`: the first line that is left is a scheduler's, and main is who speaks of signals and requests."""
    told = served()[cut:]
    died = exception(40, IMA)
    lines = [*short(told, pid=4755), *short(died[:-3], pid=4755), *short(died[-2:])]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["phase"], crash["run"]["main_pid"]) == ("cuda-error", "serving", 4711)


def test_the_last_lines_that_all_came_through_one_writer(tmp_path: Path) -> None:
    lines = short([*served()[8:], *exception(40, IMA)])
    assert verdict(judged(tmp_path, lines)) == ("cuda-error", "likely")


USAGE = [
    "usage: sglang serve [-h] --model-path MODEL_PATH",
    "sglang serve: error: unrecognized arguments: --draft-steps 3",
]
MISSING = [
    "Traceback (most recent call last):",
    '  File "<frozen runpy>", line 198, in _run_module_as_main',
    '  File "/opt/maple/sglang/launch_server.py", line 8, in <module>',
    "ModuleNotFoundError: No module named 'maple_kernels'",
]
CHILD = [
    "Traceback (most recent call last):",
    '  File "<string>", line 1, in <module>',
    '  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 122, in spawn_main',
    "ModuleNotFoundError: No module named 'maple_kernels'",
]


@pytest.mark.parametrize(("death", "cause"), [(USAGE, "configuration-error"), (MISSING, "environment-error")])
def test_a_restart_loop_that_never_comes_to_the_first_record(death: list[str], cause: str, tmp_path: Path) -> None:
    found = judged(tmp_path, death * 3)
    assert [crash["cause"] for crash in found.crashes] == [cause] * 3
    assert len({crash["fingerprint"] for crash in found.crashes}) == 1


def test_the_children_of_one_life_that_all_raise_are_one_death(tmp_path: Path) -> None:
    assert len(judged(tmp_path, [*CHILD, *CHILD, *MISSING]).crashes) == 1


def test_what_a_launcher_says_of_the_server_is_no_exception_of_its_own(tmp_path: Path) -> None:
    lines = [
        line(40, "Received sigquit from a child process. It usually means the child failed."),
        "Traceback (most recent call last):",
        '  File "/opt/maple/bench.py", line 217, in main',
        "Exception: Server process exited with code -9. Check server logs for errors.",
    ]
    assert verdict(judged(tmp_path, lines)) == ("unexplained-kill", "likely")


def test_a_shells_word_on_the_end_does_not_make_it_a_start(tmp_path: Path) -> None:
    lines = [*exception(40, IMA)[:-1], "Killed"]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["phase"]) == ("cuda-error", "serving")
