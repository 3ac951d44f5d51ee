"""One finding of the doctor."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Row:
    """What was looked at, what was found, and where that is not well, what to do about it in one sentence.

    `failed`: deaths are missed or misjudged. `warning`: some verdicts will say less than they could.
    """

    check: str
    state: State
    finding: str
    remedy: str = ""


def ok(check: str, finding: str) -> Row:
    return Row(check, "ok", finding)


def warning(check: str, finding: str, remedy: str) -> Row:
    return Row(check, "warning", finding, remedy)


def failed(check: str, finding: str, remedy: str) -> Row:
    return Row(check, "failed", finding, remedy)
