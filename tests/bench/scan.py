"""How fast half a million journal entries are read, side by side with what people type.

    python -m tests.bench.scan [--entries N] [--rounds N] [--at-least RATIO]

The journal is a real one, made by systemd-journal-remote (package of that name): a server's batch and access lines
nearly throughout, as SGLang prints them once it serves; one line in a thousand of another kind; other services' lines,
PID 1's and the kernel's records, a few tracebacks. In each round the
pipeline `journalctl -u UNIT | grep -iE …`, the reader alone, and the reader with the tracker behind it (as at the
daemon's start) read all of it. The fastest round of each counts, by the wall clock and by processor time: on a busy
machine the others tell of the neighbours. Each has to find every traceback.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from forensics.entry import Entry
from forensics.sources.journal import JournalReader
from forensics.sources.journal_streams import Item
from forensics.tracker import Tracker

MAKER = "/lib/systemd/systemd-journal-remote"
UNIT = "sglang-bench.service"
WORDS = "error|crash|fail|OOM|killed|CUDA|traceback"
BOOT, MACHINE, INVOCATION, STREAM = "b0" * 16, "ac" * 16, "1c" * 16, "5e" * 16
START_USEC = 1_772_366_400_000_000

SERVER = (
    "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=sglang-bench\n_TRANSPORT=stdout\n"
    f"_STREAM_ID={STREAM}\n_PID=4321\n_UID=990\n_GID=990\n_COMM=python3\n_EXE=/opt/inquest/sglang/bin/python3.12\n"
    "_CMDLINE=/opt/inquest/sglang/bin/python -m sglang.launch_server --model-path /srv/models/demo --port 30000\n"
    f"_CAP_EFFECTIVE=0\n_SYSTEMD_CGROUP=/sglang.slice/{UNIT}\n_SYSTEMD_UNIT={UNIT}\n_SYSTEMD_SLICE=sglang.slice\n"
    f"_SYSTEMD_INVOCATION_ID={INVOCATION}\nMESSAGE=%s\n"
)
PID1 = (
    "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=systemd\n_TRANSPORT=journal\n_PID=1\n_UID=0\n_GID=0\n"
    f"_COMM=systemd\n_SYSTEMD_UNIT=init.scope\nUNIT=%s\nINVOCATION_ID={INVOCATION}\nMESSAGE=%s\n"
)
CRON = (
    "PRIORITY=6\nSYSLOG_IDENTIFIER=cron\n_TRANSPORT=syslog\n_PID=611\n_UID=0\n_GID=0\n_COMM=cron\n"
    "_SYSTEMD_UNIT=cron.service\n_SYSTEMD_SLICE=system.slice\nMESSAGE=(root) CMD (run %d)\n"
)
KERNEL = "PRIORITY=6\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=kernel\n_TRANSPORT=kernel\nMESSAGE=eth0: link is up %d\n"

DECODE = (
    "Decode batch, #running-req: %d, #token: %d, token usage: 0.42, accept len: 2.81, accept rate: 0.60, "
    "cuda graph: True, gen throughput (token/s): %d.51, #queue-req: 0"
)
PREFILL = "Prefill batch, #new-seq: 1, #new-token: %d, #cached-token: %d, token usage: 0.40, #running-req: %d"
ACCESS = 'INFO:     127.0.0.1:%d - "POST /v1/chat/completions HTTP/1.1" 200 OK'
TRACEBACK = (
    "Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/inquest/sglang/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 2711, in run',
    "    scheduler.event_loop_overlap()",
    "RuntimeError: The size of tensor a (160) must match the size of tensor b (2) at non-singleton dimension 0",
)
TRACEBACK_EVERY = 50_000


def exported(entries: int) -> Iterator[bytes]:
    """The entries in journald's export format."""
    chance = random.Random(7)
    usec = START_USEC
    for number in range(entries):
        usec += chance.randrange(200, 1800)
        monotonic = usec - START_USEC + 60_000_000
        for text in texts(number, usec, chance):
            usec += 1
            yield (
                f"__REALTIME_TIMESTAMP={usec}\n__MONOTONIC_TIMESTAMP={monotonic}\n_BOOT_ID={BOOT}\n"
                f"_MACHINE_ID={MACHINE}\n_HOSTNAME=bench\n{text}\n"
            ).encode()


