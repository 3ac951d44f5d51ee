"""What SGLang's log lines mean, as tables: one row a line, named groups are the fact's figures.

The wordings are those of SGLang 0.4.10 to 0.5.23, torch, CUDA, NCCL and CPython as they print them. A row states a
fact ("this line stands there"), never a cause. Rows of `MILESTONES`, `SIGNALS` and `CHILD_DEATHS` are tried on the
text behind SGLang's own prefix; rows of `ERRORS` on any line.
"""

import re
from typing import NamedTuple

PREFIX = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{3})?"
    r"(?P<tag>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] (?P<text>.*)",
    re.DOTALL,
)
"""SGLang's prefix: local time, and the rank's tag in schedulers. No level, no logger name."""

ANSI = re.compile(r"\x1b\[[0-9;]*m")

USER_CONTENT = ("Receive: obj=", "Receive OpenAI: obj=", "Finish: obj=", "Scheduler debug info:", "self.cur_batch")
"""Records that quote what users sent. Everything up to the next record of the same process is theirs, not ours."""


class Row(NamedTuple):
    """`needle` stands in every text that the pattern can match: looking for it first is what makes a line cheap."""

    name: str
    needle: str
    pattern: re.Pattern[str]


def _rows(*rows: tuple[str, str, str]) -> tuple[Row, ...]:
    """`%F` in a pattern is a figure, `%N` a whole number: no longer than such numbers are, so that they can be read."""
    figure, whole = r"-?\d{1,9}(?:\.\d{1,9})?", r"\d{1,18}"
    expanded = ((name, needle, text.replace("%F", figure).replace("%N", whole)) for name, needle, text in rows)
    return tuple(Row(name, needle, re.compile(pattern)) for name, needle, pattern in expanded)


# fmt: off
MILESTONES = _rows(
    ("load-weight-begin", "Load weight begin", r"Load weight begin\. avail mem=(?P<avail_mem>%F) GB"),
    ("load-weight-end", "Load weight end",
     r"Load weight end\..*?type=(?P<type>\w+).*?avail mem=(?P<avail_mem>%F) GB, "
     r"mem usage=(?P<mem_usage>%F) GB"),
    ("kv-cache", "KV Cache is allocated",
     r".*KV Cache is allocated\..*?#tokens: (?P<tokens>%N)"
     r"(?:, K size: (?P<k_size>%F) GB, V size: (?P<v_size>%F) GB"
     r"|, KV size: (?P<kv_size>%F) GB)?"),
    ("mamba-cache", "Mamba Cache is",
     r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<max_mamba_cache_size>%N), "
     r"conv_state size: (?P<conv_state>%F) ?GB, ssm_state size: (?P<ssm_state>%F) ?GB"),
    ("memory-pool-end", "Memory pool end", r"Memory pool end\. avail mem=(?P<avail_mem>%F) GB"),
    ("graph-capture-begin", "begin.",
     r"Capture (?P<what>[\w ]*?)(?:cuda|CUDA|cpu) graphs? begin\."
     r".*?avail mem=(?P<avail_mem>%F) GB"),
    ("graph-capture-end", "end.",
     r"Capture (?P<what>[\w ]*?)(?:cuda|CUDA|cpu) graphs? end\."
     r".*?mem usage=(?P<mem_usage>%F) GB.*?avail mem=(?P<avail_mem>%F) GB"),
    ("capacity", "max_total_num_tokens=",
     r"max_total_num_tokens=(?P<max_total_num_tokens>%N)"
     r"(?:.*?max_running_requests=(?P<max_running_requests>%N))?"
     r"(?:.*?available_[gc]pu_mem=(?P<available_mem>%F) GB)?"),
    ("server-process", "Started server process", r"INFO: +Started server process \[(?P<pid>%N)\]"),
    ("uvicorn-running", "Uvicorn running", r"INFO: +Uvicorn running on (?P<url>\S+)"),
    ("ready", "ready to roll", r"The server is fired up and ready to roll!"),
    ("http-shutdown", "Shutting down", r"INFO: +Shutting down"),
    ("http-finished", "Finished server process", r"INFO: +Finished server process \[(?P<pid>%N)\]"),
)
"""Steps of the start and the stop."""

SIGNALS = _rows(
    ("sigterm-received", "SIGTERM received", r"SIGTERM received\. "),
    ("force-exit", "SIGTERM received", r"Signal SIGTERM received while .*[Ee]xiting"),
    ("draining", "Gracefully exiting", r"Gracefully exiting\.\.\. [Rr]emaining number of requests (?P<remaining>%N)"),
    ("sigquit-received", "SIGQUIT received", r"SIGQUIT received\. "),
    ("child-failed", "Received sigquit", r"Received sigquit from a child process?\."),
    ("kill-process-tree", "kill_process_tree called",
     r"kill_process_tree called: parent_pid=(?P<parent_pid>%N), "
     r"include_parent=(?P<include_parent>\w+), pid=(?P<caller_pid>%N)"),
)
"""What SGLang says about signals, and about killing its own tree."""

