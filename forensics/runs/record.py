"""A run's timeline → what is remembered of it beside the verdict. Pure."""

import json
from collections.abc import Iterator

from forensics.causality import Ending
from forensics.events import Batch, BenchResult, CgroupMemory, DecodeStats, GpuMemory, HostMemory, Milestone, Remains
from forensics.history import configuration
from forensics.model import Run
from forensics.phase import ready_after_seconds
from forensics.public import when
from forensics.runs import decoding as tally
from forensics.runs.decoding import CONCURRENCY, Decoding
from forensics.runs.shapes import BenchShape, DecodingShape, FactsShape
from forensics.runs.speculation import remark, tokens
from forensics.shapes import MemoryFigureShape
from forensics.timeline import Timeline

_GIB = 2**30
"""SGLang's `GB`."""


def facts(run: Run, timeline: Timeline, decoded: Decoding | None = None) -> FactsShape:
    """What the timeline says of the run, ended or not. `decoded` is the tally of a run that is still being read."""
    arguments = configuration(timeline)
    decoded = decoded or decoding(timeline)
    capacity = _capacity(timeline)
    ready = ready_after_seconds(Ending(run, timeline))
    return {
        "ready_after_seconds": None if ready is None else round(ready, 1),
        "max_total_num_tokens": _whole(capacity.get("max_total_num_tokens")),
        "max_running_requests": _whole(capacity.get("max_running_requests")),
        "memory": list(_accounting(timeline)),
        "peaks": list(_peaks(run, timeline)),
        "decoding": _decoding_shape(decoded, tokens(decoded, arguments)) if decoded.lines else None,
        "benches": [_bench(event) for event in timeline.all(BenchResult)],
        "remark": remark(decoded, arguments),
    }


def decoding(timeline: Timeline) -> Decoding:
    """The run's tally; of a timeline without one, what the batch lines that are in it give."""
    stats = timeline.last(DecodeStats)
    if stats is not None:
        return tally.load(json.loads(stats.tally))
    made = Decoding()
    for batch in timeline.all(Batch):
        if batch.phase == "decode":
            made.add(dict(batch.values))
    return made


def _decoding_shape(decoded: Decoding, count: int) -> DecodingShape:
    groups = ((name, decoded.throughput.get(name)) for name, _ in CONCURRENCY)
    return {
        "lines": decoded.lines,
        "tokens": count,
        "throughput": [
            {"running_requests": name, "lines": group.lines, "median": group.median, "best": group.best}
            for name, group in groups
            if group is not None
        ],
        "accept_length": decoded.accept_length,
        "accept_length_least": decoded.accept_length_least,
        "accept_length_most": decoded.accept_length_most,
        "accept_rate": decoded.accept_rate,
        "peak_running_requests": decoded.peak_running_requests,
        "peak_queued_requests": decoded.peak_queued_requests,
        "peak_token_usage": decoded.peak_token_usage,
    }


def _capacity(timeline: Timeline) -> dict[str, str]:
    said = [dict(milestone.values) for milestone in timeline.all(Milestone) if milestone.name == "capacity"]
    return said[0] if said else {}


def _accounting(timeline: Timeline) -> Iterator[MemoryFigureShape]:
    """SGLang's lines of one rank: each GPU has the like. A second loading of weights is the draft's, and so is the
    second memory pool."""
    milestones = list(timeline.all(Milestone))
    first = next((milestone.tag for milestone in milestones if milestone.name == "load-weight-end"), "")
    loaded, pools, graphs = 0, 0, 0.0
    kv_gib, kv_tokens = 0.0, ""
    for milestone in milestones:
        if milestone.tag != first:
            continue
        values = dict(milestone.values)
        if milestone.name == "load-weight-end":
            loaded += 1
            yield _figure(f"{_whose(loaded)} weights", float(values["mem_usage"]), "Load weight end")
        elif milestone.name == "kv-cache":
            kv_gib += sum(float(values[name]) for name in ("k_size", "v_size", "kv_size") if name in values)
            kv_tokens = values["tokens"]
        elif milestone.name == "mamba-cache":
            size = sum(float(values.get(name, 0)) for name in ("conv_state", "ssm_state"))
            yield _figure("mamba cache", size, "Mamba Cache is allocated")
        elif milestone.name == "memory-pool-end" and kv_tokens:
            pools += 1
            yield _figure(f"{_whose(pools)} KV cache ({kv_tokens} tokens)", kv_gib, "KV Cache is allocated")
            kv_gib, kv_tokens = 0.0, ""
        elif milestone.name == "graph-capture-end":
            graphs += float(values["mem_usage"])
    if kv_tokens:
        yield _figure(f"{_whose(pools + 1)} KV cache ({kv_tokens} tokens)", kv_gib, "KV Cache is allocated")
    if any(milestone.name == "graph-capture-end" for milestone in milestones):
        yield _figure("graphs", graphs, "Capture … graph end")
    left = _capacity(timeline).get("available_mem")
    if left is not None:
        yield _figure("left after the start", float(left), "max_total_num_tokens=…")


def _whose(number: int) -> str:
    return "target" if number == 1 else "draft"


def _figure(what: str, gib: float, line: str) -> MemoryFigureShape:
    return {"what": what, "size_bytes": int(gib * _GIB), "source": f"SGLang: {line}"}


def _peaks(run: Run, timeline: Timeline) -> Iterator[MemoryFigureShape]:
    """The most that was seen, of what was sampled."""
    held: dict[int, int] = {}
    for gpu in timeline.all(GpuMemory):
        ours = [process.used_bytes or 0 for process in gpu.processes if run.owns_pid(process.pid)]
        held[gpu.index] = max(held.get(gpu.index, 0), sum(ours))
    for index, size in sorted(held.items()):
        if size:
            yield {"what": f"GPU {index}, held by the server", "size_bytes": size, "source": "NVML"}
    cgroups = [remains.memory for remains in timeline.all(Remains)] + list(timeline.all(CgroupMemory))
    peaks = [one.peak_bytes or one.current_bytes or 0 for one in cgroups if one is not None]
    if any(peaks):
        yield {"what": "host memory of the unit", "size_bytes": max(peaks), "source": "memory cgroup"}
    hosts = list(timeline.all(HostMemory))
    if hosts:
        used = max(host.total_bytes - host.available_bytes for host in hosts)
        yield {"what": "host memory, all in use", "size_bytes": used, "source": "/proc/meminfo"}


def _bench(event: BenchResult) -> BenchShape:
    return {
        "at": when(event.record.realtime_usec),
        "options": event.options,
        "figures": {name: float(value) for name, value in event.figures},
    }


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None else None
