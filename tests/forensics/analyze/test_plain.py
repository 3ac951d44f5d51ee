"""A server's own log: what shows a death, what does not, and how far words alone carry."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forensics.analyze.saved import (
    BATCH,
    REFUSED,
    UNIT,
    at,
    child_died,
    exception,
    judged,
    line,
    only,
    oom,
    served,
    stopped,
    verdict,
)

IMA = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 101.25 MiB is free."
)


def stamp(second: int) -> str:
    return f"2026-05-17T08:{second // 60:02d}:{second % 60:02d}.{second:09d}Z"


WRAPPINGS: dict[str, Callable[[int, str], str]] = {
    "bare": lambda second, text: text,
    "docker logs -t": lambda second, text: f"{stamp(second)} {text}",
    "docker json-file": lambda second, text: json.dumps(
        {"log": text + "\n", "stream": "stderr", "time": stamp(second)}
    ),
    "CRI": lambda second, text: f"{stamp(second)} stderr F {text}",
    "compose": lambda second, text: f"sglang-1  | {text}",
    "kubectl --prefix": lambda second, text: f"[pod/sglang-0/server] {text}",
    "a shipper's JSON": lambda second, text: json.dumps({"@timestamp": stamp(second), "message": text}),
    "CRLF": lambda second, text: text + "\r",
    "colours": lambda second, text: f"\x1b[32m{text}\x1b[0m",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_whatever_stands_around_the_lines(wrapping: str, tmp_path: Path) -> None:
    lines = [WRAPPINGS[wrapping](step, text) for step, text in enumerate([*served(), *exception(40, IMA)])]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["strength"], crash["phase"]) == ("cuda-error", "likely", "serving")
    assert crash["doing"]["figures"]["accept rate"] == "0.54"


@pytest.mark.parametrize("wrapping", ["bare", "docker logs -t", "docker json-file", "CRI"])
def test_newest_first(wrapping: str, tmp_path: Path) -> None:
    lines = [WRAPPINGS[wrapping](step, text) for step, text in enumerate([*served(), *exception(40, IMA)])]
    assert verdict(judged(tmp_path, reversed(lines))) == ("cuda-error", "likely")


def test_a_line_that_the_runtime_split(tmp_path: Path) -> None:
    lines = [WRAPPINGS["CRI"](step, text) for step, text in enumerate(served())]
    lines += [
        f"{stamp(50)} stderr P [{at(50)} TP0] Scheduler hit an exc",
        f"{stamp(50)} stderr F eption: Traceback (most recent call last):",
    ]
    lines += [f"{stamp(50)} stderr F {text}" for text in exception(50, IMA)[1:]]
    assert verdict(judged(tmp_path, lines)) == ("cuda-error", "likely")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OOM, "cuda-oom"),
        (IMA, "cuda-error"),
        ("RuntimeError: The size of tensor a (160) must match the size of tensor b (2)", "python-exception"),
        (
            "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
            "environment-error",
        ),
        ("RuntimeError: NCCL error: unhandled system error", "nccl-error"),
    ],
)
def test_an_exception_while_serving(error: str, cause: str, tmp_path: Path) -> None:
    assert verdict(judged(tmp_path, [*served(), *exception(40, error)])) == (cause, "likely")


def test_a_refusal_at_start(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served()[:4], *exception(12, REFUSED)]))
    assert (crash["cause"], crash["phase"]) == ("configuration-error", "startup")


def test_a_log_that_ends_healthy_shows_no_death(tmp_path: Path) -> None:
    found = judged(tmp_path, served())
    assert found.crashes == []
    assert "while the server was serving" in found.reason
    assert "journalctl -k" in found.reason


def test_a_stop_in_good_order_is_no_crash(tmp_path: Path) -> None:
    found = judged(tmp_path, [*served(), *stopped(40)])
    assert found.crashes == []
    assert [end["cause"] for end in found.ended_well] == ["clean-stop"]


def test_a_stop_to_the_whole_group_is_no_crash_either(tmp_path: Path) -> None:
    """SIGTERM reaches the scheduler too, and main calls that a crash of its child."""
    found = judged(tmp_path, [*served(), stopped(40)[0], *child_died(41, -15)])
    assert found.crashes == []


def test_a_stop_that_the_log_does_not_see_to_its_end(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served(), *stopped(40, remaining=3), line(46, BATCH, " TP0")]))
    assert (crash["cause"], crash["strength"]) == ("unexplained-kill", "likely")
    assert "3 request(s) running" in crash["summary"]


@pytest.mark.parametrize("code", [-9, -7])
def test_a_child_that_was_killed_is_unexplained_without_the_kernel(code: int, tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served(), *child_died(40, code)]))
    if code == -9:
        assert crash["cause"] == "unexplained-kill"
        assert {gap["source"] for gap in crash["gaps"]} == {"kernel", "systemd"}
        assert "dmesg -T" in crash["advice"][0]
    else:
        assert crash["cause"] == "native-crash"


def test_a_signal_that_no_oom_killer_sends(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served(), *child_died(40, -15)]))
    assert (crash["cause"], crash["subclass"]) == ("external-signal", "sigterm-child")


def test_the_next_start_in_the_same_log_shows_that_the_server_vanished(tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served(), *served(60)]))
    assert (crash["cause"], crash["strength"]) == ("unexplained-kill", "likely")
    assert "vanished" in crash["summary"]


def test_each_life_has_its_own_verdict(tmp_path: Path) -> None:
    lines = [*served(), *exception(40, IMA), *served(60), *exception(100, OOM), *served(130), *stopped(170)]
    found = judged(tmp_path, lines)
    assert [crash["cause"] for crash in found.crashes] == ["cuda-error", "cuda-oom"]
    assert len(found.ended_well) == 1


@pytest.mark.parametrize(
    "words",
    [
        "Killed",
        "./run.sh: line 12:  4711 Killed                  python -m sglang.launch_server",
        "zsh: killed     python",
        "[1]+  Killed                  python -m sglang.launch_server",
        "sglang-1 exited with code 137",
        "command terminated with exit code 137",
        "Loading shards:  75%|███     | 3/4 [00:08<00:02,  2.83s/it]Killed",
    ],
)
def test_the_shells_word_is_no_explanation(words: str, tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [*served()[:3], words]))
    assert (crash["cause"], crash["run"]["signal"]) == ("unexplained-kill", "SIGKILL")


def test_a_container_that_left_with_its_own_status(tmp_path: Path) -> None:
    assert only(judged(tmp_path, [*served(), "sglang-1 exited with code 3"]))["cause"] == "silent-exit"
    assert judged(tmp_path, [*served(), "sglang-1 exited with code 0"]).crashes == []


def test_a_kernels_line_in_a_servers_log_is_nobodys_word(tmp_path: Path) -> None:
    """A prompt can hold it. The kernel's own log decides."""
    for quoted in (
        oom(),
        [f"[  912.1] {text}" for text in oom()],
        [f"May 17 08:00:40 maple kernel: {t}" for t in oom()],
    ):
        crash = only(judged(tmp_path, [*served(), *quoted, *child_died(40, -9)]))
        assert crash["cause"] == "unexplained-kill"


