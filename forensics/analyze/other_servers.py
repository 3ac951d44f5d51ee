"""What other inference servers, launchers and shells print at their end, as tables. For saved plain logs only.

The live reader does not know these lines: a server that quotes them would be believed. In a saved log that is not
SGLang's they are all there is, and what rests on them is `likely` at most.
"""

import re

from forensics.sources.sglang_lines import Row


def _rows(*rows: tuple[str, str]) -> tuple[Row, ...]:
    return tuple(Row(name, "", re.compile(pattern)) for name, pattern in rows)


# fmt: off
ERRORS = _rows(
    ("foreign-error", r"(?P<what>(?:cudaMalloc|hipMalloc) failed: out of memory.*)"),
    ("foreign-error", r"(?P<what>(?:CUDA|HIP|ROCm) error(?: \d+)?: [^\s].*)"),
    ("foreign-error", r"NCCL WARN (?P<what>Cuda failure .*)"),
    ("foreign-error",
     r"(?P<what>NCCL WARN (?:Error[: ]|Net : |Call to |socket\w*: |Failed to |\[\w+ \w+ \d+\] |Socket ).*)"),
    ("foreign-error", r"(?P<what>Failed to initialize NVML: .*)"),
    ("library-complaint", r"(?P<what>OpenBLAS blas_thread_init: pthread_create.*)"),
    ("foreign-error", r"^(?:[\w.]+: )?(?P<what>Error 80[0-9]: .*)"),
    ("c-assert", r"(?P<what>\S{1,200}:\d+: GGML_ASSERT\(.{1,200}\) failed.*)"),
    ("foreign-error", r"(?P<what>(?:error|failed)[^\n]{0,40}: (?:unable to load|failed to load) model.*)"),
)
"""Failures without a traceback; the rules on failures read what they say."""

ENGINE_DEATHS = _rows(
    ("engine", r"Engine core proc (?P<child>\S+) died unexpectedly"),
    ("worker", r"(?:Worker proc|WorkerProc) (?P<child>\S+) died unexpectedly"),
    ("exit-code", r"Engine process failed to start|Engine core initialization failed\."),
    ("gunicorn", r"Worker \(pid:(?P<pid>\d{1,10})\) was sent SIG(?P<signal>[A-Z]+)!"),
    ("elastic", r"failed \(exitcode: (?P<exit_code>-?\d{1,5})\) local_rank: \d+ \(pid: (?P<pid>\d{1,10})\)"),
    ("spawn", r"process (?P<rank>\d+) terminated with signal SIG(?P<signal>[A-Z]+)"),
    ("loader", r"worker \(pid (?P<pid>\d{1,10})\) is killed by signal: (?P<word>[A-Z][a-z]+(?: [a-z]+)?)"),
    ("ray", r"The actor (?P<child>\S+) (?:is dead|died) because its (?:owner|worker)"),
)
"""A front end, a launcher or a supervisor noticed that a process of its own is gone."""

SIGNALS = _rows(
    ("sigterm-received", r"KeyboardInterrupt: terminated"),
    ("sigterm-received", r".*trigger received signal=SIGTERM"),
    ("sigint-received", r".*trigger received signal=SIGINT"),
    ("sigterm-received", r"(?:.* )?Received (?:15|Signals?\.SIGTERM|signal 15|SIGTERM)\b"),
    ("sigint-received", r"(?:.* )?Received (?:2|Signals?\.SIGINT|signal 2) death signal"),
    ("sighup-received", r"(?:.* )?Received (?:1|Signals?\.SIGHUP|signal 1) death signal"),
    ("sigint-received", r"\^C"),
    ("sigint-received", r"KeyboardInterrupt$"),
)
"""The program says which signal it got."""

SHELL = re.compile(
    r"(?:.*?: line \d+: +(?:\d+ )?|\[\d+\][+-]? +(?:\d+ )?|(?:ba|z|da|k)?sh: |\S+: +\d+ )?"
    r"(?P<word>Killed|killed|Terminated|terminated|Aborted|abort|Segmentation fault|segmentation fault|Bus error"
    r"|bus error|Illegal instruction|Hangup|hangup)(?:: ?(?P<number>\d+))?(?P<core> *\(core dumped\))?"
    r"(?P<command>  +\S.*|$)"
)
"""The shell's word on how its child ended, as it stands in what was copied from a terminal."""

GLUED_KILLED = re.compile(r".*\d(?:s/it|it/s|B/s)?\]\s?Killed$")
"""A progress bar has no line end: the shell's word follows on it."""

SHELL_SIGNALS = {"killed": 9, "terminated": 15, "aborted": 6, "abort": 6, "segmentation fault": 11, "bus error": 7,
                 "illegal instruction": 4, "hangup": 1}  # fmt: skip

EXIT_CODE = re.compile(
    r"(?:\S+ exited with code (?P<code>\d{1,3})|command terminated with (?:non-zero )?exit code:? (?P<code2>\d{1,3})"
    r"|.*\bcontainer .* exited with (?:code|status) (?P<code3>\d{1,3})\b.*)(?: \(.*\))?$"
)
"""The container runtime's word: 128 and more is 128 plus the signal."""

THROUGHPUT = re.compile(
    r"(?:Engine \d+: )?Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput: (?P<tokens>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs.*?Waiting: (?P<waiting>\d+) reqs(?:.*?KV cache usage: (?P<usage>[\d.]+)%)?"
)
"""vLLM's regular word that it serves."""

READY = re.compile(r"INFO: +Application startup complete\.")
ABORTED_WITHOUT = re.compile(r"terminate called (?:without an active exception|recursively)")
BANNER = re.compile(
    r"(?:vLLM API server version|Starting vLLM API server|INFO: +Started server process \[\d+\]|vLLM engine with config"
    r"|Initializing a V1 LLM engine)"
)
"""A new life of a server that is not SGLang begins (the first of these in a life counts)."""
# fmt: on
