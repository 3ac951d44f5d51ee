"""The live reader on real journal files: nothing lost, nothing twice, in order, whatever the files do."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from forensics.entry import Entry
from forensics.errors import SourceError
from forensics.events import Gap
from forensics.sources import coredump, losses, remains, systemd
from forensics.sources.journal import JournalReader, Lines, readable
from forensics.sources.journal_lines import TALLIED_A_SECOND
from forensics.sources.journal_place import Position
from forensics.sources.journal_streams import Item
from forensics.tracker import Tracker
from tests.forensics.sources.journals import BOOT, REALTIME_USEC, Fields, write_journal

UNIT, OTHER = "sglang-demo.service", "sglang-second.service"
FIRST, SECOND = "1c" * 16, "2c" * 16
UNITS = ["sglang-*.service"]

BATCH = "[2026-03-01 12:00:00 TP0] Decode batch, #running-req: 1, #token: {}, token usage: 0.10"
ACCESS = '[2026-03-01 12:00:00] INFO:     127.0.0.1:40{} - "POST /v1/completions HTTP/1.1" 200 OK'


def line(message: str | bytes, invocation_id: str = FIRST, unit: str = UNIT, pid: int = 4321, **fields: str) -> Fields:
    return {
        "_TRANSPORT": "stdout",
        "_STREAM_ID": "5e" * 16,
        "_PID": str(pid),
        "_COMM": "python3",
        "_SYSTEMD_UNIT": unit,
        "_SYSTEMD_INVOCATION_ID": invocation_id,
        **fields,
        "MESSAGE": message,
    }


def pid1(message: str, unit: str = UNIT, invocation_id: str = FIRST, **fields: str) -> Fields:
    own = {"_TRANSPORT": "journal", "_PID": "1", "_SYSTEMD_UNIT": "init.scope", "UNIT": unit}
    return {**own, "INVOCATION_ID": invocation_id, **fields, "MESSAGE": message}


def kernel(message: str, stamp_usec: int | None = None) -> Fields:
    stamp = {} if stamp_usec is None else {"_SOURCE_MONOTONIC_TIMESTAMP": str(stamp_usec)}
    return {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", **stamp, "MESSAGE": message}


def numbered(fields: Iterable[Fields], start: int = 1_000_000) -> list[tuple[int, Fields]]:
    return [(start + 1000 * number, each) for number, each in enumerate(fields)]


def read_all(reader: JournalReader, limit: int = 20_000) -> list[Item]:
    items: list[Item] = []
    while reader.wait(0):
        items.extend(reader.read(limit))
    return items


def said(items: Iterable[Item]) -> list[str]:
    """Messages of entries, `N lines` for counts, reasons of gaps."""
    return [
        item.message if isinstance(item, Entry) else f"{item.count} lines" if isinstance(item, Lines) else item.reason
        for item in items
    ]


def test_what_matters_comes_in_order_and_the_rest_is_counted(tmp_path: Path) -> None:
    write_journal(
        tmp_path / "system.journal",
        numbered(
            [
                pid1("Starting demo"),
                line("server_args=…"),
                *(line(ACCESS.format(number)) for number in range(3)),
                line(BATCH.format(1)),
                line(BATCH.format(2)),
                line(ACCESS.format(9)),
                kernel("eth0: link up"),
                kernel("Out of memory: Killed process 4321 (python3) total-vm:1kB, anon-rss:1kB", 1_000_500),
                {"_TRANSPORT": "syslog", "_SYSTEMD_UNIT": "cron.service", "_PID": "9", "MESSAGE": "cron"},
                line("Traceback (most recent call last):"),
                pid1("Main process exited", EXIT_STATUS="9"),
            ]
        ),
    )
    items = read_all(JournalReader(UNITS, path=tmp_path))
    assert said(items) == [
        "Starting demo",
        "server_args=…",
        "5 lines",
        BATCH.format(2),
        "Out of memory: Killed process 4321 (python3) total-vm:1kB, anon-rss:1kB",
        "Traceback (most recent call last):",
        "Main process exited",
    ]
    assert items[2] == Lines(
        unit=UNIT,
        invocation_id=FIRST,
        boot_id=BOOT,
        count=5,
        first_monotonic_usec=1_002_000,
        last_monotonic_usec=1_007_000,
        last_realtime_usec=REALTIME_USEC + 1_007_000,
        decodes=(BATCH.format(1),),
    )
    batch, oom, exited = items[3], items[4], items[6]
    assert isinstance(batch, Entry)
    assert (batch.monotonic_usec, batch.pid, batch.get("_COMM")) == (1_006_000, 4321, "python3")
    assert isinstance(oom, Entry)
    assert oom.monotonic_usec == 1_000_500
    assert isinstance(exited, Entry)
    assert (exited.get_int("EXIT_STATUS"), exited.get("INVOCATION_ID")) == (9, FIRST)


def test_counted_lines_of_two_runs_are_told_apart(tmp_path: Path) -> None:
    entries = [*(line(ACCESS.format(1)) for _ in range(7)), *(line(ACCESS.format(2), SECOND) for _ in range(300))]
    write_journal(tmp_path / "system.journal", numbered(entries))
    counts = [item for item in read_all(JournalReader(UNITS, path=tmp_path)) if isinstance(item, Lines)]
    assert [(item.invocation_id, item.count) for item in counts] == [(FIRST, 7), (SECOND, 300)]
    assert [(item.first_monotonic_usec, item.last_monotonic_usec) for item in counts] == [
        (1_000_000, 1_006_000),
        (1_007_000, 1_306_000),
    ]


def test_of_one_second_only_so_many_decode_lines_go_into_the_tally(tmp_path: Path) -> None:
    first, second = (BATCH.replace("12:00:00", f"12:00:0{at}") for at in (0, 1))
    wild = [line(first.format(number)) for number in range(3 * TALLIED_A_SECOND)]
    access = line(ACCESS.replace("12:00:00", "12:00:01").format(1))
    ordinary = [access, *(line(second.format(number)) for number in range(3)), access]
    write_journal(tmp_path / "system.journal", numbered([*wild, *ordinary, line("fact"), *ordinary]))
    (counted, sample, *later) = read_all(JournalReader(UNITS, path=tmp_path))
    assert isinstance(counted, Lines)
    assert isinstance(sample, Entry)
    assert counted.decodes == (
        *(first.format(number) for number in range(TALLIED_A_SECOND)),
        *(second.format(number) for number in range(2)),  # the third is the sample
    )
    assert sample.message == second.format(2)
    assert counted.count == len(wild) + len(ordinary) - 1
    # The same second goes on behind the fact, and so does its count.
    assert [item.decodes for item in later if isinstance(item, Lines)] == [
        tuple(second.format(number) for number in range(2))
    ]


def test_two_units_are_told_apart_and_merged(tmp_path: Path) -> None:
    entries = [line(f"line {number}", unit=(UNIT, OTHER)[number % 2]) for number in range(20)]
    write_journal(tmp_path / "system.journal", numbered(entries))
    items = read_all(JournalReader(UNITS, path=tmp_path))
    assert said(items) == [f"line {number}" for number in range(20)]


def busy_journal(path: Path) -> None:
    """Three runs of two units, with records of every kind between boring lines."""
    entries: list[Fields] = []
    for number in range(150):
        unit, invocation_id = (OTHER, "3c" * 16) if number % 3 else (UNIT, FIRST if number < 80 else SECOND)
        boring = (BATCH, ACCESS)[number % 2].format(number)
        entries.append(line(f"fact {number}" if number % 17 == 0 else boring, invocation_id, unit))
        if number % 50 == 0:
            entries.append(pid1(f"record {number}", unit, invocation_id))
        if number % 90 == 0:
            entries.append(kernel(f"NVRM: Xid (PCI:0000:3b:00): {number}, x"))
    write_journal(path, numbered(entries))


def accounted(items: Iterable[Item]) -> tuple[list[str], dict[str, int]]:
    """Everything but the samples, and the lines of each run, the samples among them."""
    messages: list[str] = []
    lines: dict[str, int] = {}
    for item in items:
        if isinstance(item, Lines):
            lines[item.invocation_id] = lines.get(item.invocation_id, 0) + item.count
        elif isinstance(item, Entry) and "Decode batch" in item.message:
            invocation_id = item.get("_SYSTEMD_INVOCATION_ID")
            lines[invocation_id] = lines.get(invocation_id, 0) + 1
        else:
            messages.extend(said([item]))
    return messages, lines


@pytest.mark.parametrize("limit", [1, 3, 50, 20_000])
def test_resumed_at_every_step_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, limit: int) -> None:
    busy_journal(tmp_path / "system.journal")
    whole = accounted(read_all(JournalReader(UNITS, path=tmp_path)))
    assert len(whole[0]) == 9 + 3 + 2
    assert sum(whole[1].values()) == 150 - 9
    pieces: list[Item] = []
    cursor: str | None = None
    while True:
        reader = JournalReader(UNITS, path=tmp_path, cursor=cursor)
        if not reader.wait(0):
            break
        pieces.extend(reader.read(limit))
        cursor = reader.cursor
        reader.close()
    messages, lines = accounted(pieces)
    assert lines == whole[1]
    assert sorted(messages) == sorted(whole[0])
    assert messages == whole[0]


def test_a_plain_cursor_of_journald_is_understood(tmp_path: Path) -> None:
    write_journal(tmp_path / "system.journal", numbered([pid1("one"), pid1("two"), line("three"), pid1("four")]))
    items = read_all(JournalReader(UNITS, path=tmp_path))
    assert isinstance(items[1], Entry)
    # The unit has no place of its own in it, so its lines of the last minute come again rather than not at all.
    assert said(read_all(JournalReader(UNITS, path=tmp_path, cursor=items[1].cursor))) == ["three", "four"]


def test_reading_begins_at_a_time(tmp_path: Path) -> None:
    write_journal(tmp_path / "system.journal", numbered([pid1("old"), line("old"), pid1("new"), line("new")]))
    reader = JournalReader(UNITS, path=tmp_path, since_realtime_usec=REALTIME_USEC + 1_002_000)
    assert said(read_all(reader)) == ["new", "new"]


def test_a_new_unit_s_first_lines_are_not_lost(tmp_path: Path) -> None:
    write_journal(tmp_path / "system.journal", numbered([pid1("Started demo"), line("hello")]))
    reader = JournalReader(UNITS, path=tmp_path)
    assert said(read_all(reader)) == ["Started demo", "hello"]
    new = [line("first of all", SECOND, OTHER), pid1("Started second", OTHER, SECOND), line("next", SECOND, OTHER)]
    write_journal(tmp_path / "system@1.journal", numbered(new, start=2_000_000))
    assert reader.wait(5)
    assert said(read_all(reader)) == ["first of all", "Started second", "next"]


def test_a_unit_of_which_pid_1_says_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_journal(tmp_path / "system.journal", numbered([line("hello")]))
    monkeypatch.setattr("forensics.sources.journal._SURVEY_SECONDS", 0.0)
    reader = JournalReader(UNITS, path=tmp_path)
    assert said(read_all(reader)) == ["hello"]
    write_journal(tmp_path / "system@1.journal", numbered([line("still here", SECOND, OTHER)], start=2_000_000))
    assert reader.wait(5)
    assert said(read_all(reader)) == ["still here"]


def test_files_that_come_and_go(tmp_path: Path) -> None:
    def one(number: int) -> None:
        write_journal(tmp_path / f"system@{number}.journal", numbered([line(f"{number}")], start=number * 1_000_000))

    one(1)
    reader = JournalReader(UNITS, path=tmp_path)
    assert said(read_all(reader)) == ["1"]
    for number in range(2, 8):
        one(number)
        (tmp_path / f"system@{number - 1}.journal").unlink()
        assert reader.wait(5)
        assert said(read_all(reader)) == [str(number)]


def test_many_units_keep_few_readers_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.sources.journal._MOST_READERS", 2)
    units = [f"sglang-{number}.service" for number in range(6)]

    def write(name: str, start: int) -> None:
        entries = [each for unit in units for each in (line(f"{name} {unit}", unit=unit), pid1(f"of {unit}", unit))]
        write_journal(tmp_path / f"{name}.journal", numbered(entries, start))

    write("first", 1_000_000)
    reader = JournalReader(UNITS, path=tmp_path)
    assert sorted(said(read_all(reader))) == sorted([*(f"first {unit}" for unit in units), *(f"of {u}" for u in units)])
    assert len(reader._lines) == 2
    write("second", 9_000_000)
    again = JournalReader(UNITS, path=tmp_path, cursor=reader.cursor)
    for resumed in (reader, again):
        assert resumed.wait(5)
        lines = [text for text in said(read_all(resumed)) if not text.startswith("of ")]
        assert sorted(lines) == [f"second {unit}" for unit in units]


def test_a_lost_place_is_a_gap_of_every_recorded_source(tmp_path: Path) -> None:
    write_journal(tmp_path / "system@1.journal", numbered([pid1("one"), line("two")]))
    reader = JournalReader(UNITS, path=tmp_path)
    read_all(reader)
    cursor = reader.cursor
    reader.close()
    (tmp_path / "system@1.journal").unlink()
    write_journal(tmp_path / "system@2.journal", numbered([pid1("three"), line("four")], start=9_000_000))
    items = read_all(JournalReader(UNITS, path=tmp_path, cursor=cursor))
    gaps = [item for item in items if isinstance(item, Gap)]
    assert {gap.source for gap in gaps} >= {"kernel", "systemd", "server", "coredump", "oomkillers", "remains"}
    assert {(gap.from_usec, gap.to_usec) for gap in gaps} == {(1_001_000, 9_000_000)}
    assert said(items[len(gaps) :]) == ["three", "four"]


def test_a_place_that_is_still_there_is_no_gap(tmp_path: Path) -> None:
    busy_journal(tmp_path / "system.journal")
    reader = JournalReader(UNITS, path=tmp_path)
    read_all(reader)
    assert read_all(JournalReader(UNITS, path=tmp_path, cursor=reader.cursor)) == []


def test_d2_what_journald_dropped_is_a_gap_of_those_whom_it_concerns(tmp_path: Path) -> None:
    """The kernel's records are everybody's; a unit's lines are its own, also where another server is watched."""
    driver = {"_TRANSPORT": "driver", "_SYSTEMD_UNIT": "systemd-journald.service"}
    dropped = {**driver, "MESSAGE_ID": losses.JOURNAL_DROPPED, "N_DROPPED": "12"}
    entries: list[Fields] = [
        pid1("Starting demo", MESSAGE_ID=systemd.UNIT_STARTING),
        pid1("Starting second", OTHER, SECOND, MESSAGE_ID=systemd.UNIT_STARTING),
        {**dropped, "OBJECT_SYSTEMD_UNIT": UNIT, "MESSAGE": f"Suppressed 12 messages from {UNIT}"},
        {**dropped, "OBJECT_SYSTEMD_UNIT": "cron.service", "MESSAGE": "Suppressed 12 messages from cron.service"},
        {**driver, "MESSAGE_ID": losses.JOURNAL_MISSED, "MESSAGE": "Missed 7 kernel messages"},
        {**driver, "MESSAGE": "Journal started"},
    ]
    write_journal(tmp_path / "system.journal", numbered(entries))
    items = read_all(JournalReader(UNITS, path=tmp_path))
    assert said(items[2:]) == [f"Suppressed 12 messages from {UNIT}", "Missed 7 kernel messages"]
    tracker = Tracker(UNITS)
    for item in items:
        tracker.feed(item)
    server = Gap(source="server", reason=f"journald's rate limit: {said(items)[2]}", to_usec=1_002_000)
    kernel_ = Gap(source="kernel", reason="Missed 7 kernel messages", to_usec=1_004_000)
    gaps = {record.invocation_id: record.gaps for record in tracker.records()}
    assert gaps == {FIRST: [server, kernel_], SECOND: [kernel_]}


