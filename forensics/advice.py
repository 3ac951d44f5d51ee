"""What to do next: one or two concrete steps for this cause, pointing one way only. Pure."""

from forensics.answering import unanswered
from forensics.causality import Ending
from forensics.events import (
    CgroupMemory,
    NotAnswering,
    OomKill,
    OomLimit,
    PreflightRefused,
    Remains,
    ServerArgs,
    ServerError,
    SignalSent,
    SignalTracing,
    UnitState,
    Xid,
)
from forensics.memory import is_unified
from forensics.model import Finding, Phase
from forensics.xid_catalog import CATALOG, RECOVERY, recovery

_BUILD_MISFIT = (
    "no-kernel-image",
    "ptx-was-compiled",
    "driver-version-is-insufficient",
    "nvidia-driver-on-your-system",
)
_POOL_TOO_SMALL = ("max-running-request-is-zero", "not-enough-memory", "no-gpu-memory", "no-room", "cache-is-too-small",
                   "hybrid")  # fmt: skip


_FEWER_COMPILERS = "Set MAX_JOBS=2 in [env], so that fewer compilers run at once."
_NCCL = {
    "rendezvous": "See that every node was started, with the same dist_init_addr, and can reach that address and port.",
    "shared-memory": "Give /dev/shm more room (`df -h /dev/shm`; for a container --shm-size or --ipc=host).",
}

_EXEMPTIONS = {
    "systemd-oomd": "Raise the memory that the slice may use, or exempt the unit (ManagedOOMPreference=avoid).",
    "earlyoom": "Give the host more memory, or exempt the server from earlyoom (its option --avoid).",
    "nohang": "Give the host more memory, or exempt the server in nohang's configuration.",
}


def advise(cause: str, finding: Finding | None, phase: Phase, ending: Ending) -> tuple[str, ...]:
    """At most two steps. The first is the one to take."""
    if finding is None:
        return ()
    subclass = finding.subclass
    match cause:
        case "kernel-oom":
            return _kernel_oom(finding, ending)
        case "cuda-oom":
            return _cuda_oom(finding, phase, ending)
        case "cuda-error":
            return _cuda_error(subclass, finding.summary, ending)
        case "gpu-fault":
            return _gpu_fault(finding)
        case "external-signal":
            return _external_signal(finding, ending)
        case "unexplained-kill":
            return _unexplained(ending)
        case "configuration-error":
            return _configuration(subclass, ending)
        case "exec-failure":
            return _exec_failure(subclass, ending)
        case "userspace-oom-kill":
            return (_EXEMPTIONS.get(subclass, _EXEMPTIONS["systemd-oomd"]),)
        case "native-crash":
            return _native_crash(subclass, ending)
        case "environment-error" if subclass == "compiler-killed":
            return (_FEWER_COMPILERS,)
        case "environment-error" if "ptxas" in finding.summary:
            return (
                "Point Triton at a ptxas that knows this GPU (TRITON_PTXAS_PATH in [env]), or install a newer Triton.",
            )
        case "nccl-error" if subclass in _NCCL:
            return (_NCCL[subclass],)
        case "hang" if (hang := unanswered(ending.timeline.events)) is not None:
            return _not_answering(hang, ending)
        case "hang" if any(error.name == "py-spy-failed" for error in ending.timeline.all(ServerError)):
            return ("Install py-spy where SGLang runs: it was missing, so the log has no stacks of that moment.",)
        case "hang" if subclass == "health-check":
            return ("Next time, before it is restarted: `py-spy dump` of each scheduler shows where it stands.",)
        case "python-exception" if subclass == "token-pool":
            return (
                "Lower max_running_requests; if it comes back at low load, search SGLang's issues: its count is wrong.",
            )
        case "python-exception" if subclass == "unread":
            return ("Have journald keep all of the unit's lines (LogRateLimitIntervalSec=1us) before the next time.",)
        case "nccl-error" if subclass != "collective-timeout":
            return ("Run once with NCCL_DEBUG=INFO in [env]: NCCL then says which link or call failed, and to whom.",)
        case "clean-stop" if subclass == "unasked":
            return (f"Read its last lines: `journalctl _SYSTEMD_INVOCATION_ID={ending.run.invocation_id}`.",)
    steps = {
        "stop-timeout": "Raise timeout_stop in the spec to the length of the longest answers, or accept that they are "
        "cut.",
        "hang": "Its log holds the stacks of that moment (py-spy, faulthandler): the line on which the scheduler "
        "stood is the one to look into.",
        "nccl-error": "Look for the rank that did not come to this operation: those that report it were waiting.",
        "environment-error": "Mend the environment that the message names; the spec is not to blame.",
        "python-exception": "Search SGLang's issues for the exception and its innermost frame as quoted above.",
        "preflight-refused": "Remove what the check names, then start again.",
        "start-timeout": "Raise timeout_start in the spec, or find out what the start waited for.",
        "host-reset": "Look at the power supply, the BMC's log, and the kernel's last lines on a serial console.",
        "silent-exit": f"Read its last lines: `journalctl _SYSTEMD_INVOCATION_ID={ending.run.invocation_id}`.",
    }
    return (steps[cause],) if cause in steps else ()


