"""No input makes it raise, hang or eat memory."""

import bz2
import gzip
import io
import lzma
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forensics.analyze import analyze
from forensics.analyze.forms import recognise
from forensics.analyze.lines import Line, backwards, forwards
from forensics.errors import InputError
from tests.forensics.analyze.saved import (
    BATCH,
    INVOCATION,
    UNIT,
    Journal,
    child_died,
    exception,
    line,
    oom,
    served,
    short,
    stopped,
    syslog,
    systemd,
)
from tests.fuzz.targets import SEEDS, TARGETS

NOW = datetime(2026, 5, 18, tzinfo=UTC)

PIECES = [
    *served(),
    *exception(40, "ValueError: no"),
    *child_died(40, -9),
    *stopped(40, 2),
    *oom(),
    *short(served()[:3]),
    systemd(1, f"Started {UNIT}."),
    systemd(2, f"{UNIT}: Main process exited, code=killed, status=9/KILL"),
    systemd(3, f"{UNIT}: Failed with result 'signal'."),
    syslog(4, "kernel", oom()[1]),
    f"[  912.1] {oom()[0]}",
    f"4,1,912000000,-;{oom()[1]}",
    "-- Boot 5d0f2f8f5c0e4f6c9b1e2a7d8c9f0a1b --",
    "Killed",
    "[...]",
    "",
    "\r",
    "\x1b[31m",
    '{"log":"x\\n","time":"2026-05-17T08:00:00Z"}',
    "2026-05-17T08:00:00Z stderr P part",
    f"InvocationID={INVOCATION}",
    "Result=signal",
    "ExecMainStatus=9",
    "ActiveState=failed",
    f"Id={UNIT}",
    f"● {UNIT} - x",
    "     Active: failed since x",
    "__REALTIME_TIMESTAMP=1779005000000000",
    "MESSAGE",
    "_BOOT_ID=aa",
    line(1, BATCH),
    "Traceback (most recent call last):",
    '  File "x", line 1, in f',
    "Fatal Python error: Aborted",
    "terminate called after throwing an instance of 'x'",
]


def analyzed(content: bytes, folder: Path) -> None:
    path = folder / "anything"
    path.write_bytes(content)
    try:
        found = analyze([str(path)])
    except InputError:
        return
    assert found.crashes or found.reason
    plain = not any(file["form"].startswith(("journalctl -o", "binary")) for file in found.files)
    for crash in found.crashes:
        assert not (plain and crash["strength"] == "confirmed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("anything")


@settings(max_examples=60)
@given(content=st.binary(max_size=3000))
@example(content=b"\x00" * 100)
@example(content=b"\xff\xfe" + "[2026-05-17 08:00:00] hello\n".encode("utf-16-le"))
@example(content=b'{"__REALTIME_TIMESTAMP": 1e400}')
@example(content=b"__REALTIME_TIMESTAMP=99999999999999999999\n\n")
@example(content=b"MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xff")
@example(content=b'{"dmesg": [{"pri": 4, "time": "inf", "msg": "x"}, {"time": NaN, "msg": 3}]}')
def test_any_bytes(content: bytes, folder: Path) -> None:
    analyzed(content, folder)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=40))
def test_any_lines(lines: list[str], folder: Path) -> None:
    analyzed("\n".join(lines).encode("utf-8", "replace"), folder)


@settings(max_examples=60)
@given(data=st.data())
def test_a_journal_with_any_entry_missing_or_twice(data: st.DataObject, folder: Path) -> None:
    journal = Journal().started()
    for text in oom(4711, "python3"):
        journal.kernel(44, text)
    journal.exited(45)
    journal.entries = data.draw(st.lists(st.sampled_from(journal.entries), max_size=40))
    form = data.draw(st.sampled_from(["json", "pretty", "export", "verbose"]))
    analyzed(getattr(journal, form)(), folder)


@settings(max_examples=40)
@given(
    cut=st.integers(0, 400),
    packer=st.sampled_from([gzip.compress, lzma.compress, bz2.compress, zstandard.ZstdCompressor().compress]),
)
def test_any_end_of_a_compressed_file(cut: int, packer: Callable[[bytes], bytes], folder: Path) -> None:
    whole = packer("\n".join([*served(), *child_died(40, -9)]).encode())
    analyzed(whole[: max(0, len(whole) - cut)], folder)


@given(st.binary(max_size=2000))
def test_any_head_has_a_form(head: bytes) -> None:
    recognise(head, NOW)


@given(st.lists(st.binary(max_size=30).filter(lambda raw: b"\n" not in raw and raw.rstrip(b"\r") == raw), max_size=30))
def test_backwards_is_forwards_turned_round(lines: list[bytes]) -> None:
    # A byte order mark at the beginning is no text.
    lines = [raw for raw in lines if not raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"))]
    content = b"".join(raw + b"\n" for raw in lines)

    def stream() -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(io.BytesIO(content)))

    there: list[Line] = list(forwards(stream()))
    assert [each.raw for each in there] == lines
    assert [each for each in backwards(stream()) if each.raw][::-1] == [each for each in there if each.raw]


@pytest.mark.parametrize("target", TARGETS)
def test_every_fuzz_target_takes_every_seed(target: str) -> None:
    for seed in SEEDS:
        TARGETS[target](seed)
        TARGETS[target](seed[: len(seed) // 2] + b"\xff\n" + seed[len(seed) // 2 :])


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "endless.log"
    with path.open("wb") as file:
        file.write("\n".join(served()).encode() + b"\n")
        for _ in range(24):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + "\n".join(child_died(40, -9)).encode())
    tracemalloc.start()
    try:
        found = analyze([str(path)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [crash["cause"] for crash in found.crashes] == ["unexplained-kill"]
    assert peak < 16 << 20
