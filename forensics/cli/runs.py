"""`inquest runs`: every run of a server, and the tuning table."""

import csv
import io
import shutil
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli import client, complete
from forensics.errors import InputError, InquestError
from forensics.history import Change
from forensics.report import one_line
from forensics.runs.compare import ended
from forensics.runs.decoding import CONCURRENCY
from forensics.runs.plot import svg
from forensics.runs.shapes import RunEntryShape, ThroughputShape, TuningShape
from service.terminal import print_json, print_table

_PAGE = 200
_SHOWN_CHANGES = 3
_GROUPS = tuple(name for name, _ in CONCURRENCY)
RASTERIZE_SECONDS = 60


class TableFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def runs(
    server: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Only of this server, or unit.", autocompletion=complete.servers),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="The tuning table by this argument of SGLang, for example speculative_num_steps."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many runs.")] = 20,
    output: Annotated[
        TableFormat, typer.Option("--format", help="`json` prints what the API answers.")
    ] = TableFormat.TEXT,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the tuning table: .svg, or .png where rsvg-convert is.")
    ] = None,
) -> None:
    """List runs with their speed, newest first; with --by or --plot the tuning table of a server."""
    if by is None and plot is None:
        _list(server, limit, output)
        return
    if server is None:
        raise typer.BadParameter("a tuning table is of one server: inquest runs NAME --by …", param_hint="NAME")
    table = client.get(f"/servers/{server if '/' not in server else '-'}/tuning", by=by and argument(by))
    show_tuning(table, output)
    if plot is not None:
        draw(table, plot)
        typer.echo(f"drawn: {plot}", err=True)


def argument(key: str) -> str:
    """A key as people know it → the argument's name in `server_args`: `speculative.num_steps` of a spec, or
    `--speculative-num-steps` of a command line."""
    table, _, name = key.lstrip("-").replace("-", "_").rpartition(".")
    return f"speculative_{name}" if table == "speculative" else name


def _list(server: str | None, limit: int, output: TableFormat) -> None:
    found: list[RunEntryShape] = []
    before = None
    while len(found) < limit:
        page = client.get("/runs", server=server, limit=min(limit, _PAGE), before=before)
        found += page["runs"]
        before = page["next"]
        if before is None:
            break
    found = found[:limit]
    if output is TableFormat.JSON:
        print_json(found)
    elif not found and output is TableFormat.TEXT:
        typer.echo("No runs.", err=True)
    else:
        tables = [_throughput(run) for run in found]
        named = [name for name in _GROUPS if any(name in table for table in tables)]
        apart = output is TableFormat.CSV
        kinds = ("best tok/s", "median tok/s") if apart else ("tok/s",)
        speeds = [f"{kind}, {name} running" for name in named for kind in kinds]
        head = ("id", "server", "started", "ready", "ended", "fits", *speeds, "accept", "changed since the run before")
        _print(head, [_row(run, named, apart=apart) for run in found], output)
        if output is TableFormat.TEXT:
            for run in found:
                if run["remark"]:
                    typer.echo(f"{run['id']}: {one_line(run['remark'])}")


def _throughput(run: RunEntryShape) -> dict[str, ThroughputShape]:
    decoded = run["decoding"]
    return {one["running_requests"]: one for one in decoded["throughput"]} if decoded else {}


def _row(run: RunEntryShape, named: Sequence[str], *, apart: bool) -> list[str]:
    decoded, speeds = run["decoding"], _throughput(run)
    return [
        run["id"],
        run["server"],
        f"{run['started_at'][:19].replace('T', ' ')}",
        "-" if run["ready_after_seconds"] is None else f"{run['ready_after_seconds']:.0f} s",
        ended(run),
        _number(run["max_running_requests"]),
        *(cell for name in named for cell in _speed(speeds.get(name), apart=apart)),
        _number(decoded["accept_length"] if decoded else None, 2),
        changed(run),
    ]


def _speed(speed: ThroughputShape | None, *, apart: bool) -> list[str]:
    """Best and median: two cells for programs, one for people."""
    if speed is None:
        return ["-", "-"] if apart else ["-"]
    best, median = f"{speed['best']:.0f}", f"{speed['median']:.0f}"
    return [best, median] if apart else [f"{best} (median {median})"]


def changed(run: RunEntryShape) -> str:
    """The changes to the run before, in short."""
    said = [one_line(str(Change(**change))).replace("`", "") for change in run["changes"]]
    more = len(said) - _SHOWN_CHANGES
    return ", ".join(said[:_SHOWN_CHANGES]) + (f" and {more} more" if more > 0 else "")


def show_tuning(table: TuningShape, output: TableFormat = TableFormat.TEXT) -> None:
    """The tuning table: one row a value."""
    if output is TableFormat.JSON:
        print_json(table)
        return
    named = [name for name in _GROUPS if any(name in row["best"] for row in table["rows"])]
    head = [table["by"], *(f"best tok/s, {name} running" for name in named), "accept", "fits", "runs", "ended"]
    rows = [
        [
            "(unset)" if row["value"] is None else one_line(row["value"]),
            *(_number(row["best"].get(name), 0) for name in named),
            _number(row["accept_length"], 2),
            _number(row["max_running_requests"]),
            str(len(row["runs"])),
            ", ".join(f"{count} × {cause}" if count > 1 else cause for cause, count in row["ends"].items()),
        ]
        for row in table["rows"]
    ]
    _print(head, rows, output)
    if table["also_varied"] and output is TableFormat.TEXT:
        names = table["also_varied"]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        typer.echo(f"These runs differ in other arguments too: {', '.join(names[:8])}{more}.")


def _print(head: Sequence[str], rows: Sequence[Sequence[str]], output: TableFormat) -> None:
    if output is TableFormat.CSV:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([head, *(["" if c == "-" else c for c in row] for row in rows)])
        typer.echo(text.getvalue(), nl=False)
    else:
        print_table(head, rows)


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def draw(table: TuningShape, path: Path) -> None:
    """Write the picture. InputError for a kind of file that cannot be made here."""
    picture = svg(table)
    if path.suffix == ".svg":
        _write(path, picture.encode())
        return
    if path.suffix != ".png":
        raise InputError("picture-kind", f"{path}: a picture is .svg or .png")
    if shutil.which("rsvg-convert") is None:
        raise InputError(
            "no-rasterizer", f"{path}: PNG needs rsvg-convert", "Install librsvg2-bin, or name the file .svg."
        )
    done: Any = subprocess.run(
        ["rsvg-convert", "--zoom", "2"], input=picture.encode(), capture_output=True, timeout=RASTERIZE_SECONDS
    )
    if done.returncode != 0:
        raise InquestError("rasterizer-failed", f"{path}: rsvg-convert: {done.stderr.decode(errors='replace').strip()}")
    _write(path, done.stdout)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError("unwritable", f"{path}: cannot be written: {error.strerror}") from error