# --- memory of the host and of the GPU ------------------------------------------------------------------------


def _kernel_oom(finding: Finding, ending: Ending) -> tuple[str, ...]:
    fewer = _FEWER_COMPILERS if _was_building(finding, ending) else ""
    if finding.subclass == "counted":
        return (
            "Make the kernel log readable for the daemon (`journalctl -k` must show this boot): it names the victim.",
        )
    if not finding.subclass.startswith("memcg"):
        step = "Give the host more memory, or limit the other services on it: the whole host was short."
        if "NUMA" in finding.summary:
            step = "Let the server use the other NUMA nodes too (NUMAPolicy=, numactl): one was full, not the host."
        if is_unified(ending):
            step = (
                f"Lower mem_fraction_static{_now(ending, 'mem_fraction_static')}: the GPU's memory is the host's here."
            )
        return (fewer, step) if fewer else (step,)
    path = next((e.event.oom_memcg for e in finding.evidence if isinstance(e.event, OomKill) and e.event.oom_memcg), "")
    limit = _limit(finding, ending)
    now = f" (it was {limit / 2**30:.1f} GiB)" if limit else ""
    if path and not ending.run.owns_cgroup(path):
        step = (
            f"Raise the memory limit of {path}{now}, which others may share, or have the server use less host memory."
        )
    else:
        step = f"Raise memory_max in the spec{now}, or have the server use less host memory."
    return (fewer, step) if fewer else (step,)


def _was_building(finding: Finding, ending: Ending) -> bool:
    return finding.subclass.endswith("helper") and ending.failure is not None


def _limit(finding: Finding, ending: Ending) -> int | None:
    for piece in finding.evidence:
        if isinstance(piece.event, OomLimit):
            return piece.event.limit_bytes
    for memory in ending.timeline.all(CgroupMemory):
        if memory.max_bytes:
            return memory.max_bytes
    for remains in ending.timeline.all(Remains):
        if remains.memory and remains.memory.max_bytes:
            return remains.memory.max_bytes
    state = ending.timeline.last(UnitState)
    return state.memory_max_bytes if state else None


def _cuda_oom(finding: Finding, phase: Phase, ending: Ending) -> tuple[str, ...]:
    if "which torch does not count as this one" in finding.summary:
        return ("Find out what the other process on that GPU is (nvidia-smi) and end it, or move this server.",)
    now = _now(ending, "mem_fraction_static")
    if phase is Phase.SERVING:
        return (f"Lower mem_fraction_static{now} by 0.02 to 0.05: what is left over is what requests need.",)
    if finding.subclass == "weights":
        return ("Spread the model over more GPUs (tp_size) or use a smaller or quantized one: the weights do not fit.",)
    return (f"Lower mem_fraction_static{now}, or the largest graph batch size, so that the start fits.",)


def _now(ending: Ending, name: str) -> str:
    """The setting's value in this run, as SGLang printed it."""
    args = ending.timeline.first(ServerArgs)
    value = dict(args.args).get(name) if args else None
    return f" (it was {value})" if value not in (None, "None") else ""


# --- GPUs -------------------------------------------------------------------------------------------------------


_BLOCKING = {"HIP": "AMD_SERIALIZE_KERNEL=3", "ROCm": "AMD_SERIALIZE_KERNEL=3", "NPU": "ASCEND_LAUNCH_BLOCKING=1",
             "ACL": "ASCEND_LAUNCH_BLOCKING=1"}  # fmt: skip
"""What CUDA_LAUNCH_BLOCKING=1 is called elsewhere."""


def _cuda_error(subclass: str, summary: str, ending: Ending) -> tuple[str, ...]:
    if any(word in subclass for word in _BUILD_MISFIT):
        return ("Install builds of torch and sgl-kernel for this GPU and driver, or a newer driver.",)
    if "captur" in subclass:
        return ("Start once with disable_cuda_graph: then the operation that cannot be captured shows itself.",)
    switch = _BLOCKING.get(summary.partition(" ")[0], "CUDA_LAUNCH_BLOCKING=1")
    if (state := ending.timeline.last(UnitState)) is not None and state.launch_blocking:
        return (f"Look for the innermost frame's kernel in SGLang's issues: with {switch} it is the one that failed.",)
    return (f"Run once with {switch} in [env]: then the traceback shows the kernel that really failed.",)


_FALLEN = 79


def _gpu_fault(finding: Finding) -> tuple[str, ...]:
    xids = [piece.event for piece in finding.evidence if isinstance(piece.event, Xid)]
    asked = [recovery(xid.record.message) for xid in xids if xid.xid == RECOVERY]
    if asked and asked[0] is not None:
        return (f"Before the next start on this GPU, as its driver asks: {asked[0]}.",)
    number = finding.subclass.removeprefix("xid-")
    known = int(number) if number.isdecimal() else _FALLEN
    action = CATALOG[known if known in CATALOG else _FALLEN].action
    if action.startswith("restart"):
        return (f"{action[:1].upper()}{action[1:]}.",)
    return (f"Before the next start on this GPU: {action}.",)


