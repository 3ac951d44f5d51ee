"""What to do next: one or two concrete steps for this cause, pointing one way only. Pure."""

from forensics.causality import Ending
from forensics.events import CgroupMemory, Remains, SignalSent, UnitState, Xid
from forensics.model import Finding, Phase, Role
from forensics.xid_catalog import CATALOG


def advise(cause: str, finding: Finding | None, phase: Phase, ending: Ending) -> tuple[str, ...]:
    """At most two steps. The first is the one to take."""
    unit = ending.run.unit
    if cause == "kernel-oom":
        return _kernel_oom(finding, ending)
    if cause == "cuda-oom":
        if finding is not None and "which torch does not count as this one" in finding.summary:
            return ("Find out what the other process on that GPU is (nvidia-smi) and end it, or move this server.",)
        if phase is Phase.SERVING:
            return ("Lower --mem-fraction-static by 0.02 to 0.05, or --max-running-requests.",)
        return ("Lower --mem-fraction-static, or the largest graph batch size, so that the start fits.",)
    if cause == "gpu-fault":
        xid = next((e.event for e in finding.evidence if isinstance(e.event, Xid)), None) if finding else None
        action = CATALOG[xid.xid].action if xid is not None and xid.xid in CATALOG else "reboot the machine"
        return (f"Do not restart on this GPU yet: {action}.",)
    sent = next((e.event for e in finding.evidence if isinstance(e.event, SignalSent)), None) if finding else None
    if cause == "external-signal" and sent is not None and sent.sender_unit:
        return (f"Look at what {sent.sender_unit} did at that second: `journalctl _SYSTEMD_UNIT={sent.sender_unit}`.",)
    if cause == "external-signal" and finding is not None and "sigkill" in finding.subclass:
        return (
            "Ask who was logged in or which job ran at that second: `journalctl --since` around the time of death, "
            "and the shells' histories.",
        )
    if cause == "unexplained-kill":
        return (
            "Make the kernel log readable for the daemon (`journalctl -k` must show this boot) before the next time.",
        )
    steps = {
        "userspace-oom-kill": ("Raise the memory that the unit may use, or exempt it (ManagedOOMPreference=avoid).",),
        "stop-timeout": (
            "Raise timeout_stop in the spec to the length of the longest answers, or accept that they are cut.",
        ),
        "hang": ("Look at the stacks above for the line that it stood on; a restart helps until it happens again.",),
        "cuda-error": (
            "Run once with CUDA_LAUNCH_BLOCKING=1 in [env]: then the traceback shows the kernel that really failed.",
        ),
        "nccl-error": ("Look at the other ranks' logs for the one that failed first: NCCL names those left behind.",),
        "native-crash": (f"Look at the core: `coredumpctl info {unit}`, or keep cores with limit_core in the spec.",),
        "configuration-error": ("Change what the message names in the spec, run `inquest units check`, start again.",),
        "environment-error": ("Mend the environment that the message names; the spec is not to blame.",),
        "python-exception": ("Search SGLang's issues for the exception and its innermost frame as quoted above.",),
        "exec-failure": ("Correct the path, user or folder that systemd names (`systemd-analyze verify` shows it).",),
        "preflight-refused": ("Remove what the check names, then start again.",),
        "start-timeout": ("Raise timeout_start in the spec, or find out what the start waited for.",),
        "host-reset": ("Look at the power supply, the BMC's log, and the kernel's last lines on a serial console.",),
        "silent-exit": (f"Read its last lines: `journalctl _SYSTEMD_INVOCATION_ID={ending.run.invocation_id}`.",),
    }  # fmt: skip
    return steps.get(cause, ())


def _kernel_oom(finding: Finding | None, ending: Ending) -> tuple[str, ...]:
    if finding is None:
        return ()
    if finding.subclass.startswith("memcg"):
        limit = _limit(ending)
        now = f" (now {limit / 2**30:.1f} GiB)" if limit else ""
        return (f"Raise memory_max in the spec{now}, or have the server use less host memory.",)
    hog = next((e.why for e in finding.evidence if e.role is Role.CONTEXT), "")
    return (
        "Give the host more memory, or limit the other services on it: the whole host was short."
        + (f" {hog}" if hog else ""),
    )


def _limit(ending: Ending) -> int | None:
    for memory in ending.timeline.all(CgroupMemory):
        if memory.max_bytes:
            return memory.max_bytes
    for remains in ending.timeline.all(Remains):
        if remains.memory and remains.memory.max_bytes:
            return remains.memory.max_bytes
    state = ending.timeline.last(UnitState)
    return state.memory_max_bytes if state else None
