"""cuda-error: a CUDA call or kernel failed: illegal access, device assert, launch failure, no kernel image, cuBLAS …

Signal:      `CUDA error: …`, `CUBLAS_STATUS_…`, a device-side assertion, in the failure that began it.
Not this:    an error that the server outlived; out of memory; a hardware Xid; the words in a user's prompt.
Followed by: the same error from every later call and the NCCL watchdog; Xid 13, 31 or 43; SIGABRT; self-SIGKILL.
Needs:       the server's log with the traceback; the kernel's log, else a fault of the hardware (Xid) behind it stays
             open.
To do:       run once with CUDA_LAUNCH_BLOCKING=1 in [env] (AMD_SERIALIZE_KERNEL=3, ASCEND_LAUNCH_BLOCKING=1 on such
             devices): the line that reports it is often not the kernel that failed. Where build and GPU do not fit,
             install builds of torch and sgl-kernel for this GPU and driver, or a newer driver. While capturing: start
             once with disable_cuda_graph.
"""

import re
from dataclasses import replace

from forensics.causality import Ending, Failure
from forensics.events import ServerError, UnitState, Xid
from forensics.failure import CUDA, finding, search_machine, stable
from forensics.model import Evidence, Finding, NotThis, Role
from forensics.oom import survived

_ASYNCHRONOUS = re.compile(
    r"illegal|misaligned|assert|launch failure|unspecified|EXECUTION_FAILED|INTERNAL_ERROR|ECC|hardware|program counter"
)
_BLOCKING = "Each kernel was waited for, so the line that raised is where it failed."
_LATER = "reports it at a later call, so the line that raised is often not the kernel that failed."


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if failure is None:
        return None
    found = search_machine(CUDA, failure)
    asserted = _asserted(ending, failure)
    if isinstance(failure, ServerError) and failure.name == "gpu-memory-fault":
        runtime, name = "ROCm", dict(failure.values)["what"]
    elif found is not None:
        runtime, name = _named(found)
    elif asserted is not None:
        runtime, name = "CUDA", "device-side assert triggered"
    else:
        return NotThis(why="no CUDA error in the failure that began it")
    initiating = asserted if found is None and asserted is not None else failure
    later = ""
    if _ASYNCHRONOUS.search(name):
        state = ending.timeline.last(UnitState)
        later = f" {_BLOCKING}" if state is not None and state.launch_blocking else f" {runtime} {_LATER}"
    result = finding(
        ending,
        initiating,
        summary=f"{runtime} error: {name}{_assertion(asserted)}.{later}",
        subclass=re.sub(r"[^a-z0-9]+", "-", stable(name).lower()).strip("-")[:60],
        key=("cuda-error", name),
    )
    owned = (xid for xid in ending.timeline.all(Xid) if ending.run.owns_pid(xid.xid_pid))
    xids = [xid for xid in owned if not survived(ending.timeline, xid.usec)]
    extra = [Evidence(role=Role.CONTEXT, event=xid, why="the driver's record of it") for xid in xids[:2]]
    if asserted is not None and asserted is not initiating:
        extra.insert(0, Evidence(role=Role.CONTEXT, event=asserted, why="the assertion that failed on the device"))
    return replace(result, evidence=(result.evidence[0], *extra, *result.evidence[1:]))


def _named(found: re.Match[str]) -> tuple[str, str]:
    """The runtime that reported it, and what it said."""
    said = found.groupdict()
    if name := said["npu"]:
        return name, said["code"].strip()
    name = next(text for key, text in said.items() if text and key != "runtime").strip()
    return said["runtime"] or ("XPU" if said["xpu"] else "CUDA"), name


def _assertion(asserted: ServerError | None) -> str:
    what = dict(asserted.values).get("what") if asserted else None
    return f" (`{what}` did not hold on the device)" if what else ""


def _asserted(ending: Ending, failure: Failure) -> ServerError | None:
    """An assertion on the device, up to the failure: what is asserted after another failure is its echo."""
    for event in ending.failures:
        if isinstance(event, ServerError) and event.name == "device-assert" and event.usec <= failure.usec:
            return event
    return None
