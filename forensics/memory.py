"""Where the memory went: SGLang's own accounting at the start, the host's and the GPUs' figures at the end. Pure.

SGLang's `GB` are GiB. On unified-memory machines NVML has no figures and SGLang's `avail mem` is the host's memory.
"""

from collections.abc import Iterator, Sequence

from forensics.causality import Ending
from forensics.events import CgroupMemory, DriverNoMemory, Event, GpuMemory, HostMemory, Milestone, OomVictim, Remains
from forensics.model import MemoryFigure, MemoryStory
from forensics.timeline import Timeline

_GIB = 2**30
_TREND_USEC = 60_000_000
_STEADY_BYTES = 64 * 2**20
_STARVED_USEC = 120_000_000
_UNIFIED = (
    "This machine's GPU takes its memory from the host's, and no cgroup counts that: the unit's figures and its limit "
    "do not show it."
)

_MEMORY_CAUSES = ("kernel-oom", "userspace-oom-kill", "cuda-oom", "unexplained-kill")
_MEMORY_REFUSALS = ("memory", "running-request", "kv", "state-cache")


def story(ending: Ending, cause: str, subclass: str) -> MemoryStory | None:
    """The table and the sentence; None for a death that has nothing to do with memory, or when no figure is known."""
    refused = cause == "configuration-error" and any(word in subclass for word in _MEMORY_REFUSALS)
    if cause not in _MEMORY_CAUSES and not refused:
        return None
    figures = (*accounting(ending.timeline), *_graphics(ending), *_host(ending))
    if not figures:
        return None
    return MemoryStory(sentence=_sentence(ending, cause), figures=figures)


def accounting(timeline: Timeline) -> Iterator[MemoryFigure]:
    """SGLang's lines of one rank: each GPU has the like. A second loading of weights is the draft's, and so is the
    second memory pool."""
    milestones = list(timeline.all(Milestone))
    loads = [milestone for milestone in milestones if milestone.name in ("load-weight-begin", "load-weight-end")]
    rank = loads[0].tag if loads else ""
    loaded, pools, graphs_gib = 0, 0, 0.0
    kv_gib, kv_tokens = 0.0, ""
    for milestone in milestones:
        if milestone.tag != rank:
            continue
        values = dict(milestone.values)
        if milestone.name == "load-weight-end":
            loaded += 1
            if "mem_usage" in values:
                yield _gib(f"{_whose(loaded)} weights", float(values["mem_usage"]), "SGLang: Load weight end")
        elif milestone.name == "kv-cache":
            kv_gib += sum(float(values[name]) for name in ("k_size", "v_size", "kv_size") if name in values)
            kv_tokens = values.get("tokens", "?")
        elif milestone.name == "mamba-cache":
            states_gib = sum(float(values.get(name, 0)) for name in ("conv_state", "ssm_state"))
            yield _gib("mamba cache", states_gib, "SGLang: Mamba Cache is allocated")
        elif milestone.name == "memory-pool-end" and kv_tokens:
            pools += 1
            yield _kv_cache(pools, kv_gib, kv_tokens)
            kv_gib, kv_tokens = 0.0, ""
        elif milestone.name == "graph-capture-end":
            graphs_gib += float(values.get("mem_usage", 0))
    if kv_tokens:
        yield _kv_cache(pools + 1, kv_gib, kv_tokens)
    if any(milestone.name == "graph-capture-end" for milestone in milestones):
        yield _gib("graphs", graphs_gib, "SGLang: Capture … graph end")
    yield from _left(milestones, rank)


def _whose(number: int) -> str:
    return "target" if number == 1 else "draft"


def _kv_cache(pool: int, gib: float, tokens: str) -> MemoryFigure:
    return _gib(f"{_whose(pool)} KV cache ({tokens} tokens)", gib, "SGLang: KV Cache is allocated")


def _left(milestones: Sequence[Milestone], rank: str) -> Iterator[MemoryFigure]:
    """What was left at the end of the start, or as far as it came."""
    for milestone in milestones:
        if milestone.name == "capacity" and (left := dict(milestone.values).get("available_mem")) is not None:
            yield _gib("left after the start", float(left), "SGLang: max_total_num_tokens=…")
            return
    told = [one for one in milestones if one.tag == rank and "avail_mem" in dict(one.values)]
    for last in told[-1:]:
        yield _gib("left after that", float(dict(last.values)["avail_mem"]), f"SGLang: {last.name}")


def _graphics(ending: Ending) -> Iterator[MemoryFigure]:
    """NVML's last reading of each GPU, and what processes of ours and of others held on it."""
    last: dict[str, GpuMemory] = {}
    for gpu in ending.timeline.all(GpuMemory):
        if gpu.usec <= ending.run.ended_usec:
            last[gpu.uuid] = gpu
    for gpu in last.values():
        if gpu.used_bytes is not None and gpu.total_bytes is not None:
            yield MemoryFigure(what=f"GPU {gpu.index} in use", size_bytes=gpu.used_bytes, source="NVML")
            yield MemoryFigure(what=f"GPU {gpu.index} in all", size_bytes=gpu.total_bytes, source="NVML")
        for process in gpu.processes:
            if process.used_bytes is not None:
                whose = "ours" if ending.run.owns_pid(process.pid) else "not ours"
                what = f"GPU {gpu.index}: process {process.pid} ({whose})"
                yield MemoryFigure(what=what, size_bytes=process.used_bytes, source="NVML")


