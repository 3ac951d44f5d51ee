"""Compressed, damaged, piped, in a folder: the content is what counts."""

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from forensics.analyze import analyze
from forensics.errors import InputError
from tests.forensics.analyze.saved import REFUSED, exception, line, served, verdict

TEXT = (
    "\n".join([*served(), *exception(40, "RuntimeError: CUDA error: an illegal memory access was encountered")]) + "\n"
)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("packer", PACKERS)
def test_compressed_whatever_its_name(packer: str, tmp_path: Path) -> None:
    path = tmp_path / "server.txt"
    path.write_bytes(PACKERS[packer](TEXT.encode()))
    assert verdict(analyze([str(path)])) == ("cuda-error", "likely")


@pytest.mark.parametrize("packer", ["gz", "xz", "zst"])
def test_a_download_that_was_cut_short_is_read_as_far_as_it_goes(packer: str, tmp_path: Path) -> None:
    filler = "".join(line(50, f"nothing to see {number * 7919 % 100_003}") + "\n" for number in range(8_000))
    whole = PACKERS[packer]((TEXT + filler).encode())
    path = tmp_path / "cut"
    path.write_bytes(whole[: len(whole) - 400])
    found = analyze([str(path)])
    assert verdict(found) == ("cuda-error", "likely")
    assert any("damaged" in note for note in found.notes)


def test_a_download_of_which_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(bz2.compress(TEXT.encode())[:-60])  # one block of bzip2 holds all of it
    with pytest.raises(InputError, match="damaged"):
        analyze([str(path)])


def test_several_frames_and_layers(tmp_path: Path) -> None:
    first, second = TEXT[: len(TEXT) // 2].encode(), TEXT[len(TEXT) // 2 :].encode()
    path = tmp_path / "frames"
    for pack in (gzip.compress, zstandard.ZstdCompressor().compress):
        path.write_bytes(lzma.compress(pack(first) + pack(second)))
        assert verdict(analyze([str(path)])) == ("cuda-error", "likely")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(gzip.compress(TEXT.encode()))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert verdict(analyze(["-"])) == ("cuda-error", "likely")


def test_a_folder_is_the_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "incident" / "logs").mkdir(parents=True)
    (tmp_path / "incident" / "logs" / "server.log").write_text(TEXT)
    (tmp_path / "incident" / "photo.bin").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "incident" / ".hidden").write_text(REFUSED)
    found = analyze([str(tmp_path / "incident")])
    assert verdict(found) == ("cuda-error", "likely")
    assert any("photo.bin is of no known form" in note for note in found.notes)


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 20, b"\x1f\x8b\x08\x00garbage", b"\x28\xb5\x2f\xfd\x00"],
    ids=["no text", "no gzip", "no zstd"],
)
def test_what_is_nothing_at_all(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError):
        analyze([str(path)])


def test_an_empty_file_holds_no_crash(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    found = analyze([str(tmp_path / "empty.log")])
    assert found.crashes == []
    assert found.reason


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        analyze([str(tmp_path / "missing.log")])
    with pytest.raises(InputError, match="empty folder"):
        analyze([str(tmp_path)])