# --- kills ------------------------------------------------------------------------------------------------------


_TRACE = "Have the kernel name the sender of the next one: `systemctl enable --now inquest-sigtrace`."


def _external_signal(finding: Finding, ending: Ending) -> tuple[str, ...]:
    sent = next((e.event for e in finding.evidence if isinstance(e.event, SignalSent)), None)
    if sent is not None and sent.sender_unit:
        return (f"Look at what {sent.sender_unit} did at that second: `journalctl _SYSTEMD_UNIT={sent.sender_unit}`.",)
    ask = (
        "Ask who was logged in or which job ran at that second: `journalctl --since` around the time of death, "
        "and the shells' histories."
    )
    # Of `systemctl kill` the tracer would see that systemd sent it, which is known.
    return (ask, _TRACE) if finding.subclass != "systemctl-kill" and _could_trace(ending) else (ask,)


def _could_trace(ending: Ending) -> bool:
    """Whether the signal tracer did not run, and could: a container's kernel is its host's."""
    in_container = any("this is a container" in gap.reason for gap in ending.timeline.gaps)
    return not in_container and ending.timeline.first(SignalTracing) is None


def _unexplained(ending: Ending) -> tuple[str, ...]:
    if not ending.no_oom and not ending.covers("kernel"):
        return (
            "Make the kernel log readable for the daemon (`journalctl -k` must show this boot) before the next time.",
        )
    if not ending.covers("server"):
        return ("Have journald keep all of the unit's lines (LogRateLimitIntervalSec=1us) before the next time.",)
    if _could_trace(ending):
        return (_TRACE,)
    return (f"Read what stands before it: `journalctl _SYSTEMD_INVOCATION_ID={ending.run.invocation_id}`.",)


def _native_crash(subclass: str, ending: Ending) -> tuple[str, ...]:
    if (core := ending.core_dump) is not None:
        return (f"Read the core's stacks: `coredumpctl info {core.coredump_pid}`.",)
    if subclass.startswith("sigbus"):
        return ("Look at /dev/shm first (`df -h /dev/shm`): memory mapped from a full one ends a process so.",)
    unit = f" {ending.run.unit}" if ending.run.unit.endswith(".service") else ""
    return (f"Have the next core kept (limit_core in the spec), then read it: `coredumpctl info{unit}`.",)


# --- starts -----------------------------------------------------------------------------------------------------


def _configuration(subclass: str, ending: Ending) -> tuple[str, ...]:
    if subclass == "address-in-use":
        return ("See who holds the port (`ss -ltnp`), end that or choose another port, and start again.",)
    if subclass == "model-not-fetched":
        return (
            "Download the model beforehand and give its folder as the path; for a gated one accept its licence and set "
            "HF_TOKEN.",
        )
    if any(word in subclass for word in _POOL_TOO_SMALL):
        now = _now(ending, "mem_fraction_static")
        return (
            f"Raise mem_fraction_static{now}: after the weights too little was left for the KV cache. If it cannot be "
            "raised, use a smaller draft model or a shorter context_length.",
        )
    return ("Change what the message names in the spec, run `inquest units check`, start again.",)


def _exec_failure(subclass: str, ending: Ending) -> tuple[str, ...]:
    if subclass == "dependency":
        return (f"Mend the unit that failed: `systemctl list-dependencies --failed {ending.run.unit}`.",)
    if subclass == "resources":
        return ("Look at the limits of processes and memory of the host: systemd could not make a process.",)
    if subclass == "execstartpost" and any("held by" in r.reason for r in ending.timeline.all(PreflightRefused)):
        return ("See who holds the port (`ss -ltnp`), end that or choose another port, and start again.",)
    if subclass.startswith("exec"):
        return ("Run the failed step by hand as the unit's user (`systemctl cat` shows it) and mend what it says.",)
    return ("Correct the path, user or folder that systemd names (`systemd-analyze verify` shows it).",)


def _not_answering(hang: NotAnswering, ending: Ending) -> tuple[str, ...]:
    """It was stopped by somebody; or its stacks say where it stood, where there are any."""
    record = f"journalctl -o verbose _SYSTEMD_INVOCATION_ID={ending.run.invocation_id} INQUEST_HANG_STATE=not-answering"
    where = f"Where each process stood is in the heartbeat's record: {record}"
    if any(process.state in ("T", "t") for process in hang.processes):
        return ("Find out who stopped it: SIGSTOP, a debugger, or a frozen control group.", where)
    if hang.stacks.startswith("no stack"):
        return ("Install py-spy where SGLang runs: without it there are no stacks of such a moment.",)
    return (f"{where}. The line on which a scheduler stood is the one to look into.",)