def test_of_other_units_only_what_concerns_all(tmp_path: Path) -> None:
    entries = [
        pid1("cron starts", "cron.service"),
        pid1("a process of cron was killed", "cron.service", MESSAGE_ID=systemd.UNIT_OUT_OF_MEMORY),
        pid1("in the slice", "sglang.slice", MESSAGE_ID=systemd.UNIT_OUT_OF_MEMORY),
        pid1("Reached target reboot.target", "reboot.target"),
        pid1("Shutting down.", ""),
    ]
    write_journal(tmp_path / "system.journal", numbered(entries))
    read = said(read_all(JournalReader(UNITS, path=tmp_path)))
    assert read == ["in the slice", "Reached target reboot.target", "Shutting down."]


def test_a_record_of_pid_1_s_kind_by_another_service_is_read_where_it_names_a_watched_unit(tmp_path: Path) -> None:
    failed = {"MESSAGE_ID": systemd.UNIT_FAILURE_RESULT, "UNIT_RESULT": "oom-kill"}
    entries = [
        line("forged", "", "evil.service", 77, UNIT=UNIT, **failed),
        line("about another unit", "", "evil.service", 77, UNIT="cron.service", **failed),
        line("of a user's manager", "", "user@1000.service", 900, USER_UNIT=UNIT, **failed),
    ]
    write_journal(tmp_path / "system.journal", numbered(entries))
    assert said(read_all(JournalReader(UNITS, path=tmp_path))) == ["forged"]


