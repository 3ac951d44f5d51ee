"""The time of a sample, on the clocks that the journal uses."""

import time
from functools import cache
from pathlib import Path

from forensics.events import Record


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")


def monotonic_usec() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def sampled_now(source: str, ref: str, message: str) -> Record:
    """The record of something that was looked at just now."""
    return Record(
        source=source,
        ref=ref,
        boot_id=boot_id(),
        monotonic_usec=monotonic_usec(),
        realtime_usec=time.time_ns() // 1000,
        message=message,
    )
