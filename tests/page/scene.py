"""A store as a week of three servers leaves it: real verdicts on journals of `tests/cases`, moved to the hours before
now, a memory death with its samples, and lines that would like to be more than text."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from forensics.classify import classify
from forensics.codec import dump_crash, load_crash
from forensics.coverage import RECORDED
from forensics.events import Batch, CgroupMemory, Event, GpuMemory, GpuProcess, HostMemory, UnitStarted
from forensics.model import Crash, Evidence, Role, Run, RunRecord
from forensics.sources.export import read_json
from forensics.store import Store
from forensics.timeline import Timeline
from tests.cases.replay import replay
from tests.forensics import factories
from tests.forensics.runs.lives import Machine, decode, start

CASES = Path(__file__).parent.parent / "cases"
GIB = 2**30
HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert('script')</script> \"><svg onload=alert(2)>\n"
    "javascript:alert(3) \x1b[31;1mred\x1b[0m \x1b]0;title\x07 \x00null\n"
    "\u202etxt.exe\u202c right to left: \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627\n"
    "{{constructor.constructor('alert(4)')()}} &lt;b&gt;"
)
"""Markup, script, ANSI, control characters, a bidirectional override, right-to-left text."""


def fill(store: Store, now: datetime) -> None:
    for hours, lived_hours, unit, case in (
        (22.0, 0.0, "sglang-qwen.service", "configuration-error"),
        (21.6, 0.0, "sglang-qwen.service", "cuda-oom/graph-capture"),
        (20.0, 3.0, "sglang-demo.service", "external-signal"),
        (13.2, 8.0, "sglang-llama.service", "python-exception"),
        (9.5, 10.4, "sglang-demo.service", "stop-timeout"),
        (6.4, 15.1, "sglang-qwen.service", "gpu-fault"),
        (5.0, 7.9, "sglang-llama.service", "hang"),
        (2.1, 7.2, "sglang-demo.service", "native-crash"),
    ):
        if (crash := of_case(case)) is not None:
            lived = timedelta(hours=lived_hours) if lived_hours else None
            store.save(moved(crash, unit, now - timedelta(hours=hours), lived))
    for minutes in (190, 188, 186, 184):
        crash = of_case("exec-failure")
        assert crash is not None
        store.save(moved(crash, "sglang-qwen.service", now - timedelta(minutes=minutes)))
    store.save(moved(memory_death(), "sglang-llama.service", now - timedelta(minutes=38), timedelta(hours=4.3)))
    store.checkpoint("here", int(now.timestamp() * 1e6), list(living(now)))


def living(now: datetime) -> Iterator[RunRecord]:
    for number, (unit, hours) in enumerate((("sglang-demo.service", 2.05), ("sglang-llama.service", 0.6)), start=900):
        began_usec = int((now - timedelta(hours=hours)).timestamp() * 1e6)
        record = replace(factories.open_run(number, unit), first_realtime_usec=began_usec, events=[])
        record.events.append(
            UnitStarted(record=factories.record("Started.", 20_000_000, realtime_usec=began_usec + 95_000_000, pid=1))
        )
        yield record


def of_case(name: str) -> Crash | None:
    """The first crash in a case, or in the first one of a cause."""
    folders = [CASES / name] if "/" in name else sorted(CASES.glob(f"{name}/*"))
    for folder in folders:
        if not (folder / "journal.jsonl").exists():
            continue
        for one in replay(read_json(folder / "journal.jsonl"), ["sglang-*.service"]):
            if one.verdict.is_crash and one.verdict.cause == name.split("/")[0]:
                return Crash(run=one.run, timeline=one.timeline, verdict=replace(one.verdict, awaits=()))
    return None


def moved(crash: Crash, unit: str, died_at: datetime, lived: timedelta | None = None) -> Crash:
    """The same death of another unit at another time; everything before it as long before it as it was, but for the
    start of a life that is to have been a longer one."""
    crash = load_crash(json.loads(json.dumps(dump_crash(crash)).replace(crash.run.unit, unit)))
    by_usec = int(died_at.timestamp() * 1e6) - int(crash.run.died_at.timestamp() * 1e6)

    def event(one: Any) -> Any:
        return replace(one, record=replace(one.record, realtime_usec=one.record.realtime_usec + by_usec))

    number = int(died_at.timestamp() * 1000) & 0xFFFFFFFFFF
    run: Run = replace(
        crash.run, unit=unit, died_at=died_at, invocation_id=f"{number:012x}" + crash.run.invocation_id[12:]
    )
    events = [event(one) for one in crash.timeline.events]
    if lived is not None:
        run = replace(run, started_usec=run.ended_usec - lived // timedelta(microseconds=1))
        ready_usec = int((died_at - lived + timedelta(seconds=140)).timestamp() * 1e6)
        events = [one for one in events if not isinstance(one, UnitStarted)]
        events.append(
            UnitStarted(
                record=replace(
                    events[0].record,
                    realtime_usec=ready_usec,
                    monotonic_usec=run.started_usec + 140_000_000,
                    ref="started",
                )
            )
        )
    return Crash(
        run=run,
        timeline=Timeline.of(events, crash.timeline.gaps, crash.timeline.sources),
        verdict=replace(
            crash.verdict, evidence=tuple(replace(piece, event=event(piece.event)) for piece in crash.verdict.evidence)
        ),
    )


def memory_death() -> Crash:
    """A kernel OOM kill after ten minutes in which the unit's memory grew, with what the daemon sampled of it."""
    case = of_case("kernel-oom/memcg-main") or of_case("kernel-oom")
    assert case is not None
    end = case.run.ended_usec
    samples: list[Event] = []
    for before in range(600, 0, -5):
        usec = end - before * 1_000_000
        grown = (1 - before / 600) ** 2
        wave = (before * 37) % 23 / 23
        at = replace(case.timeline.events[-1].record, monotonic_usec=usec, realtime_usec=0, message="", ref="sampled")
        at = replace(at, realtime_usec=int(case.run.died_at.timestamp() * 1e6) - before * 1_000_000)
        samples += [
            CgroupMemory(
                record=replace(at, source="cgroup"),
                current_bytes=int((13.5 + 10.3 * grown) * GIB),
                peak_bytes=None,
                max_bytes=24 * GIB,
                swap_current_bytes=0,
                oom=0,
                oom_kill=0,
            ),
            HostMemory(
                record=replace(at, source="host"),
                total_bytes=128 * GIB,
                available_bytes=int((96 - 10.3 * grown) * GIB),
                swap_free_bytes=0,
                vmstat_oom_kill=3,
            ),
            GpuMemory(
                record=replace(at, source="gpu"),
                uuid="GPU-7",
                index=0,
                name="NVIDIA H200",
                pci_bus_id="0000:19:00.0",
                total_bytes=141 * GIB,
                used_bytes=int((121.2 + wave) * GIB),
                processes=(GpuProcess(pid=case.run.main_pid or 1, used_bytes=121 * GIB),),
            ),
        ]
        running, queued = int(22 + 14 * grown + 4 * wave), int(max(0.0, 30 * (grown - 0.55)))
        samples.append(
            Batch(
                record=replace(at, source="server", message="Decode batch"),
                phase="decode",
                values=(
                    ("running-req", str(running)),
                    ("queue-req", str(queued)),
                    ("gen throughput (token/s)", f"{1650 + 260 * wave + 420 * grown - 900 * max(0, grown - 0.8):.2f}"),
                    ("accept len", "2.71"),
                ),
            )
        )
    timeline = Timeline.of(
        (*case.timeline.events, *samples), case.timeline.gaps, RECORDED | {"cgroup", "host", "gpu", "process", "unit"}
    )
    run = replace(case.run, started_usec=end - 3 * 3600 * 1_000_000)
    return Crash(run=run, timeline=timeline, verdict=replace(classify(run, timeline), awaits=()))


def hostile_crash(number: int = 666) -> Crash:
    """Every text of it tries to be more than text."""
    evil = factories.traceback(message=HOSTILE)
    return factories.crash(
        number,
        summary=f"The scheduler died of {HOSTILE}",
        evidence=(Evidence(role=Role.INITIATING, event=evil, why=HOSTILE),),
        advice=(HOSTILE,),
        notes=(HOSTILE,),
        signature=HOSTILE,
        subclass=HOSTILE[:60],
    )


def server_with_decodes() -> Crash:
    machine = Machine()
    return machine.life([*start(), *(decode(running, 40.0 * running) for running in range(1, 9))], asked=False)
