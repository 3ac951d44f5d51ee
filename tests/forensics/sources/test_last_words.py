"""D1: the last lines of dying processes, which journald could put to no unit, on real journal files."""

from io import BytesIO
from pathlib import Path

import pytest

from forensics.entry import Entry
from forensics.events import Traceback
from forensics.sources.export import read_json
from forensics.sources.journal import JournalReader
from forensics.tracker import Tracker
from tests.cases.replay import judge, replay
from tests.cases.stories.doubts import lines_without_unit
from tests.cases.story import Journal, Life
from tests.forensics.sources.journals import write_lines
from tests.forensics.test_tracker import outcome

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/worker.py", line 7, in verify\nKeyError: {}'


def read(tracker: Tracker, path: Path, cursor: str | None = None, limit: int = 20_000) -> tuple[list[str], str]:
    """What the daemon reads and feeds, block after block closed a second after its last line; and where it stands."""
    reader = JournalReader(["sglang-*.service"], path=path, cursor=cursor, processes=tracker.processes)
    said: list[str] = []
    while reader.wait(0):
        for item in reader.read(limit):
            tracker.feed(item)
            if isinstance(item, Entry):
                tracker.flush_older(item.monotonic_usec - 1_000_000)
                said.append(item.message)
        if limit < 20_000:
            break
    place = reader.cursor
    reader.close()
    return said, place


def without_unit(life: Life, pid: int, text: str) -> None:
    for line in text.splitlines():
        life.journal.write({"_TRANSPORT": "stdout", "_PID": pid, "SYSLOG_IDENTIFIER": "sglang-alder", "MESSAGE": line})


def test_d1_a_traceback_without_unit_is_found_live_as_in_a_saved_journal(tmp_path: Path) -> None:
    """The same verdict from the journal as it is written and from its export, and not the one without these lines."""
    journal = Journal(name="cuda-error/lines-without-unit")
    lines_without_unit(journal)
    unit, invocation_id = journal.expected[0].unit, journal.expected[0].invocation_id
    tracker = Tracker((unit,))
    write_lines(tmp_path, journal.lines)
    read(tracker, tmp_path)
    live = outcome(judge(tracker, invocation_id).verdict)
    assert live == outcome(replay(read_json(BytesIO(journal.dump().encode())), {unit})[0].verdict)
    assert live[:2] == ("cuda-error", "confirmed")


def test_d1_only_a_process_of_the_run_has_last_words(tmp_path: Path) -> None:
    """Nothing but the pid, which is the kernel's word, makes such a line the server's: not the name it goes by."""
    journal = Journal(name="d1")
    life = journal.life()
    life.up()
    without_unit(life, 77, TRACEBACK.format("'somebody else'"))
    without_unit(life, life.detokenizer, TRACEBACK.format("'never seen before'"))
    without_unit(life, life.scheduler, TRACEBACK.format("'mine'"))
    life.wait(0.2).exit("exited", 1).failed("exit-code")
    tracker = Tracker((life.unit,))
    write_lines(tmp_path, journal.lines)
    read(tracker, tmp_path)
    one = judge(tracker, life.invocation_id)
    assert [event.text for event in one.timeline.events if isinstance(event, Traceback)] == ["'mine'"]


def test_d1_what_has_its_unit_is_not_read_a_second_time(tmp_path: Path) -> None:
    journal = Journal(name="d1-twice")
    life = journal.life()
    life.up()
    without_unit(life, life.scheduler, "before its last attributed line")
    life.sched("the last line with a unit")
    without_unit(life, life.scheduler, "last\nwords")
    life.killed()
    write_lines(tmp_path, journal.lines)
    said, _ = read(Tracker((life.unit,)), tmp_path)
    assert said[-3:] == ["last", "words", f"{life.unit}: Failed with result 'signal'."]
    assert sum("the last line with a unit" in line for line in said) == 1
    assert "before its last attributed line" not in said


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_d1_a_daemon_that_is_killed_reads_them_once(tmp_path: Path, limit: int) -> None:
    """Resumed after every few entries, with what the tracker knew: each of the last words comes exactly once."""
    journal = Journal(name="d1-resumed")
    life = journal.life()
    life.up()
    without_unit(life, life.scheduler, "last\nwords")
    life.killed().restart()
    second = journal.life()
    second.up().killed()
    write_lines(tmp_path, journal.lines)
    whole, _ = read(Tracker((life.unit,)), tmp_path)
    tracker, said = Tracker((life.unit,)), list[str]()
    cursor: str | None = None
    while True:
        tracker = Tracker((life.unit,), tracker.records())
        part, cursor = read(tracker, tmp_path, cursor, limit)
        if not part:
            break
        said += part
    assert (said.count("last"), said.count("words")) == (whole.count("last"), whole.count("words")) == (1, 1)
