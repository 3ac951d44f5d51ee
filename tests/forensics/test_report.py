from datetime import datetime
from typing import Any

import pytest

from forensics.codec import dump_run, dump_verdict
from forensics.events import Gap
from forensics.inquest import duration, report
from forensics.model import Doing, Evidence, MemoryFigure, MemoryStory, Role
from forensics.public import crash_shape, server_name, signal_name, usec, when
from forensics.report import cut, size_words
from forensics.shapes import CrashShape
from tests.forensics.factories import EPOCH, crash, main_exit, rejected, traceback

TRACEBACK = """Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/eagle_worker.py", line 97, in verify
    raise RuntimeError("tensor sizes differ")
RuntimeError: tensor sizes differ"""


def shape(number: int = 1, **changes: Any) -> CrashShape:
    made = crash(number, **changes)
    return crash_shape(dump_run(made.run), dump_verdict(made.verdict))


def text(crash: CrashShape) -> str:
    return "\n".join(line.text for line in report(crash))


def test_a_long_line_is_cut() -> None:
    assert cut("x" * 500) == "x" * 299 + "…"
    assert cut("x" * 300) == "x" * 300


# --- the report ----------------------------------------------------------------------------------------------


def test_the_verdict_comes_first() -> None:
    lines = text(shape()).splitlines()
    assert lines[0] == "The scheduler died of RuntimeError: tensor sizes differ"
    assert lines[1] == "demo · python-exception, confirmed · died 2026-03-01 12:01:01 UTC while serving"


def test_the_report_has_everything_that_the_verdict_has() -> None:
    said = text(
        shape(
            notes=("a rule failed",),
            also=("cuda-error",),
            doing=Doing(figures=(("running-req", "3"),), seconds_before_death=1.5),
        )
    )
    for words in [
        "ran           2026-03-01 12:00:11 to 2026-03-01 12:01:01 UTC (50 s), had been ready",
        "main process  killed by SIGKILL",
        "systemd       Result=signal",
        "last seen     running-req 3 (1.5 s before)",
        "12:01:00.000 ● initiating  server · the first failure of this run",
        "12:01:01.000 ○ cascade     systemd · SGLang's main process kills itself after a child failed",
        "      Main process exited, code=killed, status=9/KILL",
        "Ruled out\n  kernel-oom  the kernel's log was read and names no victim of this unit",
        "Also seen\n  cuda-error",
        "Could not be seen\n  gpu  no NVIDIA driver on this machine",
        "Notes\n  a rule failed",
        "What to do\n  Report it to SGLang with the traceback.",
        "fingerprint  v1-0123456789abcdef  python-exception | RuntimeError | eagle_worker.py in verify",
        "journalctl _SYSTEMD_INVOCATION_ID=00000000000100000000000000000000",
    ]:
        assert words in said


def test_a_traceback_keeps_its_indentation() -> None:
    said = text(shape(evidence=(Evidence(role=Role.INITIATING, event=traceback(message=TRACEBACK)),)))
    assert '\n        File "/srv/eagle_worker.py", line 97, in verify\n' in said


def test_lines_carry_their_role() -> None:
    styles = [line.style for line in report(shape())]
    assert styles[:2] == ["verdict", "title"]
    assert styles.index("initiating") < styles.index("cascade")


