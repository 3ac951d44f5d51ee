"""Lines → a traceback, a faulthandler dump, a C++ abort."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.sources.tracebacks import TRACEBACK, parse_fatal_frames, parse_traceback, parse_what

FRAME = '  File "/a/b.py", line 12, in run'


def test_source_lines_and_markers_are_no_exception() -> None:
    parsed = parse_traceback([TRACEBACK, FRAME, "    raise KeyError(x)", "    ^^^^^^^^", "KeyError: 'x'"])
    assert parsed is not None
    assert (parsed.exception, parsed.text, parsed.exception_line) == ("KeyError", "'x'", 4)
    assert parsed.frames == ("/a/b.py:12 in run",)


def test_an_exception_without_words() -> None:
    parsed = parse_traceback([TRACEBACK, FRAME, "EOFError"])
    assert parsed is not None
    assert (parsed.exception, parsed.text) == ("EOFError", "")


def test_a_text_of_several_lines_is_kept_up_to_a_dozen() -> None:
    parsed = parse_traceback([TRACEBACK, FRAME, "torch.AcceleratorError: CUDA error: x", *["more"] * 50])
    assert parsed is not None
    assert parsed.text.count("\n") == 11


def test_a_chain_names_its_first_cause_first() -> None:
    link = ["", "During handling of the above exception, another exception occurred:", "", TRACEBACK, FRAME]
    parsed = parse_traceback([TRACEBACK, FRAME, "KeyError: 1", *link, "OSError: 2", *link, "RuntimeError: 3"])
    assert parsed is not None
    assert parsed.exception == "RuntimeError"
    assert parsed.chained == ("KeyError: 1", "OSError: 2")


def test_a_group_is_read_without_its_bars() -> None:
    parsed = parse_traceback(
        ["  + Exception Group Traceback (most recent call last):", '  |   File "/a/b.py", line 12, in run',
         "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)"]
    )  # fmt: skip
    assert parsed is not None
    assert parsed.exception == "ExceptionGroup"


def test_a_traceback_that_was_cut_off_is_none() -> None:
    assert parse_traceback([TRACEBACK, FRAME]) is None
    assert parse_traceback([TRACEBACK]) is None


def test_only_the_thread_that_died_counts() -> None:
    lines = [
        "Fatal Python error: Aborted",
        "",
        "Thread 0x1 (most recent call first):",
        '  File "a.py", line 1 in f',
        "",
        "Current thread 0x2 (most recent call first):",
        '  File "b.py", line 2 in g',
        '  File "c.py", line 3 in h',
    ]
    assert parse_fatal_frames(lines) == ("b.py:2 in g", "c.py:3 in h")


def test_what() -> None:
    assert parse_what(["terminate called", "  what():  CUDA error: x"]) == "CUDA error: x"
    assert parse_what(["terminate called"]) == ""


pieces = st.sampled_from([TRACEBACK, FRAME, "KeyError: 1", "", "    x", "  | a", "OSError", "ü: x",
                          "During handling of the above exception, another exception occurred:"])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces | st.text(max_size=30), min_size=1, max_size=30))
def test_anything_is_read_or_refused(lines: list[str]) -> None:
    parsed = parse_traceback(lines)
    if parsed is not None:
        assert 0 < parsed.exception_line < len(lines)
        assert len(parsed.frames) <= 40
    parse_fatal_frames(lines)
    parse_what(lines)


def test_time_is_linear() -> None:
    began = time.process_time()
    parse_traceback([TRACEBACK, *[FRAME] * 50_000, "A" * 200_000 + ": x", *["b." * 50_000] * 10])
    parse_traceback([TRACEBACK, *['  File "' + "a" * 100_000] * 20, "x." * 200_000])
    parse_traceback(["Exception Group Traceback", *["  | " * 20_000] * 20, "+-+" * 50_000])
    assert time.process_time() - began < 3
