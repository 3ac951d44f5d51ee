"""What a check before a start found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Row", "State", "good", "refused", "unknown", "warning"]

State = Literal["ok", "warning", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Row:
    """What was found, and what to do about it where it is not good: one sentence each. `check` is a stable slug."""

    check: str
    state: State
    message: str
    advice: str = ""

    @property
    def words(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message

    def __str__(self) -> str:
        return f"inquest: preflight {self.state}: {self.check}: {self.words}"


def good(check: str, message: str) -> Row:
    """Nothing speaks against a start."""
    return Row(check, "ok", message)


def warning(check: str, message: str, advice: str) -> Row:
    """It may go wrong; the start goes on."""
    return Row(check, "warning", message, advice)


def refused(check: str, message: str, advice: str) -> Row:
    """It would certainly go wrong."""
    return Row(check, "refused", message, advice)


def unknown(check: str, message: str) -> Row:
    """It could not be seen."""
    return Row(check, "unknown", message)
