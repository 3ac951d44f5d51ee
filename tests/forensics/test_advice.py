"""Advice: with this run's numbers, and one way only."""

from collections.abc import Callable
from io import BytesIO

import pytest

from forensics.events import Gap
from forensics.sources.export import read_json
from tests.cases import build
from tests.cases.replay import replay
from tests.cases.story import Journal, Life


def advice(story: Callable[[Journal, Life], object]) -> str:
    journal = Journal(name="advice")
    life = journal.life()
    story(journal, life)
    return " ".join(replay(read_json(BytesIO(journal.dump().encode())), {life.unit})[0].verdict.advice)


def of_case(path: str) -> str:
    journal = Journal(name=path)
    build.CASES[path](journal)
    unit = journal.expected[0].unit
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in journal.gaps]
    return " ".join(replay(read_json(BytesIO(journal.dump().encode())), {unit}, gaps)[0].verdict.advice)


@pytest.mark.parametrize(
    ("path", "says", "says_not"),
    [
        ("kernel-oom/memcg-main", "memory_max in the spec (it was 24.0 GiB)", "MAX_JOBS"),
        ("kernel-oom/limit-of-the-slice", "limit of /sglang.slice (it was 24.0 GiB)", "in the spec"),
        ("kernel-oom/compiler-of-a-kernel", "MAX_JOBS=2", "mem_fraction_static"),
        ("kernel-oom/global-victim-not-hog", "whole host was short", "memory_max"),
        ("cuda-oom/runtime-other-process", "other process on that GPU", "mem_fraction_static"),
        ("cuda-oom/weights", "weights do not fit", "Lower mem_fraction_static"),
        ("cuda-oom/graph-capture", "Lower mem_fraction_static", "Raise"),
        ("cuda-oom/near-miss-increase-mem-fraction", "Raise mem_fraction_static", "Lower"),
        ("configuration-error/max-running-request-is-zero", "Raise mem_fraction_static", "Lower"),
        ("configuration-error/port-in-use", "who holds the port", "mem_fraction_static"),
        ("cuda-error/no-kernel-image", "builds of torch", "CUDA_LAUNCH_BLOCKING"),
        ("cuda-error/illegal-access", "CUDA_LAUNCH_BLOCKING=1", "driver"),
        ("gpu-fault/contained-ecc", "Restart the server", "Do not restart"),
        ("gpu-fault/fallen-off-the-bus", "power", "restart the server"),
        ("unexplained-kill/kernel-log-unreadable", "kernel log readable", "inquest-sigtrace"),
        ("exec-failure/dependency", "list-dependencies", "path"),
    ],
)
def test_the_step_fits_the_cause(path: str, says: str, says_not: str) -> None:
    told = of_case(path)
    assert says in told
    assert says_not not in told


def test_the_setting_s_value_is_named() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up(args="mem_fraction_static=0.93").scheduler_raised(
            "a.py:1 in f", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total "
            "capacity of 79.25 GiB of which 12.00 MiB is free."
        ).self_kill()  # fmt: skip

    assert "mem_fraction_static (it was 0.93)" in advice(story)
