"""The process that talks to NVML, so that the daemon does not: an NVML call can block in the kernel for ever.

For each line on standard input it writes one JSON line: `{"gpus": [{…}]}`, or `{"error": "…"}` when NVML could not be
opened, after which it ends. Run by its path, it imports nothing of Inquest.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml

# Asked for and not there: unknown, never 0 (unified-memory machines, old drivers).
_UNKNOWN = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


class _Lost(Exception):
    pass


def _ask(call: Callable[..., Any], *args: Any) -> Any:
    """The answer, None when this GPU or this driver has none."""
    try:
        return call(*args)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise _Lost(str(error)) from error
        return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _gpu(index: int) -> dict[str, Any]:
    gpu: dict[str, Any] = {"index": index, "lost": None}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu["uuid"] = _text(_ask(pynvml.nvmlDeviceGetUUID, handle))
        gpu["name"] = _text(_ask(pynvml.nvmlDeviceGetName, handle))
        pci = _ask(pynvml.nvmlDeviceGetPciInfo, handle)
        gpu["pci_bus_id"] = _text(pci.busId if pci else "").lower()
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        gpu["total_bytes"], gpu["used_bytes"] = (memory.total, memory.used) if memory else (None, None)
        gpu["performance_state"] = _ask(pynvml.nvmlDeviceGetPerformanceState, handle)
        found = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        gpu["processes"] = [[process.pid, process.usedGpuMemory] for process in found]
    except _Lost as error:
        gpu["lost"] = str(error)
    except pynvml.NVMLError as error:
        if error.value not in _LOST:
            raise
        gpu["lost"] = str(error)
    return gpu


def main() -> int:
    """Answer until standard input ends."""
    opened = False
    for _ in sys.stdin:
        try:
            if not opened:
                pynvml.nvmlInit()
                opened = True
            answer = {"gpus": [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]}
        except pynvml.NVMLError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return 1
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
