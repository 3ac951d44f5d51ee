"""`inquest watch`: what happens, as it happens. On a terminal the servers' states stand below it."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli import client, complete
from forensics.cli.servers import HEAD, row
from forensics.cli.stream import Happened, events
from forensics.errors import InquestError
from forensics.report import judged, one_line, stamp
from service.terminal import Format, console, rich_table

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {
    "crash": "bold red",
    "given up by systemd": "bold red",
    "does not answer": "bold red",
    "corrected": "yellow",
    "ready": "green",
    "answers again": "green",
    "ended": "dim",
    "inquestd": "magenta",
}
_OF_LIVING = {
    "run-started": "started",
    "run-ready": "ready",
    "hang": "does not answer",
    "answering": "answers again",
}
_OF_DEATHS = {"amended": "corrected", "run-ended": "ended", "start-limit": "given up by systemd"}
Say = Callable[[str, str], None]
"""Prints a line; the first argument is what happened in a word."""


def watch(
    server: Annotated[
        str | None, typer.Option(help="Only of this server, or of this unit.", autocompletion=complete.servers)
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", help="`json` prints one object a line: event, id and data.")
    ] = Format.TEXT,
) -> None:
    """Follow what happens: starts, ends and verdicts, a line each, until Ctrl-C, which is exit status 0.

    While the daemon is away it waits for it, and misses nothing of what it then tells.
    """
    # The same for whoever ends it otherwise: the terminal gets its cursor back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _screen(server, output) as (say, refresh):
            _follow(server, output, say, refresh)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _follow(server: str | None, output: Format, say: Say, refresh: Callable[[], None]) -> None:
    away = False
    for event in events():
        if event.kind == "lost":
            if not away:
                say("inquestd", f"{_now()}  {one_line(event.data)}; waiting for it")
            away = True
            continue
        if away:
            say("inquestd", f"{_now()}  inquestd answers again")
            away = False
        if event.kind == "reset":
            say("inquestd", f"{_now()}  it was away for too long to tell all that happened: see `inquest crashes`")
        elif event.kind != "alive" and _wanted(event, server):
            if output is Format.JSON:
                typer.echo(json.dumps({"event": event.kind, "id": event.id, "data": event.data}))
            else:
                say(*described(event))
        refresh()


def _wanted(event: Happened, server: str | None) -> bool:
    return server is None or server in (event.data.get("server"), event.data.get("unit"))


def described(event: Happened) -> tuple[str, str]:
    """What happened in a word, and the line that tells it."""
    data = event.data
    if word := _OF_LIVING.get(event.kind):
        said = one_line(str(data.get("said", "")))
        at = stamp(data.get("started_at") or data["at"])
        return word, f"{at}  {data['server']}  {word}{': ' if said else ''}{said}"
    word = _OF_DEATHS.get(event.kind, event.kind)
    line = f"{stamp(data['died_at'])}  {data['server']}  {word}: {judged(data)} ({data['id']})"
    return word, f"{line}: {one_line(data['summary'])}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


@contextmanager
def _screen(server: str | None, output: Format) -> Iterator[tuple[Say, Callable[[], None]]]:
    """Where lines go, and how the servers' states below them are brought up to date."""
    if output is Format.JSON or not sys.stdout.isatty():

        def plain(word: str, line: str) -> None:
            # What the daemon did is no event: a program that reads the lines gets only those.
            typer.echo(line, err=word == "inquestd")

        yield plain, lambda: None
        return
    from rich.live import Live
    from rich.text import Text

    out = console()
    with Live(_states(server), console=out, auto_refresh=False, transient=True) as live:

        def say(word: str, line: str) -> None:
            out.print(Text(line, style=_STYLES.get(word, "")))

        yield say, lambda: live.update(_states(server), refresh=True)


def _states(server: str | None) -> "Table":
    from rich.text import Text

    table = rich_table(HEAD)
    try:
        found = client.get("/servers")["servers"]
    except InquestError:
        found = []
    for one in found:
        if server in (None, one["server"], one["unit"]):
            table.add_row(*(Text(cell) for cell in row(one)))
    return table
