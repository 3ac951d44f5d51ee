"""The live reader's gate hands out each decode line's figures exactly once, whatever stands between and around."""

import random
from pathlib import Path

import pytest

from forensics.entry import Entry
from forensics.sources.journal import JournalReader, Lines
from forensics.tracker import Tracker
from tests.forensics.runs.lives import UNIT, decode
from tests.forensics.sources.journals import Fields, write_journal

RUNS = ("a1" * 16, "a2" * 16)
OTHERS = (
    'INFO:     127.0.0.1:40312 - "POST /generate HTTP/1.1" 200 OK',
    "Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0",
    "A line that says something else",
    "Load weight begin. avail mem=93.10 GB",
)


def entries(seed: int) -> list[tuple[int, Fields]]:
    """Two runs of 300 lines; each decode line has a speed of its own."""
    made, rng = [], random.Random(seed)
    for number in range(600):
        run = RUNS[number >= 300]
        text = decode(1, 1000 + number) if rng.random() < 0.6 else rng.choice(OTHERS)
        stamp = f"[2026-03-01 12:{number // 60:02}:{number % 60:02}]"
        line = {"_PID": str(100 + (number >= 300)), "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": UNIT, "_COMM": "python",
                "_SYSTEMD_INVOCATION_ID": run, "MESSAGE": f"{stamp} {text}"}  # fmt: skip
        made.append((1_000_000 + number * 1000, line))
    return made


@pytest.mark.parametrize("limit", [1, 7, 20_000])
@pytest.mark.parametrize("seed", range(3))
def test_each_decode_line_is_tallied_once_for_its_own_run(tmp_path: Path, seed: int, limit: int) -> None:
    lines = entries(seed)
    write_journal(tmp_path / "system.journal", lines)
    reader, tracker = JournalReader(["sglang-*.service"], path=tmp_path), Tracker(["sglang-*.service"])
    counted = 0
    while items := list(reader.read(limit)):
        for item in items:
            counted += item.count if isinstance(item, Lines) else isinstance(item, Entry)
            tracker.feed(item)
    assert counted == len(lines)
    tallies = {record.invocation_id: record.decoding for record in tracker.records()}
    for run in RUNS:
        speeds = [
            float(str(fields["MESSAGE"]).partition("(token/s): ")[2].split(",")[0])
            for _, fields in lines
            if fields["_SYSTEMD_INVOCATION_ID"] == run and "Decode batch" in str(fields["MESSAGE"])
        ]
        assert tallies[run].lines == len(speeds)
        assert tallies[run].throughput["1"].best == max(speeds)