def texts(number: int, usec: int, chance: random.Random) -> tuple[str, ...]:
    if number % TRACEBACK_EVERY == TRACEBACK_EVERY // 2:
        return tuple(SERVER % line for line in TRACEBACK)
    kind = chance.random()
    some = chance.randrange(1000, 9999)
    stamp = f"[{datetime.fromtimestamp(usec // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"
    if kind < 0.55:
        return (SERVER % (f"{stamp} TP0] " + DECODE % (some % 32, some * 40, some % 900)),)
    if kind < 0.65:
        return (SERVER % (f"{stamp} TP0] " + PREFILL % (some, some % 777, some % 32)),)
    if kind < 0.979:
        return (SERVER % (f"{stamp}] " + ACCESS % (30000 + some)),)
    if kind < 0.98:
        return (SERVER % f"{stamp}] Cache flushed, {some} tokens",)
    if kind < 0.995:
        return (CRON % number,)
    if kind < 0.999:
        return (PID1 % (f"other-{some % 50}.service", f"Starting other-{some % 50}.service..."),)
    return (KERNEL % number,)


def make_journal(folder: Path, entries: int) -> None:
    with subprocess.Popen(
        [MAKER, "-o", folder / "bench.journal", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as maker:
        assert maker.stdin is not None
        for entry in exported(entries):
            maker.stdin.write(entry)
        maker.stdin.close()
    assert maker.returncode == 0, f"{MAKER} failed"


# --- what is compared ------------------------------------------------------------------------------------------


def pipeline(folder: Path) -> int:
    command = f"journalctl -D {folder} -u {UNIT} | grep -iE '{WORDS}' | grep -c '^.*Traceback'"
    return int(subprocess.run(command, shell=True, capture_output=True, check=True).stdout)


def reader_alone(folder: Path) -> int:
    reader = JournalReader([UNIT], path=folder)
    found = sum(isinstance(item, Entry) and "Traceback" in item.message for item in everything(reader))
    reader.close()
    return found


def reader_and_tracker(folder: Path) -> int:
    reader, tracker = JournalReader([UNIT], path=folder), Tracker([UNIT])
    for item in everything(reader):
        tracker.feed(item)
    reader.close()
    (record,) = tracker.records()
    tracker.judge_input(record.invocation_id, ())
    return sum(event.kind == "traceback" for event in record.events)


def everything(reader: JournalReader) -> Iterator[Item]:
    while reader.wait(0):
        yield from reader.read()


def seconds(run: Callable[[Path], int], folder: Path, expected: int) -> tuple[float, float]:
    """By the wall clock, and of processor time."""
    began, used = time.perf_counter(), processor_seconds()
    found = run(folder)
    took = time.perf_counter() - began, processor_seconds() - used
    assert found == expected, f"{run.__name__} found {found} tracebacks, not {expected}"
    return took


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-least", type=float, default=0.0, help="fail when the reader is not so many times faster")
    options = parser.parse_args()
    console = Console()
    runs = (pipeline, reader_alone, reader_and_tracker)
    names = ("journalctl -u … | grep -iE …", "the reader", "the reader and the tracker")
    took: dict[str, list[tuple[float, float]]] = {run.__name__: [] for run in runs}
    with tempfile.TemporaryDirectory(prefix="inquest-bench-") as made:
        folder = Path(made)
        with console.status(f"making a journal of {options.entries} entries"):
            make_journal(folder, options.entries)
        tracebacks = len(range(TRACEBACK_EVERY // 2, options.entries, TRACEBACK_EVERY))
        for _ in range(options.rounds):
            for run in runs:
                took[run.__name__].append(seconds(run, folder, tracebacks))
    best = {name: tuple(map(min, zip(*rounds, strict=True))) for name, rounds in took.items()}
    table = Table("", "seconds", "entries/s", "times faster", "CPU seconds", "times less")
    wall_before, processor_before = best["pipeline"]
    for run, name in zip(runs, names, strict=True):
        wall, processor = best[run.__name__]
        row = f"{wall:.2f}", f"{options.entries / wall:,.0f}", f"{wall_before / wall:.1f}"
        table.add_row(name, *row, f"{processor:.2f}", f"{processor_before / processor:.1f}")
    console.print(f"{options.entries} journal entries, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 0 if wall_before / best["reader_alone"][0] >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
