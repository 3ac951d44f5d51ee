"""The server's own lines: each version's wordings, records that quote users, blocks, and any input at all."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.entry import Entry
from forensics.events import (
    Batch,
    ChildDied,
    Event,
    FatalPythonError,
    Milestone,
    NativeAbort,
    PreflightRefused,
    ServerArgs,
    ServerError,
    ServerSignal,
    Traceback,
)
from forensics.sources import sglang_lines
from forensics.sources.server import SKIPPED, ServerLog, parse_figures, parse_server_args

AT = "[2026-04-15 11:20:01] "


def entry(text: str, usec: int = 0, pid: int | None = 77) -> Entry:
    fields = {"MESSAGE": text} | ({} if pid is None else {"_PID": str(pid)})
    return Entry(cursor=f"c{usec}", boot_id="b", monotonic_usec=usec, realtime_usec=usec, fields=fields)


def facts(*texts: str, pid: int | None = 77, role_of: dict[int, str] | None = None) -> list[Event]:
    log = ServerLog(role_of or {})
    found = [event for usec, text in enumerate(texts) for event in log.feed(entry(text, usec, pid))]
    return [*found, *log.flush_all()]


# (line behind the prefix, class of fact, name or phase, some of its values)
WORDINGS = [
    # 0.4.10
    ("Decode batch. #running-req: 1, #token: 170, token usage: 0.20, accept len: 2.10, cuda graph: True, "
     "gen throughput (token/s): 77.10, #queue-req: 0, ", Batch, "decode", {"accept len": "2.10", "queue-req": "0"}),
    ("Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, ",
     Batch, "prefill", {"new-token": "7"}),
    ("Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=62.91 GB, mem usage=15.19 GB.",
     Milestone, "load-weight-end", {"type": "LlamaForCausalLM", "mem_usage": "15.19"}),
    ("KV Cache is allocated. #tokens: 20480, K size: 1.25 GB, V size: 1.25 GB", Milestone, "kv-cache",
     {"tokens": "20480", "k_size": "1.25"}),
    ("Watchdog timeout (self.watchdog_timeout=300)", ServerError, "scheduler-watchdog", {"seconds": "300"}),
    ("Gracefully exiting... remaining number of requests 3", ServerSignal, "draining", {"remaining": "3"}),
    ("Received sigquit from a child process. It usually means the child failed.", ServerSignal, "child-failed", {}),
    ("Rank 0 scheduler is dead. Please check if there are relevant logs.", ChildDied, "Rank 0 scheduler", {}),
    # 0.5.6
    ("Decode batch [12], #running-req: 1, #token: 9, token usage: 0.20, accept len: 2.10, accept rate: 0.52, "
     "cuda graph: True, gen throughput (token/s): 77.10, #queue-req: 0, ", Batch, "decode", {"accept rate": "0.52"}),
    ("Mamba Cache is allocated. max_mamba_cache_size: 96, conv_state size: 0.50GB, ssm_state size: 4.10GB ", Milestone,
     "mamba-cache", {"ssm_state": "4.10"}),
    ("SIGQUIT received. signum=None, frame=None. It usually means one child failed.", ServerSignal, "sigquit-received",
     {}),
    # 0.5.10
    ("Decode batch, #running-req: 1, #token: 9, token usage: 0.20, cuda graph: True, gen throughput (token/s): 77.10, "
     "#queue-req: 0", Batch, "decode", {"queue-req": "0"}),
    ("Subprocess detokenizer (pid=4120) crashed with exit code -9. Triggering SIGQUIT for cleanup...", ChildDied,
     "detokenizer", {}),
    ("RuntimeError: Rank 1 scheduler died during initialization (exit code: -11). If exit code is -9 (SIGKILL), a "
     "common cause is the OS OOM killer.", ChildDied, "Rank 1 scheduler", {}),
    # 0.5.15
    ("Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, full token usage: 0.01, mamba usage: 0.02, "
     "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 0.00", Batch,
     "prefill", {"mamba usage": "0.02", "pending-token": "0"}),
    ("Capture target verify CUDA graph end. bs=[1, 2], elapsed=4.01 s, mem usage=0.41 GB, avail mem=23.19 GB",
     Milestone, "graph-capture-end", {"mem_usage": "0.41", "what": "target verify"}),
    ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", ServerError, "scheduler-watchdog",
     {"soft": "False"}),
    ("kill_process_tree called: parent_pid=9, include_parent=True, pid=9", ServerSignal, "kill-process-tree",
     {"include_parent": "True"}),
    # 0.5.23
    ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 318204, K size: 19.42 GB, V size: 19.42 GB", Milestone,
     "kv-cache", {"tokens": "318204"}),
    ("max_total_num_tokens=318204, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
     "context_len=8192, available_cpu_mem=23.19 GB", Milestone, "capacity", {"max_running_requests": "48"}),
    ("SIGTERM received. signum=None frame=None. Draining requests and shutting down...", ServerSignal,
     "sigterm-received", {}),
    ("The server is fired up and ready to roll!", Milestone, "ready", {}),
    ("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)", Milestone, "uvicorn-running", {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fact", "name", "values"), WORDINGS, ids=[row[0][:40] for row in WORDINGS])
def test_each_version_s_wording(text: str, fact: type[Event], name: str, values: dict[str, str]) -> None:
    for prefix in (AT, "[2026-04-15 11:20:01.512 DP1 TP0] "):
        (event,) = facts(prefix + text)
        assert type(event) is fact
        assert name in (getattr(event, "name", ""), getattr(event, "phase", ""), getattr(event, "child", ""))
        assert values.items() <= dict(getattr(event, "values", ())).items()
        assert event.record.pid == 77


# Lines that hardly change from version to version: each row of the tables has one here or above.
LINES = [
    ("load-weight-begin", AT + "Load weight begin. avail mem=71.40 GB", {"avail_mem": "71.40"}),
    ("memory-pool-end", AT + "Memory pool end. avail mem=9.06 GB", {"avail_mem": "9.06"}),
    ("graph-capture-begin", AT + "Capture cuda graph begin. This can take up to several minutes. avail mem=8.77 GB",
     {"avail_mem": "8.77"}),
    ("server-process", AT + "INFO:     Started server process [5150]", {"pid": "5150"}),
    ("http-shutdown", AT + "INFO:     Shutting down", {}),
    ("http-finished", AT + "INFO:     Finished server process [5150]", {"pid": "5150"}),
    ("force-exit", AT + "Signal SIGTERM received while force shutdown flag set. Force exiting.", {}),
    ("address-in-use", AT + "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
     "address already in use", {}),
    ("usage-error", "launch_server.py: error: unrecognized arguments: --speculate", {"prog": "launch_server.py"}),
    ("health-check-failed", AT + "Health check failed. Server couldn't get a response from detokenizer for last 20 "
     "seconds. tic start time: 11:20:01. last_heartbeat time: 11:19:38", {}),
    ("nccl-timeout", "[rank1]:[E415 11:20:01.100200300 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective "
     "operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE) ran for 600021 milliseconds before timing out.",
     {"what": "WorkNCCL(SeqNum=88, OpType=ALLREDUCE) ran for 600021 milliseconds before timing out."}),
    ("nccl-heartbeat", "[rank0]:[F415 11:28:01.100200300 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0 Rank 0] "
     "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued work.",
     {"seconds": "480"}),
    ("process-group-watchdog", "[rank0]:[E415 11:20:01.100200300 ProcessGroupNCCL.cpp:2068] [PG ID 2 Rank 0] Process "
     "group watchdog thread terminated with exception: CUDA error: unspecified launch failure",
     {"what": "CUDA error: unspecified launch failure"}),
    ("device-assert", "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: gather: block: [4,0,0], thread: [31,0,0] "
     "Assertion `index >= 0` failed.", {"what": "index >= 0"}),
    ("glibc-abort", "corrupted size vs. prev_size while consolidating",
     {"what": "corrupted size vs. prev_size while consolidating"}),
    ("c-assert", "python3: ../csrc/ring.c:311: ring_push: Assertion `r->used < r->size' failed.", {}),
    ("llvm-error", "LLVM ERROR: out of memory", {"what": "out of memory"}),
    ("gpu-memory-fault", "Memory access fault by GPU node-7 (Agent handle: 0x5a0d7202) on address 0x7d35a0c00000. "
     "Reason: Page not present or supervisor privilege.", {}),
    ("gpu-memory-fault", "HW Exception by GPU node-1 (Agent handle: 0x5a0d72) reason :GPU Hang", {}),
    ("caught-signal", "[elm-3:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)",
     {"signal": "7", "what": "Bus error: nonexistent physical address"}),
    ("caught-signal", "*** SIGSEGV (@0x0) received by PID 812 (TID 0x7f31) from PID 0; stack trace: ***",
     {"what": "SIGSEGV"}),
    ("failed-check", "F0116 07:02:59.408227  2594 segment.cc:12] Check failed: size > 0 (0 vs. 0)",
     {"what": "Check failed: size > 0 (0 vs. 0)"}),
    ("py-spy-failed", AT + "Pyspy failed to dump PID 5171. Error: /bin/sh: 1: py-spy: not found", {}),
    ("draft-limit", AT + "Warning: Target model's context_length (32768) is greater than the derived context_length "
     "(4096). "
     "This may lead to incorrect model outputs or errors.", {"context_length": "32768", "draft_limit": "4096"}),
    ("tree-not-reaped", AT + "kill_process_tree: 2 process(es) still alive after 60.0s SIGKILL", {"count": "2"}),
    ("start-fell-through", AT + "Initialization failed. Please see the error messages above.", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line", "values"), LINES, ids=[row[0] for row in LINES])
def test_each_line_is_a_fact_of_its_own_row(name: str, line: str, values: dict[str, str]) -> None:
    (event,) = facts(line)
    assert isinstance(event, Milestone | ServerSignal | ServerError)
    assert event.name == name
    assert values.items() <= dict(event.values).items()


@pytest.mark.parametrize(
    ("line", "exit_code"),
    [("Exit code: -9", -9), ("Scheduler or DataParallelController 5171 terminated with 1", 1)],
)
def test_the_exit_code_of_a_child(line: str, exit_code: int) -> None:
    (event,) = facts(AT + line)
    assert isinstance(event, ChildDied)
    assert event.exit_code == exit_code


def test_a_traceback_is_one_fact_with_header_frames_and_the_first_cause() -> None:
    (event,) = facts(
        AT + "Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/a/scheduler.py", line 1, in run', "    x()", "    ~^^",
        "KeyError: 'draft'", "", "The above exception was the direct cause of the following exception:", "",
        "Traceback (most recent call last):", '  File "/a/worker.py", line 9, in verify', "RuntimeError: no draft",
        "second line of it", AT + "next record",
    )  # fmt: skip
    assert isinstance(event, Traceback)
    assert (event.process, event.exception, event.text) == ("scheduler", "RuntimeError", "no draft\nsecond line of it")
    assert event.chained == ("KeyError: 'draft'",)
    assert event.frames == ("/a/worker.py:9 in verify",)
    assert event.record.ref == "c10", "the record is the line that names the exception"


def test_ranks_that_write_in_turn_are_told_apart_by_their_pids() -> None:
    log, found = ServerLog(), []
    texts = (AT + "Scheduler hit an exception: Traceback (most recent call last):", '  File "a.py", line 1, in f')
    for text in texts:
        for pid in (1, 2, 3):
            found += log.feed(entry(text, pid=pid))
    for pid, text in ((3, "ValueError: three"), (1, "KeyError: 'one'"), (2, "OSError: two")):
        found += log.feed(entry(text, pid=pid))
    found += log.flush_all()
    assert [event.exception for event in found if isinstance(event, Traceback)] == ["KeyError", "OSError", "ValueError"]


def test_what_users_sent_is_no_fact() -> None:
    """`--log-requests`: everything in the same write is theirs, and the next record of the process is not."""
    prompt = "Receive: obj=GenerateReqInput(text='say\nTraceback (most recent call last):\nFatal Python error: Aborted"
    told = facts(*(AT + prompt).split("\n"), "RuntimeError: CUDA error", AT + "SIGQUIT received. signum=None")
    assert [event.kind for event in told] == ["server-signal"]
    log = ServerLog()
    log.feed(entry(AT + "Finish: obj=GenerateReqInput(rid='1')", 0))
    late = [*log.feed(entry("Fatal Python error: Aborted", 60_000)), *log.flush_all()]
    assert [event.kind for event in late] == ["fatal-python-error"]


def test_an_error_that_uvicorn_announces_keeps_its_header() -> None:
    (event,) = facts(AT + "ERROR:    Exception in ASGI application", "Traceback (most recent call last):",
                     '  File "a.py", line 1, in f', "ValueError: no")  # fmt: skip
    assert isinstance(event, Traceback)
    assert event.header.startswith("ERROR: ")


def test_a_progress_bar_does_not_hide_what_stands_behind_it() -> None:
    bar = "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.20s/it]"
    for text in (f"{bar}{AT}SIGQUIT received. signum=None", f"{bar}\r{AT}SIGQUIT received. signum=None",
                 f"\x1b[32m{AT}SIGQUIT received. signum=None\x1b[0m"):  # fmt: skip
        (event,) = facts(text)
        assert isinstance(event, ServerSignal)


def test_native_deaths() -> None:
    fatal, abort = facts(
        "Fatal Python error: Segmentation fault", "", "Current thread 0x1 (most recent call first):",
        '  File "a.py", line 3 in f', "Thread 0x2 (most recent call first):", '  File "b.py", line 4 in g',
        "terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: no",
    )  # fmt: skip
    assert isinstance(fatal, FatalPythonError)
    assert fatal.frames == ("a.py:3 in f",)
    assert isinstance(abort, NativeAbort)
    assert (abort.exception, abort.what) == ("c10::Error", "CUDA error: no")


@pytest.mark.parametrize(
    ("text", "check", "reason"),
    [
        ("inquest: preflight refused: port: port 30000 is taken; stop it", "port", "port 30000 is taken; stop it"),
        ("inquest: spec refused: /etc/x.toml: name: missing", "spec", "/etc/x.toml: name: missing"),
        ("inquest: not ready after 12 s: the main process ended", "not-ready", "the main process ended"),
    ],
)
def test_our_own_steps_are_heard(text: str, check: str, reason: str) -> None:
    (event,) = facts(text)
    assert isinstance(event, PreflightRefused)
    assert (event.check, event.reason) == (check, reason)


def test_arguments_of_both_forms_and_no_secret() -> None:
    old = "ServerArgs(model_path='/m, (x)', api_key='sk-1', stop=[1, 2], a=None, json='{\"k\": 1, \"l\": 2}')"
    new = "{'model_path': '/m, (x)', 'api_key': 'sk-1', 'stop': [1, 2], 'a': None}"
    assert dict(parse_server_args(old)) == {
        "model_path": "'/m, (x)'", "api_key": "'<redacted>'", "stop": "[1, 2]", "a": "None",
        "json": "'{\"k\": 1, \"l\": 2}'",
    }  # fmt: skip
    assert dict(parse_server_args(new)) == {
        "model_path": "'/m, (x)'", "api_key": "'<redacted>'", "stop": "[1, 2]", "a": "None",
    }  # fmt: skip
    (event,) = facts(f"{AT}server_args={old}")
    assert isinstance(event, ServerArgs)
    assert "sk-1" not in repr(event)


def test_no_secret_survives_in_a_fact() -> None:
    secret = "hf_" + "a1B2" * 8
    told = facts(AT + "Scheduler hit an exception: Traceback (most recent call last):", '  File "a.py", line 1, in f',
                 f"OSError: 401 for token {secret}", AT + f"SIGTERM received. {secret}")  # fmt: skip
    assert told
    assert secret not in repr(told)


# --- any input -----------------------------------------------------------------------------------------------

KNOWN = [
    *(AT + row[0] for row in WORDINGS),
    *(row[1] for row in LINES),
    AT + "Exit code: -9",
    AT + "Scheduler or DataParallelController 5171 terminated with 1",
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in f',
    "KeyError: 3",
    "Fatal Python error: Aborted",
    "terminate called after throwing an instance of 'x'",
    "  what():  y",
    "Process SpawnProcess-1:",
    "double free or corr",
    "During handling of the above exception, another exception occurred:",
    "x.cu:3: f: block: [1,0,0] Assertion `a` failed",
    "prog: error: no",
    AT + "server_args=ServerArgs(a='",
    AT + "Receive: obj=",
    "  | ExceptionGroup: two",
    "  +-+---- 1 ----",
    "  + Exception Group Traceback (most recent call last):",
    AT + "Scheduler hit an exception: Traceback (most recent call last):",
]
texts = st.text(max_size=60) | st.sampled_from(KNOWN)
bent = st.builds(
    lambda line, at, cut, put: line[: at % (len(line) + 1)] + put + line[at % (len(line) + 1) + cut :],
    st.sampled_from(KNOWN), st.integers(0, 200), st.integers(0, 30), st.text(max_size=15),
)  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(st.lists(st.tuples(texts | bent, st.integers(1, 3)), max_size=30))
def test_no_lines_make_it_raise_or_keep_what_it_need_not(told: list[tuple[str, int]]) -> None:
    log = ServerLog()
    for usec, (text, pid) in enumerate(told):
        for event in log.feed(entry(text, usec * 1000, pid)):
            assert len(event.record.message) <= 8192
    log.flush_all()
    assert log.reading(1) == log.reading(2) == log.reading(3) == ""
    log.flush_older(10**12)
    assert log.idle


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_figures_and_arguments_of_anything(text: str) -> None:
    for name, value in parse_figures(text):
        assert len(name) <= 64
        assert len(value) <= 64
    for form in (text, f"ServerArgs({text}", f"{{{text}"):
        for _, value in parse_server_args(form):
            assert len(value) <= 400


HOSTILE = {
    "word": "a" * 400_000,
    "assertions": "x.cu:1: Assertion `" * 20_000,
    "brackets": "[Errno 98] " * 40_000,
    "figures": AT + "Decode batch, " + "#a: 1, " * 60_000,
    "arguments": AT + "server_args=ServerArgs(" + "a=(" * 100_000,
    "quotes": AT + "server_args={" + "'\\" * 100_000,
    "digits": AT + "Subprocess scheduler_0 (pid=" + "9" * 100_000 + ") crashed with exit code -9",
    "prefixes": (AT + "x]") * 20_000,
    "bars": "it/s][" * 60_000,
    "traceback": AT + "Traceback (most recent call last): " * 10_000,
    "spaces": " " * 400_000,
    "errors": "x: error: " * 40_000,
    "capacity": AT + "max_total_num_tokens=1 " + "max_running_requests=" * 20_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_costs_time_in_proportion_to_its_length(name: str) -> None:
    """400,000 characters within a second on a busy machine; a pattern that backtracks would need hours."""
    began = time.process_time()
    log = ServerLog()
    for usec in range(3):
        log.feed(entry(HOSTILE[name], usec))
    log.flush_all()
    assert time.process_time() - began < 3


def test_a_block_without_end_keeps_its_beginning_and_its_end() -> None:
    log = ServerLog()
    log.feed(entry(AT + "Scheduler hit an exception: Traceback (most recent call last):"))
    for usec in range(1, 5_000):
        log.feed(entry('  File "deep.py", line 1, in recurse', usec))
    log.feed(entry("RecursionError: maximum recursion depth exceeded", 6_000))
    (event,) = log.flush_all()
    assert isinstance(event, Traceback)
    assert event.exception == "RecursionError"
    assert len(event.frames) <= 40


def test_numbers_beyond_reading_are_no_numbers() -> None:
    """Python refuses to read more than 4300 digits: a line of the server must not end the daemon so."""
    nines = "9" * 5000
    for text in (
        f"INFO:     Started server process [{nines}]",
        f"Subprocess scheduler_0 (pid={nines}) crashed with exit code -9",
        f"Subprocess scheduler_0 (pid=9) crashed with exit code -{nines}",
        f"Load weight begin. avail mem={nines} GB",
        "Load weight begin. avail mem=1.2.3 GB",
        f"Decode batch, #running-req: {nines}, token usage: 0.1",
    ):
        for event in facts(AT + text):
            for _, value in getattr(event, "values", ()):
                assert len(value) <= 64


@pytest.mark.parametrize("row", [*sglang_lines.MILESTONES, *sglang_lines.SIGNALS, *sglang_lines.CHILD_DEATHS,
                                 *sglang_lines.ERRORS], ids=lambda row: row.name)  # fmt: skip
def test_the_gate_lets_through_whatever_a_row_needs(row: sglang_lines.Row) -> None:
    """The live reader counts some lines without reading them: none of them may be one that a row knows."""
    needed = [line for line in KNOWN if row.pattern.search(line.removeprefix(AT))]
    assert needed, f"no line here shows what {row.name} knows"
    for line in needed:
        if " batch" not in line:
            assert SKIPPED.match(line.encode()) is None, line
