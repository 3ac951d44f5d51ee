"""The daemon's side of it: the whole journal is read at the first start, odd speculation is told once."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from forensics import daemon
from forensics.runs.notice import ENOUGH_TOKENS, notice
from forensics.settings import Settings
from forensics.sources.journal import JournalReader
from forensics.store import Query
from tests.forensics.runs.lives import STARTING, STOPPING, SUCCESS, UNIT, Machine, decode, start
from tests.forensics.sources.journals import Fields, write_journal

BOOTS = ("b1" * 16, "b2" * 16)
EACH = 40
SECOND = 1_000_000


def life(number: int, at: int) -> Iterator[tuple[int, Fields]]:
    """A run of a minute, which decodes and is stopped."""
    invocation_id = f"{number:012x}" + "0" * 20
    own = {"_PID": "1", "_TRANSPORT": "journal", "UNIT": UNIT, "INVOCATION_ID": invocation_id}
    line = {"_PID": str(1000 + number), "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": UNIT, "_COMM": "python",
            "_CMDLINE": "python -m sglang.launch_server", "_SYSTEMD_INVOCATION_ID": invocation_id}  # fmt: skip
    yield at, {**own, "MESSAGE_ID": STARTING, "MESSAGE": "Starting"}
    for index, text in enumerate([*start(), *(decode(2, 100 + number) for _ in range(200))]):
        stamp = f"[2026-03-01 {number // 60:02}:{number % 60:02}:{index // 10:02}]"
        yield at + SECOND + index * SECOND // 10, {**line, "MESSAGE": f"{stamp} {text}"}
    yield at + 58 * SECOND, {**own, "MESSAGE_ID": STOPPING, "MESSAGE": "Stopping", "JOB_TYPE": "stop"}
    yield at + 59 * SECOND, {**own, "MESSAGE_ID": SUCCESS, "MESSAGE": "Deactivated"}


def test_the_first_start_remembers_every_run_that_the_journal_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    for boot, boot_id in enumerate(BOOTS):
        numbers = range(boot * EACH, boot * EACH + EACH)
        lives = (life(number, (number + 1) * 600 * SECOND) for number in numbers)
        write_journal(journal / f"system{boot}.journal", [entry for one in lives for entry in one], boot_id)
    monkeypatch.setattr(daemon, "JournalReader", partial(JournalReader, path=journal))
    tracked: list[int] = []
    with closing(daemon.Daemon(Settings(state_dir=tmp_path))) as made:
        forget = made._tracker.forget

        def counting(monotonic_usec: int, boot_id: str) -> None:
            tracked.append(len(made._tracker.records()))
            forget(monotonic_usec, boot_id)

        monkeypatch.setattr(made._tracker, "forget", counting)
        monkeypatch.setattr(made._reader, "read", partial(made._reader.read, 500))
        made._drain()
        runs = made._store.runs.page(Query(limit=500)).runs
    assert len(runs) == len(BOOTS) * EACH
    decodings = [run["decoding"] for run in runs]
    assert {decoding["lines"] for decoding in decodings if decoding} == {200}
    assert max(tracked) < EACH + 10


def odd(lines: int) -> Machine:
    machine = Machine()
    machine.begin([*start(), *(decode(4, 900, 1.0, 0.0) for _ in range(lines))])
    return machine


def test_odd_speculation_is_told_in_a_record_that_names_the_run() -> None:
    (record,) = odd(20).tracker.records()
    fields = notice(record)
    assert fields is not None
    assert fields["MESSAGE"].startswith("demo: speculation is useless: accept length 1.00")
    assert (fields["INQUEST_UNIT"], fields["INQUEST_INVOCATION_ID"]) == (UNIT, record.invocation_id)


def test_it_is_not_told_before_many_tokens() -> None:
    enough = ENOUGH_TOKENS // (4 * 40)
    for lines, told in ((enough - 1, False), (enough + 1, True)):
        (record,) = odd(lines).tracker.records()
        assert (notice(record) is not None) == told


def test_the_daemon_tells_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(daemon.journal, "send", lambda message, **_: sent.append(message))
    write_journal(tmp_path / "journal/system.journal", [(SECOND, {"_PID": "1", "MESSAGE": "hello"})])
    monkeypatch.setattr(daemon, "JournalReader", partial(JournalReader, path=tmp_path / "journal"))
    (record,) = odd(20).tracker.records()
    with closing(daemon.Daemon(Settings(state_dir=tmp_path))) as made:
        made._tell_remarks([record])
        made._tell_remarks([record])
    assert len(sent) == 1
    assert record.remarked


def test_ordinary_speculation_is_not_told() -> None:
    machine = Machine()
    machine.begin([*start(), *(decode(4, 900, 2.5, 0.5) for _ in range(100))])
    (record,) = machine.tracker.records()
    assert notice(record) is None