def test_a_record_that_two_places_would_show_comes_once(tmp_path: Path) -> None:
    forged = line("Process 1 (systemd) dumped core", MESSAGE_ID=coredump.COREDUMP)
    left = line("what remains", MESSAGE_ID=remains.MESSAGE_ID)
    write_journal(tmp_path / "system.journal", numbered([forged, left]))
    assert said(read_all(JournalReader(UNITS, path=tmp_path))) == ["Process 1 (systemd) dumped core", "what remains"]


def test_odd_lines(tmp_path: Path) -> None:
    whole = "x" * 3000
    no_message = dict(line(""))
    del no_message["MESSAGE"]
    entries = [
        line(ACCESS.format(1)),
        line(b"bad \xff\xfe bytes"),
        no_message,
        line(ACCESS.format(2)),
        line(whole, _LINE_BREAK="line-max"),
        line(ACCESS.format(3), pid=77, _STREAM_ID="6e" * 16),
        line(whole, _LINE_BREAK="line-max"),
        line("end"),
        line(ACCESS.format(4)),
    ]
    write_journal(tmp_path / "system.journal", numbered(entries))
    items = read_all(JournalReader(UNITS, path=tmp_path))
    assert said(items) == [
        "1 lines",
        "bad \ufffd\ufffd bytes",
        "",
        "1 lines",
        ACCESS.format(3),  # looked at while a line of another process is open
        whole + whole + "end",
        "1 lines",
    ]
    joined = items[5]
    assert isinstance(joined, Entry)
    assert joined.monotonic_usec == 1_004_000


