"""`GET /crashes/{id}/evidence.tar.zst`: all of one crash in a file that can be attached to a report.

`inquest analyze` judges from its `journal.export` again. Made in a file without a name, read in pieces: the daemon's
memory does not grow with it.
"""

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from typing import IO, Any

import zstandard

from forensics.inquest import report
from forensics.shapes import CrashShape, TimelineShape

MEDIA_TYPE = "application/zstd"
LONGEST_EXPORT_BYTES = 64 * 2**20
_PIECE_BYTES = 1 << 16

Journal = Callable[[str, Iterable[str]], Iterator[bytes]]
"""The raw records of an invocation, and of the cursors in its timeline, in export form, secrets removed."""

_README = """\
What Inquest has on the end of {unit} (invocation {invocation_id}), {died_at}.

report.txt      the verdict in words
crash.json      the verdict, as GET /crashes/{id} answers
timeline.json   every fact that it was judged from, and what could not be read
journal.export  {journal}

Judge it again:  inquest analyze {name}.tar.zst
Passwords, tokens, prompts and answers are removed where they were recognised. Look before you publish it.
"""


def bundle(crash: CrashShape, timeline: TimelineShape, journal: Journal | None) -> IO[bytes]:
    """The archive, to be read from its beginning. The caller closes it, and with that it is gone."""
    made = tempfile.TemporaryFile(prefix="inquest-evidence-")  # noqa: SIM115 - handed out
    name = f"inquest-{crash['server']}-{crash['id']}".replace("/", "-")
    died_at = datetime.fromisoformat(crash["died_at"]).timestamp()
    with (
        zstandard.ZstdCompressor(level=9).stream_writer(made, closefd=False) as compressed,
        tarfile.open(mode="w|", fileobj=compressed) as archive,
        tempfile.TemporaryFile() as records,
    ):
        said = _write_records(records, crash, timeline, journal)
        readme = _README.format(**crash, journal=said, name=name)
        text = "\n".join(line.text for line in report(crash)) + "\n"
        for member, data in (
            ("README.txt", readme.encode()),
            ("report.txt", text.encode("utf-8", "replace")),
            ("crash.json", _json(crash)),
            ("timeline.json", _json(timeline)),
        ):
            _add(archive, f"{name}/{member}", io.BytesIO(data), len(data), died_at)
        if records.tell():
            size = records.tell()
            records.seek(0)
            _add(archive, f"{name}/journal.export", records, size, died_at)
    made.seek(0)
    return made


def pieces(made: IO[bytes]) -> Iterator[bytes]:
    """The archive in pieces; closes it."""
    with closing(made):
        while piece := made.read(_PIECE_BYTES):
            yield piece


def _write_records(records: IO[bytes], crash: CrashShape, timeline: TimelineShape, journal: Journal | None) -> str:
    """Writes the raw records; what the README says of them."""
    if journal is None:
        return "is missing: the daemon has no journal to read"
    try:
        for record in journal(crash["invocation_id"], (fact["ref"] for fact in timeline["events"])):
            records.write(record)
            if records.tell() > LONGEST_EXPORT_BYTES:
                return f"the journal's own records of that run, cut after {LONGEST_EXPORT_BYTES >> 20} MiB"
    except OSError as error:
        return f"is not whole: the journal could not be read: {error.strerror or error}"
    if not records.tell():
        return "is missing: the journal no longer has records of that run"
    return "the journal's own records of that run"


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int, modified: float) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(modified), 0o644
    archive.addfile(member, content)


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
