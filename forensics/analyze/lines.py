"""A stream of bytes → numbered lines of text, whatever their encoding and ends, forwards or from the end."""

import codecs
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

LONGEST_BYTES = 1 << 18
"""What is longer than this is cut: `server_args=…` is the longest line that matters, at some 12 KiB."""

_BLOCK = 1 << 20
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Line(NamedTuple):
    """`number` counts from 1 in the file; `raw` has no line end."""

    number: int
    raw: bytes

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace").replace("\0", "")


def forwards(stream: BinaryIO) -> Iterator[Line]:
    """Line by line, in bounded memory."""
    for number, raw in enumerate(_raw_lines(_as_utf8(stream)), start=1):
        yield Line(number, raw)


def backwards(stream: BinaryIO) -> Iterator[Line]:
    """The last line first. Spools the content to a temporary file: a decompressed stream cannot be read backwards."""
    with tempfile.TemporaryFile(prefix="inquest-analyze-") as spool:
        total = 0
        for raw in _raw_lines(_as_utf8(stream)):
            spool.write(raw + b"\n")
            total += 1
        number = total
        for raw in _from_end(cast(BinaryIO, spool)):
            yield Line(number, raw)
            number -= 1


def _raw_lines(stream: BinaryIO) -> Iterator[bytes]:
    while raw := stream.readline(LONGEST_BYTES):
        if not raw.endswith(b"\n") and len(raw) == LONGEST_BYTES:
            while (rest := stream.readline(LONGEST_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield raw.rstrip(b"\r\n")


def _from_end(spool: BinaryIO) -> Iterator[bytes]:
    # Every line was written with its end: what stands behind the last one is no line.
    at = spool.seek(0, os.SEEK_END) - 1
    if at < 0:
        return
    tail = b""
    while at > 0:
        begin = max(0, at - _BLOCK)
        spool.seek(begin)
        pieces = (spool.read(at - begin) + tail).split(b"\n")
        at, tail = begin, pieces[0]
        yield from reversed(pieces[1:])
    yield tail


def _as_utf8(stream: BinaryIO) -> BinaryIO:
    """Text that PowerShell or an editor saved as UTF-16 comes out as UTF-8; everything else as it is."""
    head = stream.peek(4)[:4] if hasattr(stream, "peek") else b""
    encoding = next((name for bom, name in _BOMS if head.startswith(bom)), None)
    if encoding is None:
        return stream
    stream.read(3 if encoding == "utf-8" else 2)
    return stream if encoding == "utf-8" else cast(BinaryIO, codecs.EncodedFile(stream, "utf-8", encoding, "replace"))