def test_the_first_of_several_values_counts(tmp_path: Path) -> None:
    write_journal(tmp_path / "system.journal", numbered([{**pid1("x"), "UNIT": UNIT}]))
    (item,) = read_all(JournalReader(UNITS, path=tmp_path))
    assert isinstance(item, Entry)
    assert item.get("UNIT") == UNIT


def test_several_boots(tmp_path: Path) -> None:
    later = "b1" * 16
    write_journal(tmp_path / "system@1.journal", numbered([line("before"), pid1("before")], start=50_000_000))
    write_journal(tmp_path / "system@2.journal", [(60_000_000, line("after", SECOND))], boot_id=later)
    items = read_all(JournalReader(UNITS, path=tmp_path))
    assert said(items) == ["before", "before", "after"]
    assert [item.boot_id for item in items if isinstance(item, Entry)] == [BOOT, BOOT, later]


def test_positions_are_compared_as_libsystemd_does() -> None:
    def at(seqnum_id: str, seqnum: int, boot_id: str, monotonic: int, realtime: int) -> Position:
        found = Position.of(f"s={seqnum_id};i={seqnum:x};b={boot_id};m={monotonic:x};t={realtime:x};x=0")
        assert found is not None
        return found

    assert at("a", 1, "b", 9, 9).before(at("a", 2, "b", 1, 1))
    assert at("a", 9, "b", 1, 9).before(at("c", 1, "b", 2, 1))
    assert at("a", 9, "b", 9, 1).before(at("c", 1, "d", 1, 2))
    assert Position.of("nonsense") is None


def test_a_journal_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as raised:
        JournalReader(UNITS, path=tmp_path / "nowhere")
    assert raised.value.source == "journal"
    assert str(tmp_path / "nowhere") in raised.value.message


def test_why_it_cannot_be_read(tmp_path: Path) -> None:
    assert readable(tmp_path) == f"no journal files in {tmp_path} (or no right to list them)"
    write_journal(tmp_path / "system.journal", numbered([kernel("hello")]))
    assert readable(tmp_path) is None
    assert JournalReader(UNITS, path=tmp_path).kernel_readable() is None


def test_a_journal_without_kernel_records(tmp_path: Path) -> None:
    write_journal(tmp_path / "system.journal", numbered([line("hello")]))
    reason = JournalReader(UNITS, path=tmp_path).kernel_readable()
    assert reason is not None
    assert "no kernel record" in reason
