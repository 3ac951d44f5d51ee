"""cuda-oom: an allocation of GPU memory failed: weights, KV pool, graph capture, or at run time.

Signal:      torch's `CUDA out of memory. Tried to allocate …` and its kin, in the failure that began it.
Not this:    KV-pool exhaustion, request slots, `increase --mem-fraction-static`, Triton's OutOfResources; host OOM.
Followed by: `Capture cuda graph failed` (its hints are not evidence), SIGQUIT to main, SGLang's SIGKILL of itself.
Needs:       the server's log with the traceback, not rate-limited; NVML tells who else was on the GPU.
To do:       while serving, lower mem_fraction_static by 0.02 to 0.05; at the start lower it, or the largest graph batch
             size. Weights that do not fit: more GPUs (tp_size), or a smaller or quantized model. Another process on the
             GPU: find it with nvidia-smi and end it, or move the server.
"""

import re

from forensics.causality import Ending
from forensics.events import Milestone
from forensics.failure import finding, search_machine
from forensics.model import Finding, NotThis
from forensics.phase import became_ready

PATTERN = re.compile(
    r"(?:(?:CUDA|HIP) out of memory|OutOfMemoryError: Out of memory)\. Tried to allocate (?P<tried>[\d.]+ \w+)"
    r"|(?:CUDA|HIP)(?: driver)? error: out of memory|Triton Error \[CUDA\]: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure (?:2 )?'out of memory'|cudaMalloc failed: out of memory"
    r"|cudaErrorMemoryAllocation|Lack of device memory"
)
_FIGURES = re.compile(
    r"GPU (?P<gpu>\d+) has a total capacity of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free"
)
_OTHERS = re.compile(r"Process (?P<pid>\d+) has (?P<held>[\d.]+ \w+) memory in use")


def match(ending: Ending) -> Finding | NotThis | None:
    found = search_machine(PATTERN, ending.failure)
    if found is None or ending.failure is None:
        return (
            NotThis(why="no failed allocation of GPU memory in the failure that began it") if ending.failure else None
        )
    text = found.string
    tried = found["tried"]
    figures, other = _FIGURES.search(text), _OTHERS.search(text)
    where = _where(ending, ending.failure.usec)
    words = [f"GPU memory ran out {where}"]
    if tried:
        words.append(f": {tried} more were asked for")
    if figures:
        words.append(f", {figures['free']} of {figures['total']} were free on GPU {figures['gpu']}")
    if other:
        words.append(f"; process {other['pid']}, which torch does not count as this one, held {other['held']}")
    return finding(
        ending,
        ending.failure,
        summary="".join(words) + ".",
        subclass=_SUBCLASSES.get(where, "startup"),
        key=("cuda-oom", where),
    )


_SUBCLASSES = {
    "while serving": "runtime",
    "while loading weights": "weights",
    "as the KV cache was allocated": "kv-cache",
    "while graphs were captured": "graph-capture",
    "in the warm-up": "warmup",
}


def _where(ending: Ending, usec: int) -> str:
    """The step of the start that was under way, as SGLang's own lines tell."""
    if became_ready(ending, before=usec):
        return "while serving"
    passed = [milestone.name for milestone in ending.timeline.all(Milestone) if milestone.usec <= usec]
    steps = {
        "load-weight-begin": "while loading weights",
        "load-weight-end": "as the KV cache was allocated",
        "graph-capture-begin": "while graphs were captured",
        "uvicorn-running": "in the warm-up",
    }
    return steps.get(passed[-1] if passed else "", "during the start")
