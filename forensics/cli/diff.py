"""`inquest diff`: two runs side by side."""

import sys
from typing import Annotated

import typer

from forensics.cli import client
from forensics.cli.terminal import Formatted
from forensics.errors import InputError, InquestError
from forensics.report import one_line
from forensics.runs.compare import Pair, compared
from forensics.runs.shapes import RunDetailShape
from service.terminal import Format, console, print_json, print_table, rich_table

_HELP = "A run's id or its beginning; or a server's name for its newest run, NAME~1 for the one before, and so on."


def diff(
    first: Annotated[str, typer.Argument(metavar="RUN", help=_HELP)],
    second: Annotated[str, typer.Argument(metavar="RUN", help="The other run, named likewise.")],
    output: Formatted = Format.TEXT,
) -> None:
    """Two runs side by side: the arguments that differ, memory, speed, end."""
    runs = [named(first), named(second)]
    if output is Format.JSON:
        rows = [pair._asdict() for pair in compared(*runs)]
        print_json({"runs": [run["invocation_id"] for run in runs], "rows": rows})
        return
    show(*runs)


def named(name: str) -> RunDetailShape:
    """The run that is meant. InputError when there is none."""
    if name and set(name) <= set("0123456789abcdef"):
        try:
            by_id: RunDetailShape = client.get(f"/runs/{name}")
            return by_id
        except InquestError as error:
            if error.code != "not-found":
                raise
    server, _, back = name.partition("~")
    if back and not back.isdecimal():
        raise InputError("bad-run", f"not a run: {name!r}", _HELP)
    number = int(back or 0)
    runs = client.get("/runs", server=server, limit=min(number + 1, 500))["runs"]
    if len(runs) <= number:
        raise InputError("no-run", f"{server} has {len(runs)} runs in the store; {name!r} is none of them", _HELP)
    found: RunDetailShape = client.get(f"/runs/{runs[number]['invocation_id']}")
    return found


def show(first: RunDetailShape, second: RunDetailShape) -> None:
    """The comparison on the terminal."""
    pairs = compared(first, second)
    head = ("", f"{first['server']} {first['id']}", f"{second['server']} {second['id']}")
    if sys.stdout.isatty():
        _table(head, pairs)
    else:
        print_table(head, [(pair.name, _side(pair.first), _side(pair.second)) for pair in pairs])


def _table(head: tuple[str, str, str], pairs: list[Pair]) -> None:
    from rich.text import Text

    table = rich_table(head)
    section = ""
    for pair in pairs:
        if pair.section != section:
            section = pair.section
            table.add_section()
        style = "" if pair.first == pair.second else "bold"
        table.add_row(pair.name, Text(_side(pair.first), style=style), Text(_side(pair.second), style=style))
    console().print(table)


def _side(text: str | None) -> str:
    return "-" if text is None else one_line(text)
