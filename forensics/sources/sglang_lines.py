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
    name: str
    pattern: re.Pattern[str]


def _rows(*rows: tuple[str, str]) -> tuple[Row, ...]:
    return tuple(Row(name, re.compile(pattern)) for name, pattern in rows)


# fmt: off
MILESTONES = _rows(
    ("load-weight-begin", r"Load weight begin\. avail mem=(?P<avail_mem>[\d.]+) GB"),
    ("load-weight-end", r"Load weight end\..*?type=(?P<type>\w+).*?avail mem=(?P<avail_mem>-?[\d.]+) GB, "
                        r"mem usage=(?P<mem_usage>-?[\d.]+) GB"),
    ("kv-cache", r".*KV Cache is allocated\..*?#tokens: (?P<tokens>\d+)"
                 r"(?:, K size: (?P<k_size>[\d.]+) GB, V size: (?P<v_size>[\d.]+) GB"
                 r"|, KV size: (?P<kv_size>[\d.]+) GB)?"),
    ("mamba-cache", r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<max_mamba_cache_size>\d+), "
                    r"conv_state size: (?P<conv_state>[\d.]+) ?GB, ssm_state size: (?P<ssm_state>[\d.]+) ?GB"),
    ("memory-pool-end", r"Memory pool end\. avail mem=(?P<avail_mem>[\d.]+) GB"),
    ("graph-capture-begin", r"Capture (?P<what>[\w ]*?)(?:cuda|CUDA|cpu) graphs? begin\."
                            r".*?avail mem=(?P<avail_mem>[\d.]+) GB"),
    ("graph-capture-end", r"Capture (?P<what>[\w ]*?)(?:cuda|CUDA|cpu) graphs? end\."
                          r".*?mem usage=(?P<mem_usage>-?[\d.]+) GB.*?avail mem=(?P<avail_mem>[\d.]+) GB"),
    ("capacity", r"max_total_num_tokens=(?P<max_total_num_tokens>\d+)"
                 r"(?:.*?max_running_requests=(?P<max_running_requests>\d+))?"
                 r"(?:.*?available_[gc]pu_mem=(?P<available_mem>[\d.]+) GB)?"),
    ("server-process", r"INFO: +Started server process \[(?P<pid>\d+)\]"),
    ("uvicorn-running", r"INFO: +Uvicorn running on (?P<url>\S+)"),
    ("ready", r"The server is fired up and ready to roll!"),
    ("http-shutdown", r"INFO: +Shutting down"),
    ("http-finished", r"INFO: +Finished server process \[(?P<pid>\d+)\]"),
)
"""Steps of the start and the stop."""

SIGNALS = _rows(
    ("sigterm-received", r"SIGTERM received\. "),
    ("force-exit", r"Signal SIGTERM received while .*[Ee]xiting"),
    ("draining", r"Gracefully exiting\.\.\. [Rr]emaining number of requests (?P<remaining>\d+)"),
    ("sigquit-received", r"SIGQUIT received\. "),
    ("child-failed", r"Received sigquit from a child process\."),
    ("kill-process-tree", r"kill_process_tree called: parent_pid=(?P<parent_pid>\d+), "
                          r"include_parent=(?P<include_parent>\w+), pid=(?P<caller_pid>\d+)"),
)
"""What SGLang says about signals, and about killing its own tree."""

CHILD_DEATHS = _rows(
    ("subprocess", r"Subprocess (?P<child>\w+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<exit_code>-?\d+)"),
    ("rank-init", r"(?:RuntimeError: )?(?P<child>Rank \d+ scheduler) died during initialization "
                  r"\(exit code: (?P<exit_code>-?\d+)\)"),
    ("rank", r"(?P<child>Rank \d+ scheduler) is dead\."),
    ("rank-exit-code", r"Exit code: (?P<exit_code>-?\d+)$"),
    ("node-peer", r"Scheduler or DataParallelController (?P<pid>\d+) terminated with (?P<exit_code>-?\d+)"),
)
"""Main noticed that a child is gone."""

ERRORS = _rows(
    ("address-in-use", r"\[Errno 98\].*address already in use"),
    ("usage-error", r"^(?P<prog>[\w./ -]{1,80}): error: (?P<what>.+)"),
    ("scheduler-watchdog", r"(?:(?P<who>\w+) watchdog timeout|^Watchdog timeout) "
                           r"\(self\.watchdog_timeout=(?P<seconds>[\d.]+)(?:, self\.soft=(?P<soft>\w+))?\)"),
    ("health-check-failed", r"Health check failed\. Server couldn't get a response from detokenizer"),
    ("nccl-timeout", r"Watchdog caught collective operation timeout: (?P<what>WorkNCCL\(.{0,200})"),
    ("nccl-heartbeat", r"ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d+) seconds"),
    ("process-group-watchdog", r"Process group watchdog thread terminated with exception: (?P<what>.{0,400})"),
    ("device-assert", r"(?P<where>[\w./-]+\.cuh?:\d+): .*block: \[.*Assertion `(?P<what>.*?)` failed"),
    ("glibc-abort", r"^(?P<what>(?:double free or corruption|malloc\(\)|free\(\)|munmap_chunk\(\)|realloc\(\)"
                    r"|corrupted size vs\. prev_size|malloc_consolidate\(\)|corrupted double-linked list)"
                    r"[ :(].{0,200})"),
    ("c-assert", r"^(?P<what>[^\s:]+: \S+:\d+: .{1,200}: Assertion `.*' failed\.)$"),
    ("llvm-error", r"^LLVM ERROR: (?P<what>.*)"),
    ("tree-not-reaped", r"kill_process_tree: (?P<count>\d+) process\(es\) (?:still alive|not reaped)"),
    ("start-fell-through", r"^Initialization failed\. Please see the error messages above\."),
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