def test_systemds_words_in_a_servers_log_need_an_end_that_hangs_together(tmp_path: Path) -> None:
    exited = f"{UNIT}: Main process exited, code=killed, status=9/KILL"
    assert judged(tmp_path, [*served(), exited, line(50, BATCH, " TP0")]).crashes == []
    whole = [
        f"Stopping {UNIT} - maple...",
        f"{UNIT}: State 'stop-sigterm' timed out. Killing.",
        exited,
        f"{UNIT}: Failed with result 'timeout'.",
    ]
    crash = only(judged(tmp_path, [*served(), *whole]))
    assert (crash["cause"], crash["strength"], crash["unit"]) == ("stop-timeout", "likely", UNIT)
    assert judged(tmp_path, [*served(), *whole, line(50, BATCH, " TP0")]).crashes == []


def test_what_the_server_outlived_is_no_death(tmp_path: Path) -> None:
    lines = [
        *served(),
        *exception(40, "ValueError: a bad request")[:-2],
        *(line(50 + step, BATCH, " TP0") for step in range(9)),
    ]
    assert judged(tmp_path, lines).crashes == []


def test_users_words_are_not_evidence_and_not_shown(tmp_path: Path) -> None:
    prompt = "Traceback (most recent call last):\nRuntimeError: CUDA error: device-side assert triggered"
    lines = [*served(), line(40, f"Receive: obj=GenerateReqInput(text='{prompt}')"), *child_died(45, -9)]
    crash = only(judged(tmp_path, "\n".join(lines).split("\n")))
    assert crash["cause"] == "unexplained-kill"
    assert "device-side" not in json.dumps(crash)


