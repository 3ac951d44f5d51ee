"""`inquest analyze`: the verdict from saved files."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, cast

import typer

from forensics.cli.terminal import print_lines
from forensics.inquest import report
from forensics.report import one_line
from forensics.shapes import CrashShape
from service.terminal import Format, print_json


def analyze(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files or folders of one incident; - is standard input.")
    ],
    unit: Annotated[str | None, typer.Option(help="Only this unit, for example sglang-demo.service.")] = None,
    output: Annotated[
        Format, typer.Option("--format", help="`json` prints one object with all crashes.")
    ] = Format.TEXT,
) -> None:
    """Judge from saved files: journals, dmesg, systemctl's output, plain logs, as one body of evidence.

    Exit status 0 when the files could be read, whether or not there is a crash in them; 2 when they could not.
    """
    from forensics.analyze import analyze as judge

    with _progress(paths) as advance:
        found = judge(paths, unit, advance)
    if output is Format.JSON:
        print_json(found.as_json())
        return
    for note in found.notes:
        typer.echo(one_line(note), err=True)
    for number, crash in enumerate(found.crashes):
        if number:
            typer.echo("")
        print_lines(report(cast(CrashShape, crash)))
    if not found.crashes:
        typer.echo(f"No crash: {one_line(found.reason)}.")


@contextmanager
def _progress(paths: list[str]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from forensics.analyze import total_bytes

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=total_bytes(paths) or None)
        yield lambda count: progress.advance(task, count)
