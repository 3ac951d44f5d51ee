"""`inquest crashes`: the list."""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from forensics.cli import client, complete
from forensics.cli.since import SINCE_HELP, since_text
from forensics.cli.terminal import Formatted
from forensics.report import died, one_line
from forensics.shapes import CrashShape
from service.terminal import Format, console, print_json, print_table

PAGE = 200
WIDE = 130
"""From so many columns on, what happened stands beside the rest; below it, otherwise."""
_HEAD = ("id", "died (UTC)", "server", "cause", "strength", "what happened")


def crashes(
    server: Annotated[
        str | None, typer.Option(help="Only of this server, or of this unit.", autocompletion=complete.servers)
    ] = None,
    cause: Annotated[
        str | None, typer.Option(help="Only of this cause, for example kernel-oom.", autocompletion=complete.causes)
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"Only since then: {SINCE_HELP}")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    output: Formatted = Format.TEXT,
) -> None:
    """List crashes, newest first."""
    found = list(fetched(server=server, cause=cause, since=since_text(since), limit=limit))
    if output is Format.JSON:
        print_json(found)
    elif not found:
        typer.echo("No crashes.", err=True)
    elif sys.stdout.isatty() and console().width < WIDE:
        _print_narrow(found)
    else:
        print_table(_HEAD, map(_row, found), whole=_HEAD[:-1])


def fetched(
    *, limit: int, server: str | None = None, cause: str | None = None, since: str | None = None
) -> Iterator[CrashShape]:
    """Newest first, page after page, until there are enough."""
    before = None
    while limit > 0:
        page = client.get("/crashes", server=server, cause=cause, since=since, limit=min(limit, PAGE), before=before)
        yield from page["crashes"]
        limit -= len(page["crashes"])
        before = page["next"]
        if before is None:
            return


def _row(crash: CrashShape) -> tuple[str, ...]:
    return (
        crash["id"],
        died(crash),
        crash["server"],
        crash["cause"],
        crash["strength"] or "-",
        one_line(crash["summary"]),
    )


def _print_narrow(found: Sequence[CrashShape]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    for crash in found:
        shown = _row(crash)
        strength = f", {shown[4]}" if crash["strength"] else ""
        line = Text.assemble(shown[0], "  ", (shown[1], "dim"), f"  {shown[2]}  ", (f"{shown[3]}{strength}", "bold"))
        out.print(line, overflow="fold")
        out.print(Padding(Text(shown[5], style="dim"), (0, 0, 0, 2)))
