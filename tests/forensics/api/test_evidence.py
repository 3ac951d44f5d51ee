import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import zstandard
from fastapi.testclient import TestClient

from forensics.analyze import analyze
from forensics.api import create_app
from forensics.entry import Entry
from forensics.model import Crash
from forensics.sources import excerpt as source
from forensics.sources.excerpt import excerpt
from forensics.sources.export import read_export
from forensics.sources.journal_streams import entry_at, open_reader
from forensics.store import Store
from tests.cases.replay import replay
from tests.forensics.factories import HEALTH, crash, invocation
from tests.forensics.sources.journals import Fields, write_journal
from tests.forensics.test_api import problem

CASE = Path(__file__).parents[2] / "cases" / "python-exception" / "tensor-sizes-0.5.23"
UNIT = "sglang-demo.service"
OWN = invocation(0xA1)
SECRET = "hf_abcdefghijklmnopqrstuvwx"
TRACEBACK = """Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/x/scheduler.py", line 210, in run_batch
    raise RuntimeError("tensor sizes differ")
RuntimeError: tensor sizes differ"""


def pid1(message: str, **fields: str) -> Fields:
    own = {"_PID": "1", "_TRANSPORT": "journal", "_COMM": "systemd", "UNIT": UNIT, "INVOCATION_ID": OWN}
    return own | fields | {"MESSAGE": message}


def line(message: str, invocation_id: str = OWN) -> Fields:
    own = {"_PID": "4100", "_TRANSPORT": "stdout", "_COMM": "python", "_CMDLINE": "python -m sglang.launch_server"}
    return own | {"_SYSTEMD_UNIT": UNIT, "_SYSTEMD_INVOCATION_ID": invocation_id, "MESSAGE": message}


