"""A run's timeline → what is remembered of it beside the verdict. Pure."""

import json
from collections.abc import Iterator

from forensics.causality import Ending
from forensics.events import Batch, BenchResult, CgroupMemory, DecodeStats, GpuMemory, HostMemory, Milestone, Remains
from forensics.history import configuration
from forensics.memory import accounting
from forensics.model import Run
from forensics.phase import ready_after_seconds
from forensics.public import when
from forensics.runs import decoding as tally
from forensics.runs.decoding import CONCURRENCY, Decoding
from forensics.runs.shapes import BenchShape, DecodingShape, FactsShape
from forensics.runs.speculation import remark, tokens
from forensics.shapes import MemoryFigureShape
from forensics.timeline import Timeline


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
        "memory": [
            {"what": figure.what, "size_bytes": figure.size_bytes, "source": figure.source}
            for figure in accounting(timeline)
        ],
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
