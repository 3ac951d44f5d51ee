"""Entries from saved exports: binary values, damage, split lines, and the forms of JSON."""

import io
import json

from forensics.entry import Entry
from forensics.sources.export import read_export, read_json

HEAD = b"__CURSOR=s=1;i=%d\n__REALTIME_TIMESTAMP=1772366400000%03d\n__MONOTONIC_TIMESTAMP=7000%03d\n_BOOT_ID=b0\n"


def head(number: int) -> bytes:
    return HEAD % (number, number, number)


def sized(name: bytes, value: bytes) -> bytes:
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def exported(*entries: bytes) -> list[Entry]:
    return list(read_export(io.BytesIO(b"".join(entry + b"\n" for entry in entries))))


def test_text_and_binary_fields() -> None:
    first, second = exported(
        head(1) + b"MESSAGE=one = two\n_PID=41\n",
        head(2) + sized(b"MESSAGE", b"a\nMESSAGE=b\n\n\xff\xfe") + b"_PID=42\n",
    )
    assert (first.message, first.pid, first.cursor) == ("one = two", 41, "s=1;i=1")
    assert (first.boot_id, first.monotonic_usec, first.realtime_usec) == ("b0", 7_000_001, 1_772_366_400_000_001)
    assert (second.message, second.pid) == ("a\nMESSAGE=b\n\n\ufffd\ufffd", 42)
    assert not any(name.startswith("__") for name in first.fields)


def test_the_first_of_several_values_counts() -> None:
    (entry,) = exported(head(1) + b"MESSAGE=first\nMESSAGE=second\n")
    assert entry.message == "first"


def test_kernel_records_have_the_kernel_s_own_stamp() -> None:
    kernel = b"_TRANSPORT=kernel\n_SOURCE_MONOTONIC_TIMESTAMP=6123456\nMESSAGE=x\n"
    server = b"_TRANSPORT=stdout\n_SOURCE_MONOTONIC_TIMESTAMP=6123456\nMESSAGE=x\n"
    first, second = exported(head(1) + kernel, head(2) + server)
    assert (first.monotonic_usec, second.monotonic_usec) == (6_123_456, 7_000_002)


def test_a_core_s_bytes_are_left_out() -> None:
    (entry,) = exported(head(1) + sized(b"COREDUMP", bytes(3_000_000)) + b"COREDUMP_PID=9\n")
    assert (entry.get("COREDUMP"), entry.get_int("COREDUMP_PID")) == ("", 9)


def test_a_huge_value_is_cut_and_what_follows_is_read() -> None:
    entries = exported(head(1) + sized(b"MESSAGE", b"y" * 3_000_000) + b"_PID=9\n", head(2) + b"MESSAGE=next\n")
    assert [len(entries[0].message), entries[0].pid, entries[1].message] == [1 << 20, 9, "next"]


def test_a_huge_line_is_cut_and_what_follows_is_read() -> None:
    entries = exported(head(1) + b"MESSAGE=" + b"y" * 3_000_000 + b"\n_PID=9\n", head(2) + b"MESSAGE=next\n")
    assert len(entries[0].message) < 1 << 20
    assert [entries[0].pid, entries[1].message] == [9, "next"]


def test_a_torn_file_gives_what_was_whole() -> None:
    whole = head(1) + b"MESSAGE=one\n\n"
    for torn in (head(2) + b"MESS", head(2) + sized(b"MESSAGE", b"abcdef")[:-4], head(2) + b"MESSAGE\n\x01\x00"):
        assert [entry.message for entry in read_export(io.BytesIO(whole + torn))] == ["one"]


def test_the_last_entry_may_lack_its_empty_line() -> None:
    assert [entry.message for entry in read_export(io.BytesIO(head(1) + b"MESSAGE=one\n"))] == ["one"]


def test_an_entry_without_time_is_passed_over() -> None:
    assert exported(b"MESSAGE=lost\n", b"__REALTIME_TIMESTAMP=x\nMESSAGE=lost\n") == []


def part(number: int, text: bytes, pid: int, line_break: bytes = b"") -> bytes:
    broken = b"_LINE_BREAK=" + line_break + b"\n" if line_break else b""
    return head(number) + b"_STREAM_ID=5e\n_PID=%d\nMESSAGE=%b\n" % (pid, text) + broken


def test_split_lines_become_whole_again() -> None:
    entries = exported(
        part(1, b"aaa", 41, b"line-max"),
        part(2, b"other", 42),
        part(3, b"bbb", 41, b"line-max"),
        part(4, b"c", 41),
        part(5, b"next", 41),
        part(6, b"cut ", 43, b"line-max"),
    )
    assert [(entry.message, entry.cursor) for entry in entries] == [
        ("other", "s=1;i=2"),
        ("aaabbbc", "s=1;i=1"),
        ("next", "s=1;i=5"),
        ("cut ", "s=1;i=6"),
    ]


def json_lines(*records: object) -> list[Entry]:
    return list(read_json(io.BytesIO(b"".join(json.dumps(record).encode() + b"\n" for record in records))))


def test_the_forms_of_json() -> None:
    stamp = {"__REALTIME_TIMESTAMP": "1772366400000001", "__MONOTONIC_TIMESTAMP": "7000001", "_BOOT_ID": "b0"}
    text, octets, twice, cut = json_lines(
        {**stamp, "MESSAGE": "ein Wort: ü"},
        {**stamp, "MESSAGE": [104, 105, 255]},
        {**stamp, "MESSAGE": ["first", "second"]},
        {**stamp, "MESSAGE": None, "_PID": "7"},
    )
    assert [entry.message for entry in (text, octets, twice, cut)] == ["ein Wort: ü", "hi\ufffd", "first", ""]
    assert cut.pid == 7
    assert text.monotonic_usec == 7_000_001


def test_lines_that_are_no_json_object_are_passed_over() -> None:
    file = io.BytesIO(b'-- Logs begin --\n[1]\n{"__REALTIME_TIMESTAMP":"5","MESSAGE":"x"}\n{"__REAL')
    assert [entry.message for entry in read_json(file)] == ["x"]
