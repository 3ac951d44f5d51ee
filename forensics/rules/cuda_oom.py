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

from forensics import frames
from forensics.causality import Ending, Failure
from forensics.events import Milestone, ServerArgs
from forensics.failure import finding, search_machine
from forensics.model import Finding, NotThis
from forensics.phase import became_ready

PATTERN = re.compile(
    r"(?:\b(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|OutOfMemoryError: Out of memory)\. "
    r"Tried to allocate (?P<tried>[\d.]+ \w+)"
    r"|(?:CUDA|HIP)(?: driver)? error: out of memory|Triton Error \[CUDA\]: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure (?:2 )?'out of memory'|cudaMalloc failed: out of memory"
    r"|cudaErrorMemoryAllocation|Lack of device memory|(?:UR|ZE)_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"
)
_FIGURES = re.compile(
    r"GPU (?P<gpu>\d+) has a total capacity of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free"
    r"|\((?P<device>[A-Z]{3,4} \d+); (?P<total2>[\d.]+ \w+) total capacity; .{0,120}?; (?P<free2>[\d.]+ \w+) free;"
)
_OTHERS = re.compile(r"Process (?P<pid>\d+) has (?P<held>[\d.]+ \w+) memory in use")
_ALLOCATED = re.compile(r"Of the allocated memory ([\d.]+ \w+) is allocated by PyTorch")
_SMALL_SHARE = 0.05
"""A desktop or a monitor on the GPU is not why a model does not fit."""
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def match(ending: Ending) -> Finding | NotThis | None:
    found = search_machine(PATTERN, ending.failure)
    if found is None or ending.failure is None:
        return (
            NotThis(why="no failed allocation of GPU memory in the failure that began it") if ending.failure else None
        )
    text = found.string
    tried = found["tried"]
    figures = _FIGURES.search(text)
    total = (figures["total"] or figures["total2"]) if figures else None
    other = _other(text, total)
    where = _where(ending, ending.failure)
    words = [f"GPU memory ran out {where}".rstrip()]
    if tried:
        words.append(f": {tried} more were asked for")
    if figures:
        free = figures["free"] or figures["free2"]
        words.append(f", {free} of {total} were free on {figures['device'] or 'GPU ' + figures['gpu']}")
    if other:
        words.append(f"; process {other['pid']}, which torch does not count as this one, held {other['held']}")
    return finding(
        ending,
        ending.failure,
        summary="".join(words) + ".",
        subclass=_SUBCLASSES[where],
        key=("cuda-oom", where),
    )


_SUBCLASSES = {
    "while serving": "runtime",
    "while loading weights": "weights",
    "as the KV cache was allocated": "kv-cache",
    "while graphs were captured": "graph-capture",
    "in the warm-up": "warmup",
    "during the start": "startup",
    "": "",
}
_STEPS = {subclass: where for where, subclass in _SUBCLASSES.items()}
_MILESTONES = {
    "load-weight-begin": "while loading weights",
    "load-weight-end": "as the KV cache was allocated",
    "graph-capture-begin": "while graphs were captured",
    "uvicorn-running": "in the warm-up",
}


def _where(ending: Ending, failure: Failure) -> str:
    """The step that was under way, as the frames tell, or else SGLang's own lines; empty where neither does."""
    if became_ready(ending, before=failure.usec):
        return "while serving"
    if known := frames.step(failure):
        return _STEPS[known]
    passed = [milestone.name for milestone in ending.timeline.all(Milestone) if milestone.usec <= failure.usec]
    if passed:
        return _MILESTONES.get(passed[-1], "during the start")
    if frames.in_serving_loop(failure):
        return "" if ending.timeline.first(ServerArgs) else "while serving"
    return "during the start"


def _other(text: str, total: str | None) -> re.Match[str] | None:
    """The largest other process on that GPU, unless what it holds is too little to matter.

    In a container torch does not find its own pid among those that NVML names, and lists itself as another process:
    it is the one that holds what torch allocated, and little more.
    """
    listed = sorted(_OTHERS.finditer(text), key=lambda found: _bytes(found["held"]))
    allocated = _ALLOCATED.search(text)
    if allocated is not None and "this process has" not in text:
        own = next((found for found in listed if _bytes(found["held"]) >= _bytes(allocated[1])), None)
        listed = [found for found in listed if found is not own]
    if not listed or (total and _bytes(listed[-1]["held"]) < _bytes(total) * _SMALL_SHARE):
        return None
    return listed[-1]


def _bytes(size: str) -> float:
    number, _, unit = size.partition(" ")
    return float(number) * _UNITS.get(unit, 0)