def _host(ending: Ending) -> Iterator[MemoryFigure]:
    cgroup = _last_cgroup(ending)
    if cgroup is not None:
        for what, size in (
            ("unit now", cgroup.current_bytes),
            ("unit at its peak", cgroup.peak_bytes),
            ("unit's limit (memory.max)", cgroup.max_bytes),
        ):
            if size is not None:
                yield MemoryFigure(what=what, size_bytes=size, source="memory cgroup")
    for limit in [kill.limit for kill in ending.oom_kills if kill.limit is not None][-1:]:
        yield MemoryFigure(what="limit at the kill", size_bytes=limit.limit_bytes, source="kernel")
        yield MemoryFigure(what="used at the kill", size_bytes=limit.usage_bytes, source="kernel")
    for victim in ending.timeline.all(OomVictim):
        if ending.run.owns_pid(victim.victim_pid) and victim.anon_rss_bytes is not None:
            size = victim.anon_rss_bytes + (victim.file_rss_bytes or 0) + (victim.shmem_rss_bytes or 0)
            what = f"victim {victim.victim_pid} ({victim.task}), resident"
            yield MemoryFigure(what=what, size_bytes=size, source="kernel")
    host = ending.timeline.last(HostMemory, before=ending.run.ended_usec)
    if host is not None:
        yield MemoryFigure(what="host, still available", size_bytes=host.available_bytes, source="/proc/meminfo")
        yield MemoryFigure(what="host in all", size_bytes=host.total_bytes, source="/proc/meminfo")


def _last_cgroup(ending: Ending) -> CgroupMemory | None:
    remains = ending.timeline.last(Remains)
    if remains is not None and remains.memory is not None and remains.memory.peak_bytes is not None:
        return remains.memory
    return ending.timeline.last(CgroupMemory)


def is_unified(ending: Ending) -> bool:
    """Whether the GPUs take their memory from the host's (GB10, Jetson), where NVML gives no figures. No cgroup counts
    that: a limit that was not reached says nothing then."""
    return any(gpu.total_bytes is None for gpu in ending.timeline.all(GpuMemory))


def starved_driver(ending: Ending) -> str | None:
    """In words, that the GPU driver could not get host memory shortly before the end; None when it could."""
    last = ending.timeline.last(DriverNoMemory, before=ending.run.ended_usec)
    if last is None or ending.first_sign_usec - last.usec > _STARVED_USEC:
        return None
    seconds = max(0, ending.first_sign_usec - last.usec) / 1e6
    return f"The GPU driver could not get host memory {seconds:.0f} s before the end ({last.record.message[:80]})."


def _sentence(ending: Ending, cause: str) -> str:
    if is_unified(ending):
        return f"{_UNIFIED} {_change(ending, cause)}"
    return _change(ending, cause)


def _change(ending: Ending, cause: str) -> str:
    trend = _trend(ending)
    if cause == "cuda-oom":
        return (
            "GPU memory is SGLang's to divide: weights, KV cache and graphs stand above, the rest is for activations."
        )
    if trend is None:
        return "How the memory grew before the end was not recorded."
    what, change, seconds = trend
    if abs(change) < _STEADY_BYTES:
        return f"{what} was steady over the last {seconds:.0f} s: it ended in a jump between two samples, or elsewhere."
    direction = "grew" if change > 0 else "shrank"
    return f"{what} {direction} by {abs(change) / _GIB:.2f} GiB over the last {seconds:.0f} s."


def _trend(ending: Ending) -> tuple[str, int, float] | None:
    """What changed over the last minute: the unit's memory where it is accounted, else the host's."""
    unit = [
        (event, event.current_bytes) for event in ending.timeline.all(CgroupMemory) if event.current_bytes is not None
    ]
    host = [(event, event.total_bytes - event.available_bytes) for event in ending.timeline.all(HostMemory)]
    of_unit, of_host = ("The unit's memory", unit), ("The host's used memory", host)
    for name, samples in (of_host, of_unit) if is_unified(ending) else (of_unit, of_host):
        last = [(event, size) for event, size in samples if _in_last_minute(ending, event)]
        if len(last) >= 2:
            seconds = (last[-1][0].usec - last[0][0].usec) / 1e6
            return name, last[-1][1] - last[0][1], seconds
    return None


def _in_last_minute(ending: Ending, event: Event) -> bool:
    return ending.run.ended_usec - _TREND_USEC <= event.usec <= ending.run.ended_usec


def _gib(what: str, gib: float, source: str) -> MemoryFigure:
    return MemoryFigure(what=what, size_bytes=int(gib * _GIB), source=source)
