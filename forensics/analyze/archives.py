"""Archives as people send them, and Inquest's own bundle of evidence: a tar file stands for the files in it."""

import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, cast

_OURS = frozenset({"README.txt", "report.txt", "crash.json", "timeline.json"})
"""What a bundle says beside its records. It quotes lines of logs, and is itself none."""
_MAGIC_AT, _MAGIC = 257, b"ustar"
MOST_MEMBERS = 10_000


def is_tar(head: bytes) -> bool:
    """Whether decompressed content begins as a tar archive does."""
    return head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def members(name: str, stream: BinaryIO) -> Iterator[tuple[str, int, BinaryIO]]:
    """The regular files of an archive, in its order: name, size, content in a file without a name. An end that is
    missing or damaged is an end. Nothing is unpacked to a place that the archive names."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for number, member in enumerate(archive):
                content = archive.extractfile(member) if member.isreg() and number < MOST_MEMBERS else None
                if content is None or PurePosixPath(member.name).name.startswith("."):
                    continue
                spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="inquest-analyze-"))  # noqa: SIM115 - handed out
                size = 0
                while block := content.read(1 << 20):
                    size += spool.write(block)
                yield f"{name}:{member.name}", size, spool
    except (tarfile.TarError, EOFError, OSError):
        return


def evidence_only(names: list[str]) -> set[str]:
    """Of the files of one folder or archive those to judge from: all of them, but of a bundle only its records."""
    bundles = {
        _folder(name) for name in names if _last(name) == "crash.json" and f"{_folder(name)}timeline.json" in names
    }
    return {name for name in names if not (_folder(name) in bundles and _last(name) in _OURS)}


def _folder(name: str) -> str:
    return name[: len(name) - len(_last(name))]


def _last(name: str) -> str:
    return name.replace(":", "/").rpartition("/")[2]