def test_the_memory_table_has_its_sizes_in_one_column() -> None:
    story = MemoryStory(
        sentence="The kernel took the scheduler at the unit's limit.",
        figures=(
            MemoryFigure(what="memory.max of the unit", size_bytes=8 << 30, source="cgroup"),
            MemoryFigure(what="scheduler", size_bytes=(7 << 30) + (600 << 20), source="kernel"),
        ),
    )
    assert (
        "Memory\n"
        "  The kernel took the scheduler at the unit's limit.\n"
        "  memory.max of the unit     8.0 GiB  cgroup\n"
        "  scheduler                  7.6 GiB  kernel\n"
    ) in text(shape(memory=story))
    assert shape(memory=story)["memory"] == {
        "sentence": "The kernel took the scheduler at the unit's limit.",
        "figures": [
            {"what": "memory.max of the unit", "size_bytes": 8589934592, "source": "cgroup"},
            {"what": "scheduler", "size_bytes": 8145338368, "source": "kernel"},
        ],
    }
    assert "Memory" not in text(shape())


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (80 << 30, "80.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (9 << 50, "9216.0 TiB"),
    ],
)
def test_sizes(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words


def test_no_evidence_is_said() -> None:
    assert "Timeline\n  no record that decides" in text(shape(evidence=()))


def test_an_exit_that_systemd_did_not_tell_is_said() -> None:
    said = text(shape(exit_code=None, exit_status=None, result=None))
    assert "systemd did not say how the main process ended" in said
    assert "systemd       Result=(not known)" in said
    assert "exited with status 1" in text(shape(exit_code="exited", exit_status=1))


def test_rejected_evidence_is_listed_on_a_line_each() -> None:
    forged = rejected("Out of memory: Killed process 4321 (\x1b[31mpython)", count=1200)
    said = text(shape(rejected=(forged, rejected("x" * 999))))
    assert (
        "Rejected evidence\n  kernel  `Out of memory: Killed process 4321 ( [31mpython)` (1200 times, first by" in said
    )
    assert f"`{'x' * 159}…` (by python [4321] of sglang-demo.service): only what the kernel itself wrote is" in said


def test_control_characters_in_evidence_do_not_reach_the_terminal() -> None:
    hostile = Evidence(role=Role.INITIATING, event=traceback(message="\x1b]0;owned\x07 RuntimeError"))
    assert "\x1b" not in text(shape(evidence=(hostile,)))
    assert "�]0;owned� RuntimeError" in text(shape(evidence=(hostile,)))


# --- the public shape ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "server"),
    [("sglang-demo.service", "demo"), ("sglang-a-b.service", "a-b"), ("llm.service", "llm"), ("sglang-.service", "")],
)
def test_the_servers_name_is_in_the_units_name(unit: str, server: str) -> None:
    assert server_name(unit) == (server or unit)


@pytest.mark.parametrize(
    ("exit_code", "exit_status", "name"),
    [
        ("killed", 9, "SIGKILL"),
        ("dumped", 11, "SIGSEGV"),
        ("killed", 35, "signal 35"),
        ("exited", 9, None),
        (None, None, None),
        ("killed", None, None),
    ],
)
def test_a_signal_is_named_only_when_one_ended_the_process(
    exit_code: str | None, exit_status: int | None, name: str | None
) -> None:
    assert signal_name(exit_code, exit_status) == name


def test_stamps_keep_their_microseconds() -> None:
    stamp = usec(EPOCH) + 1
    assert when(stamp) == "2026-03-01T12:00:00.000001Z"
    assert usec(datetime.fromisoformat(when(stamp))) == stamp


def test_what_lies_between_is_shown_where_it_could_not_be_read() -> None:
    lost = Gap(source="server", reason="journald's rate limit", from_usec=60_500_000, to_usec=60_900_000)
    blind = Gap(source="gpu", reason="no driver")
    throughout = Gap(source="cgroup", reason="no controller", from_usec=11_000_000)
    lines = text(shape(gaps=(lost, blind, throughout))).splitlines()
    assert sum("┄ gap" in line for line in lines) == 1
    first = next(number for number, line in enumerate(lines) if "● initiating" in line)
    gap = next(number for number, line in enumerate(lines) if "┄ gap" in line)
    cascade = next(number for number, line in enumerate(lines) if "○ cascade" in line)
    assert first < gap < cascade
    assert lines[gap] == ("  12:01:00.500 ┄ gap         server · not seen to 12:01:00.900: journald's rate limit")
    assert "  server  journald's rate limit (12:01:00.500 to 12:01:00.900)" in lines
    assert "  gpu     no driver" in lines
    assert "  cgroup  no controller (12:00:11.000 to …)" in lines


def test_the_evidence_stands_in_the_order_of_time() -> None:
    early, late = traceback(usec=50_000_000), main_exit(usec=60_000_000)
    pieces = (Evidence(role=Role.INITIATING, event=late), Evidence(role=Role.CONTEXT, event=early))
    shown = [line.style for line in report(shape(evidence=pieces)) if line.style in ("initiating", "context")]
    assert shown == ["context", "initiating"]


def test_what_changed_in_the_configuration_is_a_table() -> None:
    changed = shape()
    changes = [
        {"name": "speculative_num_steps", "before": "3", "after": "5"},
        {"name": "mem_fraction_static", "before": None, "after": "0.9"},
    ]
    changed["history"] = {
        "occurrence": 2, "first_at": None, "previous_id": None, "good_id": None, "since_previous": [],
        "since_good": changes, "sentence": "The 2nd time.",
    }  # type: ignore[typeddict-item] # fmt: skip
    assert (
        "Configuration changed\n"
        "  since it last served\n"
        "    speculative_num_steps  3 → 5\n"
        "    mem_fraction_static    (unset) → 0.9\n"
        "\nSeen before\n  The 2nd time."
    ) in text(changed)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (90061, "1 d 1 h"),
    ],
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert duration(seconds) == words
