"""What a rule has to say about a spec: an error or a note, with the key it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.spec import ServerSpec

__all__ = ["Finding", "Rule", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`key` is dotted; an error is what SGLang certainly refuses or cannot run."""

    key: str
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


Rule = Callable[[ServerSpec], Iterator[Finding]]


def note(key: str, message: str) -> Finding:
    """What works, but not as it is written, or only in some releases."""
    return Finding(key, message, is_error=False)
