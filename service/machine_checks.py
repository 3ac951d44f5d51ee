"""Checks of the machine before a start: GPUs and who holds them, memory, disk. See ``service.checks``."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from service.command import command
from service.gpus import Gpu, Gpus, NoGpus, ask
from service.identity import identity, noted, unit_of
from service.installed import Installed, NoInterpreter, NoSglang, find
from service.leftovers import describe
from service.leftovers import find as find_left
from service.pair import pair
from service.row import Row, good, refused, unknown, warning
from service.spec import ServerSpec

__all__ = ["disk", "driver", "gpu_memory", "host_memory", "left_over", "shared_memory"]

NVML_SECONDS = 10.0
_GIB = 2**30
# Less than this held by others is a desktop, a monitor, or a driver's own.
_MUCH_BYTES = _GIB
# A CUDA context and the first allocations of torch.
_CONTEXT_BYTES = _GIB
_SHM_PER_GPU_BYTES = 64 << 20
_SHM = "/dev/shm"  # noqa: S108  (a file system, not a file of ours)
_DISK_BYTES = _GIB
# What the server's processes take of the host's memory beside the weights that pass through it.
_HOST_BYTES = 2 * _GIB
# The oldest compute capability that torch for this CUDA has code for; the oldest CUDA that has code for a new one.
_DROPPED = ((13, (7, 5)),)
_NEEDED = (((10, 0), (12, 8)), ((9, 0), (11, 8)), ((8, 9), (11, 8)))


@functools.cache
def _gpus() -> Gpus:
    return ask(NVML_SECONDS)


def _installed(spec: ServerSpec) -> Installed | None:
    try:
        return find(spec.python, command(spec).env)
    except (NoInterpreter, NoSglang):
        return None


def driver(spec: ServerSpec) -> Row | None:
    """The driver can run the CUDA that torch was built with, and torch has code for the GPUs."""
    if spec.device not in (None, "cuda"):
        return None
    slug, installed = "driver", _installed(spec)
    torch = installed.torch if installed else ""
    try:
        found = _gpus()
    except NoGpus as error:
        if error.installed:
            return warning(
                slug, f"GPUs: {error}", "try: nvidia-smi; a driver that hangs needs a restart of the machine"
            )
        if installed is not None and installed.cuda is not None:
            advice = "install the driver, or set 'device' for another kind of hardware"
            return warning(slug, f"{error}, and torch {torch} is built for CUDA", advice)
        return None
    if installed is not None and torch and installed.cuda is None and "+cpu" in torch:
        advice = f"install SGLang with a torch for CUDA, or set device = 'cpu': {spec.python} -m pip install torch"
        return refused(slug, f"torch {torch} is built without CUDA, and this machine has a GPU", advice)
    if installed is None or installed.cuda is None:
        return good(slug, f"driver {found.driver}")
    need, have = installed.cuda, found.cuda
    if have is not None and need[0] > have[0]:
        words = f"torch {torch} needs CUDA {_dotted(need)}, driver {found.driver} runs up to {_dotted(have)}"
        return refused(slug, words, "update the driver, or install a torch for an older CUDA")
    for gpu in _of(spec, found):
        if gpu.capability is not None and (problem := _no_code(gpu.capability, need)):
            words = f"GPU {gpu.index} ({gpu.name}, compute capability {_dotted(gpu.capability)}) {problem}"
            return refused(
                slug, f"{words}; torch {torch} is for CUDA {_dotted(need)}", "install a torch that has code for it"
            )
    return good(slug, f"driver {found.driver} for CUDA {_dotted(have) if have else '?'}, torch for {_dotted(need)}")


def _no_code(capability: tuple[int, int], cuda: tuple[int, int]) -> str:
    for release, oldest in _DROPPED:
        if cuda[0] >= release and capability < oldest:
            return f"is too old for CUDA {release}"
    for newest, least in _NEEDED:
        if capability >= newest:
            return f"needs CUDA {_dotted(least)} or newer" if cuda < least else ""
    return ""


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _of(spec: ServerSpec, found: Gpus) -> Iterator[Gpu]:
    """The GPUs that the server would take, by what it may see and where it begins."""
    visible = command(spec).env.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    gpus = list(found.gpus)
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        gpus = [gpu for name in names for gpu in found.gpus if name and (name == str(gpu.index) or name in gpu.uuid)]
    p = spec.parallel
    count = (p.tp_size or 1) * (p.pp_size or 1) * (1 if p.enable_dp_attention else p.dp_size or 1) // (p.nnodes or 1)
    first, step = p.base_gpu_id or 0, p.gpu_id_step or 1
    yield from gpus[first : first + max(count, 1) * step : step]


def gpu_memory(spec: ServerSpec) -> Row | None:
    """Each GPU has room for the weights at least; who holds memory there is named."""
    if spec.device not in (None, "cuda"):
        return None
    slug = "gpu-memory"
    try:
        found = _gpus()
    except NoGpus as error:
        return unknown(slug, str(error)) if error.installed else None
    chosen = list(_of(spec, found))
    need = _weights(spec)
    held: list[str] = []
    short: list[str] = []
    for gpu in chosen:
        if gpu.used_bytes is None or gpu.free_bytes is None:
            continue  # it shares the host's memory
        if gpu.used_bytes >= _MUCH_BYTES:
            who = ", ".join(_holder(spec, use.pid, use.used_bytes) for use in gpu.uses) or "no process that can be seen"
            held.append(
                f"GPU {gpu.index}: {_gib(gpu.used_bytes)} of {_gib(gpu.used_bytes + gpu.free_bytes)} held by {who}"
            )
        if need and gpu.free_bytes < need + _CONTEXT_BYTES:
            parts = f"the weights ({_gib(need)}) and a CUDA context ({_gib(_CONTEXT_BYTES)})"
            short.append(f"GPU {gpu.index} has {_gib(gpu.free_bytes)} free, {parts} alone take more")
    if short:
        advice = "stop what holds it, take other GPUs (parallel.base_gpu_id), or more of them (parallel.tp_size)"
        return refused(slug, "; ".join(short + held), advice)
    if held:
        return warning(slug, "; ".join(held), "less is left for the KV cache, and it may run out of memory later")
    free = min((gpu.free_bytes for gpu in chosen if gpu.free_bytes is not None), default=None)
    return None if free is None else good(slug, f"{_gib(free)} free" + (f", weights take {_gib(need)}" if need else ""))


def _weights(spec: ServerSpec) -> int:
    """Bytes of weights for each GPU, 0 where they are not known."""
    read = pair(spec)
    whole = sum(model.weight_bytes for model in (read.target, read.draft) if model is not None)
    return whole // ((spec.parallel.tp_size or 1) * (spec.parallel.pp_size or 1))


def _holder(spec: ServerSpec, pid: int, used: int | None) -> str:
    process, note = identity(pid), noted(spec.name)
    words = describe(process) if process else f"pid {pid} (gone, or outside of what can be seen here)"
    if process and note and process in note.processes:
        words += f", left over of this server's run {note.invocation_id[:12]}"
    elif process and unit_of(pid) == f"sglang-{spec.name}.service":
        words += ", left over of this server"
    return f"{words} with {_gib(used)}" if used is not None else words


def left_over(spec: ServerSpec) -> Row | None:
    """Nothing of the last run is alive any more; the unit's start ends what is."""
    found = find_left(spec.name)
    if not found:
        return good("left-over", "nothing of an earlier run is alive")
    who = "; ".join(
        describe(left.process) + (f" of run {left.invocation_id[:12]}" if left.invocation_id else "") for left in found
    )
    return warning("left-over", f"still alive: {who}", "the unit's start ends them; by hand: kill them by their pids")


