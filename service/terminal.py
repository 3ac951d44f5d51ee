"""How commands answer: tables and colours on a terminal; plain, aligned, uncut when piped; JSON for programs."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Format", "columns", "console", "print_json", "print_table", "rich_table"]


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2))


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    style: Mapping[str, str] = MappingProxyType({}),
    whole: Sequence[str] = (),
) -> None:
    """A table with its head. `style` gives cells of that very text a colour; `whole` are columns that a narrow
    terminal does not break into lines."""
    cells = [tuple(row) for row in rows]
    if not sys.stdout.isatty():
        typer.echo("\n".join(columns([tuple(head), *cells])))
        return
    from rich.text import Text

    table = rich_table(head, whole)
    for row in cells:
        # Text, not markup: a cell can quote a log line.
        table.add_row(*(Text(cell, style=style.get(cell, "")) for cell in row))
    console().print(table)


def rich_table(head: Sequence[str], whole: Sequence[str] = ()) -> "Table":
    """An empty table as all are shown on a terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, header_style="bold", pad_edge=False)
    for name in head:
        table.add_column(name, no_wrap=name in whole, overflow="fold")
    return table


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines with the cells one below the other, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
