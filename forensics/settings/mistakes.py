"""Mistakes in the file, each on one line: the key as TOML writes it, what is wrong, what is allowed, what was probably
meant."""

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from forensics.settings.values import Table

SECRET = frozenset({"webhooks", "alertmanagers", "otlp", "apprise", "commands", "token"})
"""Tables and keys whose values are not repeated: tokens stand in URLs and headers."""

# pydantic puts the chosen member of a union into the location; people did not write that.
_UNION_TAGS = frozenset({"text", "table"})


def problems(error: ValidationError, settings: type[Table]) -> Iterator[str]:
    """One line a mistake of a file that was read as `settings`."""
    for detail in error.errors(include_url=False):
        where = [part for part in detail["loc"] if part not in _UNION_TAGS]
        if detail["type"] == "extra_forbidden":
            yield _unknown_key(where, _table(settings, where[:-1]))
        else:
            yield f"{_key(where)}: {_what(detail)}"


def _what(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        said = str(detail["ctx"]["error"])
    else:
        said = detail["msg"][:1].lower() + detail["msg"][1:]
    given = detail["input"]
    if isinstance(given, dict | list) or SECRET & set(detail["loc"]):
        return said
    return f"{said} (it is {given!r})"


def _unknown_key(where: list[Any], table: type[Table]) -> str:
    allowed = list(table.model_fields)
    near = difflib.get_close_matches(str(where[-1]), allowed, n=1)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return f"{_key(where)}: unknown key{meant} Allowed here: {', '.join(allowed)}".replace(
        "key Allowed", "key. Allowed"
    )


def _table(table: type[Table], where: list[Any]) -> type[Table]:
    """The table at a place of the file."""
    for part in where:
        if part in table.model_fields:
            table = next(_tables(table.model_fields[part].annotation), table)
    return table


def _tables(annotation: Any) -> Iterator[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation
    for part in get_args(annotation):
        yield from _tables(part)


def _key(where: list[Any]) -> str:
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the file"
