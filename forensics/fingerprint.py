"""One name for the same death: stable over pids, addresses, ranks, times, ports and batch sizes."""

from hashlib import sha256

VERSION = "1"


def signature(cause: str, subclass: str, key: tuple[str, ...]) -> str:
    """The readable form: `cause | subclass | part | part`."""
    parts = dict.fromkeys(" ".join(part.split()) for part in (cause, subclass, *key) if part)
    return " | ".join(parts)


def digest(text: str) -> str:
    """16 hex digits of the signature, with the version of the way in which signatures are made."""
    return sha256(f"{VERSION}|{text}".encode()).hexdigest()[:16]