def test_no_secret_leaves(tmp_path: Path) -> None:
    found = judged(tmp_path, [*served(), *exception(40, "ValueError: --api-key sk-maple-very-secret-key is wrong")])
    assert "very-secret" not in json.dumps(found.as_json())


def test_a_health_check_without_an_answer_to_the_end(tmp_path: Path) -> None:
    unanswered = [
        line(
            60 + 20 * step, "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
        )
        for step in range(3)
    ]
    crash = only(judged(tmp_path, [*served(), *unanswered]))
    assert (crash["cause"], crash["strength"]) == ("hang", "likely")
    assert judged(tmp_path, [*served(), *unanswered, line(140, BATCH, " TP0")]).crashes == []


def test_an_excerpt_that_begins_in_a_traceback(tmp_path: Path) -> None:
    lines = [
        '  File "/opt/maple/sglang/srt/model_loader/loader.py", line 433, in load_model',
        "    model.load_weights(weights)",
        "KeyError: 'layers.7.mixer.weight'",
    ]
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["phase"]) == ("configuration-error", "startup")
    lines[0] = lines[0].replace("load_model", "event_loop_overlap")
    crash = only(judged(tmp_path, lines))
    assert (crash["cause"], crash["phase"]) == ("python-exception", "serving")


def test_an_exception_alone_is_what_it_says_and_no_more(tmp_path: Path) -> None:
    assert only(judged(tmp_path, [OOM]))["cause"] == "cuda-oom"
    crash = only(judged(tmp_path, ["TypeError: unhashable type: 'dict'"]))
    assert (crash["cause"], crash["phase"], crash["died_at"]) == ("python-exception", None, None)


def test_a_message_whose_type_somebody_cut_out(tmp_path: Path) -> None:
    lines = [*exception(40, "x")[:3], "[...]", "the mask must have as many rows as the logits"]
    crash = only(judged(tmp_path, lines))
    assert crash["cause"] == "python-exception"
    assert "the mask must have" in crash["summary"]


def test_a_rank_that_only_saw_the_others_fail(tmp_path: Path) -> None:
    error = (
        "ValueError: TP rank 2 could finish the model loading, but there are other ranks that didn't finish loading."
    )
    assert only(judged(tmp_path, exception(40, error)[:-3]))["cause"] == "unexplained-kill"


def vllm(second: int, text: str, level: str = "INFO", role: str = "APIServer", pid: int = 900) -> str:
    return f"({role} pid={pid}) {level} 05-17 08:{second // 60:02d}:{second % 60:02d} [core.py:77] {text}"