def host_memory(spec: ServerSpec) -> Row | None:
    """The host, or the unit's own limit, has room for the server's processes."""
    slug, available = "host-memory", _available()
    if available is None:
        return unknown(slug, "/proc/meminfo does not say what is available")
    need = _HOST_BYTES + (_weights(spec) if spec.device == "cpu" else 0)
    if available < need:
        return warning(slug, f"{_gib(available)} available, a start takes about {_gib(need)}", "free some, or add swap")
    return good(slug, f"{_gib(available)} available")


def _available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def shared_memory(spec: ServerSpec) -> Row:
    """NCCL and the servers' processes pass data through /dev/shm; where it is full, they die by SIGBUS."""
    free = shutil.disk_usage(_SHM).free
    need = _SHM_PER_GPU_BYTES * (spec.parallel.tp_size or 1)
    if free < need:
        advice = "clear it, or make it larger: mount -o remount,size=4G /dev/shm"
        return warning("shared-memory", f"{_SHM} has {free >> 20} MiB free, {need >> 20} MiB are needed", advice)
    return good("shared-memory", f"{_SHM} has {_gib(free)} free")


def disk(spec: ServerSpec) -> Row:
    """Where caches of compiled code are kept has some room."""
    folder = Path(command(spec).env.get("HOME") or ("/var/lib/sglang" if spec.user == "sglang" else "/"))
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < _DISK_BYTES:
        advice = "clear some: Triton, FlashInfer and torch compile into caches there"
        return warning("disk", f"{folder} has {_gib(free)} free", advice)
    return good("disk", f"{folder} has {_gib(free)} free")


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
