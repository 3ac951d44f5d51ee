"""`inquest analyze`: the verdict from saved files."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from forensics.cli.commands import Format, print_lines
from forensics.report import Line, one_line, report


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
        typer.echo(json.dumps(found.as_json(), indent=2))
        return
    for note in found.notes:
        typer.echo(one_line(note), err=True)
    for number, crash in enumerate(found.crashes):
        if number:
            typer.echo("")
        print_lines(_lines(crash))
    if not found.crashes:
        typer.echo(f"No crash: {one_line(found.reason)}.")


def _lines(crash: dict[str, Any]) -> Iterator[Line]:
    """The report, without what saved files did not tell."""
    unknown = {name: "not known" for name in ("died_at", "started_at", "phase") if crash[name] is None}
    evidence = [{**piece, "at": piece["at"] or ""} for piece in crash["evidence"]]
    shown: Any = {**crash, "unit": crash["unit"] or crash["server"], "evidence": evidence, **unknown}
    for line in report(shown):
        if crash["invocation_id"] is None and line.text.startswith("journal  "):
            continue
        if crash["started_at"] is None and line.text.startswith("  ran  "):
            continue
        if crash["became_ready"] is None and line.text.endswith(", was never ready"):
            line = line._replace(text=line.text.removesuffix(", was never ready"))
        yield line


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