CHILD_DEATHS = _rows(
    ("subprocess", "crashed with exit code",
     r"Subprocess (?P<child>\w{1,64}) \(pid=(?P<pid>%N)\) crashed with exit code (?P<exit_code>-?\d{1,5})"),
    ("rank-init", "died during initialization",
     r"(?:RuntimeError: )?(?P<child>Rank \d{1,6} scheduler) died during initialization "
     r"\(exit code: (?P<exit_code>-?\d{1,5})\)"),
    ("rank", "is dead.", r"(?P<child>Rank \d{1,6} scheduler) is dead\."),
    ("rank-exit-code", "Exit code:", r"Exit code: (?P<exit_code>-?\d{1,5})$"),
    ("node-peer", "terminated with",
     r"Scheduler or DataParallelController (?P<pid>%N) terminated with (?P<exit_code>-?\d{1,5})"),
)
"""Main noticed that a child is gone."""

ERRORS = _rows(
    ("address-in-use", "Errno 98", r"\[Errno 98\].*address already in use"),
    ("usage-error", ": error: ", r"^(?P<prog>[\w./ -]{1,80}): error: (?P<what>.+)"),
    ("scheduler-watchdog", "atchdog timeout",
     r"(?:(?P<who>\w+) watchdog timeout|^Watchdog timeout) "
     r"\(self\.watchdog_timeout=(?P<seconds>%F)(?:, self\.soft=(?P<soft>\w+))?\)"),
    ("health-check-failed", "Health check failed",
     r"Health check failed\. Server couldn't get a response from detokenizer"),
    ("nccl-timeout", "collective operation timeout",
     r"Watchdog caught collective operation timeout: (?P<what>WorkNCCL\(.{0,200})"),
    ("nccl-heartbeat", "watchdog got stuck", r"ProcessGroupNCCL's watchdog got stuck for (?P<seconds>%N) seconds"),
    ("process-group-watchdog", "Process group watchdog",
     r"Process group watchdog thread terminated with exception: (?P<what>.{0,400})"),
    ("device-assert", "Assertion `",
     r"(?P<where>[\w./-]{1,200}\.cuh?:\d{1,9}): .*block: \[.*Assertion `(?P<what>.*?)` failed"),
    ("gpu-memory-fault", " by GPU node-",
     r"^(?P<what>(?:Memory access fault|HW Exception) by GPU node-%N .{0,80}?[Rr]eason ?: ?[\w ]{1,60})"),
    ("caught-signal", "] Caught signal ",
     r"^\[[\w.-]{1,64}:%N *:\d+:%N\] Caught signal (?P<signal>\d{1,2}) \((?P<what>[^)]{1,120})\)"),
    ("caught-signal", "*** SIG",
     r"^\*\*\* (?P<what>SIG[A-Z]{3,4}) (?:\(@0x[0-9a-f]{1,16}\) )?received (?:by PID|at time)"),
    ("failed-check", "Check failed: ",
     r"^F\d{4} [\d:.]{8,18} +%N \S{1,120}\] (?P<what>Check failed: .{1,300})"),
    ("py-spy-failed", "yspy failed", r"Pyspy failed (?:to dump PID|\()"),
    ("glibc-abort", "",
     r"^(?P<what>(?:double free or corruption|malloc\(\)|free\(\)|munmap_chunk\(\)|realloc\(\)"
     r"|corrupted size vs\. prev_size|malloc_consolidate\(\)|corrupted double-linked list)"
     r"[ :(].{0,200})"),
    ("c-assert", "Assertion `", r"^(?P<what>[^\s:]{1,64}: \S{1,200}:\d{1,9}: .{1,200}: Assertion `.*' failed\.)$"),
    ("llvm-error", "LLVM ERROR", r"^LLVM ERROR: (?P<what>.*)"),
    ("draft-limit", "Target model's context_length",
     r"Target model's context_length \((?P<context_length>%N)\) is greater than the derived context_length "
     r"\((?P<draft_limit>%N)\)"),
    ("tree-not-reaped", "kill_process_tree: ",
     r"kill_process_tree: (?P<count>%N) process\(es\) (?:still alive|not reaped)"),
    ("start-fell-through", "Initialization failed", r"^Initialization failed\. Please see the error messages above\."),
)
"""Lines that state a failure without being a traceback."""
# fmt: on

BATCH = re.compile(r"(?P<phase>Prefill|Decode) batch[.,]? ?(?:\[\d+\][.,]? ?)?(?P<figures>.*)", re.DOTALL)

TRACEBACK_HEADERS = (
    ("Scheduler hit an exception", "scheduler"),
    ("TpModelWorkerClient hit an exception", "scheduler"),
    ("DetokenizerManager hit an exception", "detokenizer"),
    ("DataParallelController hit an exception", "controller"),
    ("TokenizerManager hit an exception", "main"),
    ("Initialization failed. warmup error", "main"),
)
"""Headers after which SGLang ends itself, and whose traceback follows."""
