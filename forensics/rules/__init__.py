"""The causes, one file each. The order of `RULES` is precedence: outside in, and what initiates before what echoes.

Every rule is asked; the verdict is the first confirmed finding in this order, else the first likely one, else unknown.
"""

from collections.abc import Callable
from typing import NamedTuple

from forensics.causality import Ending
from forensics.model import Family, Finding, NotThis
from forensics.rules import (
    clean_stop,
    configuration_error,
    cuda_error,
    cuda_oom,
    environment_error,
    exec_failure,
    external_signal,
    gpu_fault,
    hang,
    host_reset,
    kernel_oom,
    native_crash,
    nccl_error,
    preflight_refused,
    python_exception,
    silent_exit,
    start_timeout,
    stop_timeout,
    unexplained_kill,
    userspace_oom_kill,
)


class Rule(NamedTuple):
    """`match` says what it found, or why it is not this cause, or None when it cannot tell."""

    cause: str
    family: Family
    match: Callable[[Ending], Finding | NotThis | None]


RULES = (
    Rule("kernel-oom", Family.KERNEL_OOM, kernel_oom.match),
    Rule("userspace-oom-kill", Family.KERNEL_OOM, userspace_oom_kill.match),
    Rule("stop-timeout", Family.STOP_TIMEOUT, stop_timeout.match),
    Rule("hang", Family.HANG, hang.match),
    Rule("gpu-fault", Family.CUDA, gpu_fault.match),
    Rule("cuda-oom", Family.CUDA, cuda_oom.match),
    Rule("cuda-error", Family.CUDA, cuda_error.match),
    Rule("environment-error", Family.TRACEBACK, environment_error.match),
    Rule("nccl-error", Family.CUDA, nccl_error.match),
    Rule("native-crash", Family.NATIVE, native_crash.match),
    Rule("preflight-refused", Family.START, preflight_refused.match),
    Rule("exec-failure", Family.START, exec_failure.match),
    Rule("configuration-error", Family.TRACEBACK, configuration_error.match),
    Rule("python-exception", Family.TRACEBACK, python_exception.match),
    Rule("start-timeout", Family.START, start_timeout.match),
    Rule("clean-stop", Family.STOP, clean_stop.match),
    Rule("external-signal", Family.SIGNAL, external_signal.match),
    Rule("host-reset", Family.HOST, host_reset.match),
    Rule("unexplained-kill", Family.UNKNOWN, unexplained_kill.match),
    Rule("silent-exit", Family.UNKNOWN, silent_exit.match),
)