def records() -> list[Fields]:
    ends = {"MESSAGE_ID": "98e322203f7a4ed290d09fe03c09fe15", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL",
            "COMMAND": "ExecStart"}  # fmt: skip
    return [
        line("of another life", invocation(0xB2)),
        pid1(f"Starting {UNIT}", MESSAGE_ID="7d4958e842da4a758f6c1cdc7b36dcc5"),
        line(f"[2026-03-01 12:00:01] loading with token={SECRET}"),
        line("[2026-03-01 12:00:02] The server is fired up and ready to roll!"),
        {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": "a kernel record of that second"},
        {"_TRANSPORT": "stdout", "_PID": "77", "_SYSTEMD_UNIT": "other.service", "MESSAGE": "nobody asked for this"},
        *(line(f"[2026-03-01 12:00:03] {text}" if not number else text)
          for number, text in enumerate(TRACEBACK.split("\n"))),
        line("[2026-03-01 12:00:04] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
        pid1("Main process exited, code=killed, status=9/KILL", **ends),
        pid1("Failed with result 'signal'.", MESSAGE_ID="d9b373ed55a64feb8242e02dbe79a49c", UNIT_RESULT="signal"),
    ]  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal" / "system.journal"
    write_journal(path, [(1_000_000 + number * 1000, fields) for number, fields in enumerate(records())])
    return path


def entries_of(journal: Path) -> list[Entry]:
    reader = open_reader(journal)
    reader.seek_head()
    found = []
    while reader._next():
        if (entry := entry_at(reader)) is not None:
            found.append(entry)
    reader.close()
    return found


def cursors(journal: Path, message: str) -> list[str]:
    return [entry.cursor for entry in entries_of(journal) if entry.message == message]


def messages(exported: Iterable[bytes]) -> list[str]:
    return [entry.message for entry in read_export(io.BytesIO(b"".join(exported)))]


def unpacked(content: bytes) -> dict[str, bytes]:
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        found = {}
        for member in archive:
            content_of = archive.extractfile(member)
            assert content_of is not None
            found[member.name.partition("/")[2]] = content_of.read()
        return found


def client_of(store: Store, journal: object) -> TestClient:
    return TestClient(create_app(store, lambda: HEALTH, journal=journal), base_url="http://localhost")  # type: ignore[arg-type]


# --- the journal's records -----------------------------------------------------------------------------------


def test_the_records_of_a_run_and_those_its_timeline_refers_to(journal: Path) -> None:
    refs = [*cursors(journal, "a kernel record of that second"), "file:7", "s=0;i=0;b=0", ""]
    found = messages(excerpt(OWN, refs, journal))
    expected = [fields["MESSAGE"] for fields in records()]
    expected.remove("of another life")
    expected.remove("nobody asked for this")
    assert [text.replace("[removed]", SECRET) for text in found] == expected


def test_secrets_are_removed(journal: Path) -> None:
    assert SECRET.encode() not in b"".join(excerpt(OWN, (), journal))


def test_of_a_long_life_the_first_and_the_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal" / "system.journal"
    write_journal(path, [(1000 * number, line(f"line {number}")) for number in range(1, 21)])
    monkeypatch.setattr(source, "FIRST_LINES", 3)
    for last, expected in ((4, [1, 2, 3, 17, 18, 19, 20]), (18, range(1, 21)), (17, range(1, 21)), (50, range(1, 21))):
        monkeypatch.setattr(source, "LAST_LINES", last)
        assert messages(excerpt(OWN, (), path)) == [f"line {number}" for number in expected], last


def test_a_field_with_line_breaks_survives(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "system.journal"
    write_journal(path, [(1000, line("one\ntwo=2\n\nthree\x1b[0m\x00"))])
    assert messages(excerpt(OWN, (), path)) == ["one\ntwo=2\n\nthree\x1b[0m\x00"]


# --- the bundle ----------------------------------------------------------------------------------------------


def test_a_bundle_has_all_of_a_crash(store: Store, journal: Path) -> None:
    store.save(crash(0xA1))
    with client_of(store, partial(excerpt, path=journal)) as client:
        response = client.get(f"/crashes/{OWN}/evidence.tar.zst")
        shown, facts = client.get(f"/crashes/{OWN}").json(), client.get(f"/crashes/{OWN}/timeline").json()
    assert response.headers["content-type"] == "application/zstd"
    assert response.headers["content-disposition"] == f'attachment; filename="inquest-{OWN[:12]}.tar.zst"'
    files = unpacked(response.content)
    assert list(files) == ["README.txt", "report.txt", "crash.json", "timeline.json", "journal.export"]
    assert json.loads(files["crash.json"]) == shown
    assert json.loads(files["timeline.json"]) == facts
    assert files["report.txt"].decode().splitlines()[0] == shown["summary"]
    assert "RuntimeError: tensor sizes differ" in messages([files["journal.export"]])
    assert SECRET.encode() not in response.content + b"".join(files.values())


@pytest.mark.parametrize("form", ["as it came", "unpacked"])
def test_it_is_judged_again_from_the_bundle_alone(store: Store, tmp_path: Path, form: str) -> None:
    journal = tmp_path / "journal" / "system.journal"
    told = [json.loads(text) for text in (CASE / "journal.jsonl").read_text().splitlines()]
    entries = [(int(one["__MONOTONIC_TIMESTAMP"]), {name: value for name, value in one.items() if name[:2] != "__"})
               for one in told]  # fmt: skip
    write_journal(journal, entries, told[0]["_BOOT_ID"])
    (judged,) = replay(entries_of(journal), ["sglang-*.service"])
    assert store.save(Crash(run=judged.run, timeline=judged.timeline, verdict=judged.verdict)) is not None
    invocation_id = judged.run.invocation_id
    bundle = tmp_path / "evidence.tar.zst"
    with client_of(store, partial(excerpt, path=journal)) as client:
        bundle.write_bytes(client.get(f"/crashes/{invocation_id}/evidence.tar.zst").content)
    given = bundle
    if form == "unpacked":
        given = tmp_path / "unpacked"
        given.mkdir()
        subprocess.run(["tar", "--zstd", "-xf", bundle, "-C", given], check=True, timeout=60)
    (again,) = analyze([str(given)], None, lambda _: None).crashes
    assert again["cause"] == judged.verdict.cause == "python-exception"
    assert again["summary"] == judged.verdict.summary
    assert again["invocation_id"] == invocation_id


def test_a_journal_that_cannot_be_read_is_said_and_the_rest_is_there(store: Store) -> None:
    def broken(invocation_id: str, refs: Iterable[str]) -> Iterator[bytes]:
        raise PermissionError(13, "Permission denied")

    store.save(crash(1))
    for journal, said in ((broken, "could not be read: Permission denied"), (None, "no journal"),
                          (lambda *_: iter(()), "no longer has records")):  # fmt: skip
        with client_of(store, journal) as client:
            files = unpacked(client.get(f"/crashes/{invocation(1)}/evidence.tar.zst").content)
        assert said in files["README.txt"].decode()
        assert "journal.export" not in files
        assert "crash.json" in files


def test_a_bundle_of_nothing_is_404(client: TestClient) -> None:
    problem(client.get("/crashes/abc/evidence.tar.zst"), 404, "not-found")
