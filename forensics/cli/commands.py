"""`inquest crashes` and `inquest show`."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from forensics.cli import client
from forensics.cli.since import parse_since
from forensics.errors import InquestError
from forensics.report import Line, died, one_line, report
from forensics.shapes import CrashShape

PAGE = 200

# Only these reach the terminal as colours; a reader without them loses nothing.
STYLES = {
    "title": "bold",
    "verdict": "bold red",
    "head": "bold underline",
    "initiating": "red",
    "cascade": "yellow",
    "teardown": "dim",
    "context": "cyan",
    "quiet": "dim",
    "text": "",
}


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


Formatted = Annotated[Format, typer.Option("--format", help="`json` prints what the API answers.")]


def crashes(
    server: Annotated[str | None, typer.Option(help="Only of this server, or of this unit.")] = None,
    cause: Annotated[str | None, typer.Option(help="Only of this cause, for example kernel-oom.")] = None,
    since: Annotated[str | None, typer.Option(help="Only since then: 2h, yesterday, '2026-03-01 12:30' …")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    output: Formatted = Format.TEXT,
) -> None:
    """List crashes, newest first."""
    found = list(_crashes(server, cause, _since(since), limit))
    if output is Format.JSON:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        typer.echo("No crashes.", err=True)
    elif sys.stdout.isatty():
        _table(found)
    else:
        typer.echo("\n".join(_columns([_row(crash) for crash in found])))


def show(
    crash_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The crash's id or its beginning. The newest, if none is given."),
    ] = None,
    output: Formatted = Format.TEXT,
) -> None:
    """The inquest on one crash: verdict, evidence, what it was not, what to do."""
    if crash_id is None:
        newest = list(_crashes(None, None, None, 1))
        if not newest:
            raise InquestError("no-crash", "there is no crash to show")
        crash = newest[0]
    else:
        # The API would take a slash for another path.
        crash = client.get(f"/crashes/{crash_id}" if crash_id.isalnum() else "/crashes/-")
    if output is Format.JSON:
        typer.echo(json.dumps(crash, indent=2))
    else:
        print_lines(report(crash))


def _crashes(server: str | None, cause: str | None, since: str | None, limit: int) -> Iterator[CrashShape]:
    """Page after page, until there are enough."""
    before = None
    while limit > 0:
        page = client.get("/crashes", server=server, cause=cause, since=since, limit=min(limit, PAGE), before=before)
        yield from page["crashes"]
        limit -= len(page["crashes"])
        before = page["next"]
        if before is None:
            return


def _since(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return parse_since(text, datetime.now().astimezone()).isoformat()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None


def _row(crash: CrashShape) -> tuple[str, ...]:
    return (
        crash["id"],
        f"{died(crash)} UTC",
        crash["server"],
        crash["cause"],
        crash["strength"] or "-",
        one_line(crash["summary"]),
    )


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _table(found: Sequence[CrashShape]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "died", "server", "cause", "strength", "what happened", box=box.SIMPLE, header_style="bold")
    for crash in found:
        # Text, not markup: a summary can quote a log line.
        table.add_row(*(Text(cell) for cell in _row(crash)))
    Console().print(table)


def print_lines(lines: Iterator[Line]) -> None:
    """A report: plain when piped, in colours on a terminal."""
    if not sys.stdout.isatty():
        typer.echo("\n".join(line.text for line in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line.text, style=STYLES[line.style]), soft_wrap=line.style == "quiet")
