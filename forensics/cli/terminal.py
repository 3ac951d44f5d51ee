"""How answers are written: tables and colours on a terminal; plain, aligned, uncut when piped; JSON for programs."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forensics.inquest import Line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Only these reach the terminal as colours; a reader without them loses nothing. They are readable on dark and light.
STYLES = {
    "verdict": "bold",
    "title": "dim",
    "head": "bold",
    "initiating": "bold red",
    "cascade": "",
    "teardown": "dim",
    "context": "cyan",
    "gap": "magenta",
    "quiet": "dim",
    "text": "",
}
STATES = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


Formatted = Annotated[Format, typer.Option("--format", help="`json` prints what the API answers.")]


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
        table.add_column(name, no_wrap=name in whole)
    return table


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines with the cells one below the other, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def print_lines(lines: Iterable[Line]) -> None:
    """A report: plain when piped; on a terminal in colours, wrapped below the place where each line's words begin."""
    if not sys.stdout.isatty():
        typer.echo("\n".join(line.text for line in lines))
        return
    from rich.text import Text

    out = console()
    for line in lines:
        style = STYLES[line.style]
        head, words = line.text[: line.hang], line.text[line.hang :]
        wrapped = Text(words, style=style).wrap(out, max(20, out.width - line.hang))
        if not wrapped:
            out.print(Text(line.text, style=style))
            continue
        out.print(Text(head + wrapped[0].plain.rstrip(), style=style), soft_wrap=True)
        for more in wrapped[1:]:
            out.print(Text(" " * line.hang + more.plain.rstrip(), style=style), soft_wrap=True)
