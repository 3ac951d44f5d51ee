"""What the terminal shows of crashes: reports, and what its colours mean."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from forensics.inquest import Line
from service.terminal import Format, console

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


Formatted = Annotated[Format, typer.Option("--format", help="`json` prints what the API answers.")]


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
