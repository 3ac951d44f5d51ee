"""A path or standard input → a stream of decompressed bytes, known by its content, never by its name."""

import bz2
import gzip
import io
import lzma
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from forensics.analyze import archives
from forensics.errors import InputError

STDIN = "-"
HEAD_BYTES = 1 << 18
"""So much of a file's beginning is looked at to tell what it is."""


class _Zstd(io.RawIOBase):
    """Frames of zstd, one after the other. zstandard's own reader takes a missing end for an end."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        while not self._rest:
            if self._frame.eof:
                data = self._frame.unused_data or self._raw.read(1 << 16)
                if not data:
                    return 0
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            elif not (data := self._raw.read(1 << 16)):
                raise EOFError("Compressed file ended before the end of its last frame")
            self._rest = self._frame.decompress(data)
        count = min(len(view), len(self._rest))
        view[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


_MAGICS: tuple[tuple[bytes, Callable[[BinaryIO], BinaryIO]], ...] = (
    (b"\x1f\x8b", lambda raw: cast(BinaryIO, gzip.GzipFile(fileobj=raw))),
    (b"\xfd7zXZ\x00", lambda raw: cast(BinaryIO, lzma.LZMAFile(raw))),  # noqa: SIM115 - closed with the file below
    (b"BZh", lambda raw: cast(BinaryIO, bz2.BZ2File(raw))),
    (
        b"\x28\xb5\x2f\xfd",
        lambda raw: cast(BinaryIO, io.BufferedReader(_Zstd(raw))),
    ),
)
_LAYERS = 3
_DAMAGED = (EOFError, OSError, lzma.LZMAError, zstandard.ZstdError, zlib.error)


class Tolerant(io.RawIOBase):
    """A decompressing stream whose damaged or missing end is an end: what stands before it is read.

    `damage` says afterwards what was wrong. `seen` is told how many raw bytes have been taken in.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.damage = ""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        try:
            data = self._stream.read(len(view)) if not self.damage else b""
        except _DAMAGED as error:
            self.damage = str(error) or type(error).__name__
            return 0
        view[: len(data)] = data
        return len(data)


class _Counted(io.RawIOBase):
    """The raw file, with a word to whoever shows the progress."""

    def __init__(self, raw: BinaryIO, advance: Callable[[int], None]) -> None:
        self._raw, self._advance = raw, advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self._raw.read(len(view))
        view[: len(data)] = data
        self._advance(len(data))
        return len(data)


@dataclass(slots=True)
class Input:
    """One file to read. `name` is what its lines are quoted by; `path` is None for standard input.

    Standard input, and whatever is not a file, is spooled: a form is read more than once, and newest-first from its
    end. `size` is what the progress counts, in bytes as stored.
    """

    name: str
    path: Path | None
    size: int
    spool: BinaryIO | None = None

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()

    @contextmanager
    def open(self, advance: Callable[[int], None] = lambda _: None) -> Iterator[BinaryIO]:
        """The content, decompressed. What is wrong with its end is found in `damage_of`."""
        raw: BinaryIO
        if self.spool is not None:
            self.spool.seek(0)
            raw = self.spool
            yield _unpacked(raw, advance)
            return
        assert self.path is not None
        try:
            raw = open(self.path, "rb")  # noqa: SIM115 - closed below, so that only the opening is guarded
        except OSError as error:
            raise InputError("unreadable", f"cannot read {self.name}: {error.strerror or error}") from error
        with raw:
            yield _unpacked(raw, advance)


def damage_of(stream: BinaryIO) -> str:
    """Why the end of a compressed stream could not be read; empty when it could."""
    found = getattr(stream, "inquest_layers", ())
    return next((layer.damage for layer in found if layer.damage), "")


class _Layered(io.BufferedReader):
    """A buffered reader that remembers its layers."""

    inquest_layers: tuple[Tolerant, ...] = ()


def _unpacked(raw: BinaryIO, advance: Callable[[int], None]) -> BinaryIO:
    stream: BinaryIO = io.BufferedReader(_Counted(raw, advance), 1 << 18)
    layers: list[Tolerant] = []
    for _ in range(_LAYERS):
        head = cast(io.BufferedReader, stream).peek(16)[:16]
        unpack = next((unpack for magic, unpack in _MAGICS if head.startswith(magic)), None)
        if unpack is None:
            break
        layers.append(Tolerant(unpack(stream)))
        stream = io.BufferedReader(layers[-1], 1 << 18)
    top = _Layered(cast(io.RawIOBase, stream), 1 << 18)
    top.inquest_layers = tuple(layers)
    return cast(BinaryIO, top)


def head_of(source: Input) -> tuple[bytes, str]:
    """The first `HEAD_BYTES` of a file, decompressed, and what was wrong with it."""
    with source.open() as stream:
        head = stream.read(HEAD_BYTES)
        return head, damage_of(stream)


def inputs(paths: list[str]) -> list[Input]:
    """The files that are meant: a folder stands for the files in it, and so does a tar archive. Raises InputError for
    one that is not there."""
    found = [each for source in _given(paths) for each in _unarchived(source)]
    wanted = archives.evidence_only([source.name for source in found])
    for source in found:
        if source.name not in wanted:
            source.close()
    return [source for source in found if source.name in wanted]


def _unarchived(source: Input) -> Iterator[Input]:
    try:
        with source.open() as stream:
            if archives.is_tar(cast(io.BufferedReader, stream).peek(512)[:512]):
                for name, size, spool in archives.members(source.name, stream):
                    yield Input(name, None, size, spool)
                return
    except InputError:
        pass  # told when it is read
    yield source


def _given(paths: list[str]) -> list[Input]:
    found: list[Input] = []
    for text in paths:
        if text == STDIN:
            found.append(_spooled("stdin", sys.stdin.buffer))
            continue
        path = Path(text)
        try:
            if path.is_dir():
                inside = sorted(each for each in path.rglob("*") if each.is_file() and not _hidden(each, path))
                if not inside:
                    raise InputError("nothing-to-read", f"{text} is an empty folder")
                found += [Input(str(each), each, each.stat().st_size) for each in inside]
            elif path.is_file():
                found.append(Input(text, path, path.stat().st_size))
            elif path.exists():
                with path.open("rb") as pipe:
                    found.append(_spooled(text, pipe))
            else:
                raise InputError("no-such-file", f"there is no file {text}")
        except OSError as error:
            raise InputError("unreadable", f"cannot read {text}: {error.strerror or error}") from error
        except ValueError as error:
            raise InputError("unreadable", f"not a path: {text!r}: {error}") from error
    return found


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _spooled(name: str, stream: BinaryIO) -> Input:
    spool = tempfile.TemporaryFile(prefix="inquest-analyze-")  # noqa: SIM115 - lives as long as the input
    size = 0
    while block := stream.read(1 << 20):
        spool.write(block)
        size += len(block)
    return Input(name, None, size, cast(BinaryIO, spool))
