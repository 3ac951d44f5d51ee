"""The kinds of value a server's spec is made of, each with a plain sentence for what is allowed.

A validator raises ``ValueError`` with words that can stand behind a key's name in an error message.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

__all__ = ["AbsolutePath", "Duration", "EnvValue", "ModelRef", "Port", "Size", "Text", "plain_text", "seconds"]

# Quotes, backslashes and dollar signs are legal in a path, but systemd refuses them in the path of a program.
_PROGRAM_PATH = re.compile(r"/[^\s\"'\\$%]+")
_SIZE = re.compile(r"(?:\d+(?:\.\d+)?[KMGTPE]?|\d+(?:\.\d+)?%|infinity)")
_SPAN_UNITS = {
    "us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60,
    "minutes": 60, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_SPAN = re.compile(rf"(?:\d+(?:\.\d+)?\s*(?:{'|'.join(sorted(_SPAN_UNITS, key=len, reverse=True))})\s*)+")


def plain_text(value: str) -> str:
    """Refuse what no unit file can carry: line breaks and other control characters."""
    for character in value:
        if ord(character) < 32 or ord(character) == 127:
            raise ValueError(f"must not hold line breaks or other control characters (found {character!r})")
    return value


def _program_path(value: str) -> str:
    if not _PROGRAM_PATH.fullmatch(plain_text(value)):
        raise ValueError(
            "must be an absolute path without spaces, quotes, backslashes, '$' or '%' (systemd runs it as is)"
        )
    return value


def _model_ref(value: str) -> str:
    plain_text(value)
    if not value.strip():
        raise ValueError("must not be empty")
    if value.startswith(("./", "../", "~")):
        raise ValueError(
            "must be an absolute path or a repository id such as 'org/name': a service has no home or "
            "current directory of yours to start from"
        )
    return value


def _size(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and _SIZE.fullmatch(value):
        return value
    raise ValueError("must be a size such as '24G', '512M' or '80%', a number of bytes, or 'infinity'")


def _duration(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return f"{value:g}s"
    if isinstance(value, str) and (value == "infinity" or _SPAN.fullmatch(value)):
        return value
    raise ValueError("must be a time such as '90s', '5min' or '1h 30min', a number of seconds, or 'infinity'")


def _env_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError('must be text: write "1" or "true" in quotes, programs differ in which they understand')
    return str(value) if isinstance(value, int) else value


def seconds(duration: str) -> float:
    """The length of a ``Duration`` in seconds; ``inf`` for ``infinity``."""
    if duration == "infinity":
        return float("inf")
    parts: list[tuple[Any, ...]] = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", duration)
    return sum(float(number) * _SPAN_UNITS[unit] for number, unit in parts)


Text = Annotated[str, AfterValidator(plain_text)]
AbsolutePath = Annotated[str, AfterValidator(_program_path)]
ModelRef = Annotated[str, AfterValidator(_model_ref)]
Size = Annotated[str, BeforeValidator(_size)]
Duration = Annotated[str, BeforeValidator(_duration)]
EnvValue = Annotated[str, BeforeValidator(_env_value), AfterValidator(plain_text)]
Port = Annotated[int, Field(ge=1, le=65535)]