def test_vllm(tmp_path: Path) -> None:
    start = [vllm(0, "vLLM API server version 0.11.2"), "(APIServer pid=900) INFO:     Application startup complete."]
    work = [
        vllm(
            20,
            "Engine 000: Avg prompt throughput: 3.0 tokens/s, Avg generation throughput: 44.5 tokens/s, "
            "Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.0%, Prefix cache hit rate: 2.0%",
        )
    ]
    assert judged(tmp_path, [*start, *work]).crashes == []
    gone = [
        *start,
        *work,
        vllm(30, "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "ERROR"),
    ]
    crash = only(judged(tmp_path, gone))
    assert (crash["cause"], crash["became_ready"]) == ("unexplained-kill", True)
    assert crash["doing"]["figures"]["gen throughput (token/s)"] == "44.5"
    failed = [
        vllm(30, text, "ERROR", "EngineCore_DP0", 950)
        for text in (
            "EngineCore encountered a fatal error.",
            "Traceback (most recent call last):",
            '  File "/opt/vllm/v1/engine/core.py", line 710, in run_engine_core',
            OOM,
        )
    ]
    assert verdict(judged(tmp_path, [*start, *work, *failed])) == ("cuda-oom", "likely")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["KeyboardInterrupt: terminated"], "external-signal"),
        (
            ["W0517 08:00:40.1 900 torch/agent/api.py:7] Received 1 death signal, shutting down workers"],
            "external-signal",
        ),
        (["CUDA error: no kernel image is available for execution on the device", "  current device: 0"], "cuda-error"),
        (["maple:77:91 [3] include/alloc.h:17 NCCL WARN Cuda failure 'out of memory'"], "cuda-oom"),
        (
            ["maple:77:91 [3] misc/socket.cc:5 NCCL WARN Net : Call to recv from 10.0.0.7<88> failed : Broken pipe"],
            "nccl-error",
        ),
        (["Failed to initialize NVML: Driver/library version mismatch"], "environment-error"),
        (["LLVM ERROR: out of memory", "Fatal Python error: Aborted"], "native-crash"),
    ],
)
def test_other_programs(lines: list[str], cause: str, tmp_path: Path) -> None:
    assert verdict(judged(tmp_path, lines)) == (cause, "likely")


@pytest.mark.parametrize(
    "lines",
    [
        ["No available shared memory broadcast block found in 60 seconds. This typically happens when processes hang."],
        ["============ Serving Benchmark Result ============", "Successful requests:                     200"],
        [
            "INFO:     Shutting down",
            "INFO:     Application shutdown complete.",
            "INFO:     Finished server process [77]",
        ],
        ["[rank0]:[W517 08:00:40.1 ProcessGroupNCCL.cpp:1476] Warning: destroy_process_group() was not called"],
    ],
)
def test_what_is_no_crash(lines: list[str], tmp_path: Path) -> None:
    found = judged(tmp_path, lines)
    assert found.crashes == []
    assert found.reason


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[CRITICAL] Worker (pid:77) was sent SIGKILL! Perhaps out of memory?", "unexplained-kill"),
        (
            "E0517 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 77) of binary: /usr/bin/python",
            "unexplained-kill",
        ),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV",
            "native-crash",
        ),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.", "native-crash"),
    ],
)
def test_supervisors_that_tell_of_a_child(text: str, cause: str, tmp_path: Path) -> None:
    crash = only(judged(tmp_path, [text]))
    assert (crash["cause"], crash["strength"]) == (cause, "likely")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            [
                "/srv/ggml/src/ggml-cuda/rope.cu:409: GGML_ASSERT(src0->type == dst->type) failed",
                "Aborted (core dumped)",
            ],
            "native-crash",
        ),
        (["Segmentation fault (core dumped)"], "native-crash"),
        (
            ["ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."],
            "configuration-error",
        ),
        (["AssertionError: Torch not compiled with CUDA enabled"], "environment-error"),
    ],
)
def test_other_programs_again(lines: list[str], cause: str, tmp_path: Path) -> None:
    assert verdict(judged(tmp_path, lines)) == (cause, "likely")
