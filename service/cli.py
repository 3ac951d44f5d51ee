"""``inquest preflight``, ``plan`` and ``command``: a server's start, looked at by hand before systemd does it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service import command as commands
from service.exit_status import PREFLIGHT_REFUSED, SPEC_REFUSED
from service.forecast import Forecast, forecast
from service.gpus import NoGpus, ask
from service.installed import NoInterpreter, NoSglang, Version, find
from service.load import SpecError, load, names, spec_path
from service.logged import memory_lines
from service.observed import Observed, observed
from service.pair import pair
from service.pairs import notes
from service.plan import printed
from service.preflight import preflight as run_checks
from service.review import made_of
from service.spec import ServerSpec
from service.terminal import Format, print_json, print_table

GPU_SECONDS = 10.0
_STYLES = {"ok": "green", "warning": "yellow", "refused": "bold red", "unknown": "dim"}

app = typer.Typer(no_args_is_help=True)

Server = Annotated[
    str,
    typer.Argument(help="The server's name, or the path of its TOML file.", show_default=False, autocompletion=names),
]


@app.command()
def preflight(
    server: Server,
    output: Annotated[Format, typer.Option("--format", help="`json` prints the checks as a list.")] = Format.TEXT,
) -> None:
    """Check whether a server could start now; says what speaks against it, and exits 69 if anything does."""
    spec = _spec(server)
    for note in (*notes(spec), *made_of(spec)):
        typer.echo(f"note: {note}", err=True)
    rows = run_checks(spec, by_hand=True)
    if output is Format.JSON:
        print_json([asdict(row) for row in rows])
    else:
        print_table(("check", "state", "finding"), [(r.check, r.state, r.words) for r in rows], style=_STYLES)
    if any(row.state == "refused" for row in rows):
        typer.echo(f"{spec.name}: would be refused", err=True)
        raise typer.Exit(PREFLIGHT_REFUSED)
    typer.echo(f"{spec.name}: nothing speaks against a start", err=True)


@app.command()
def plan(
    server: Server,
    gpu_memory: Annotated[
        str | None, typer.Option(help="A GPU's memory, such as 80G; by default that of the first GPU here.")
    ] = None,
    free_memory: Annotated[
        str | None, typer.Option(help="What SGLang will find free before it loads, where that is known.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Show what changes with so many speculative steps.", min=1)] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="A run's log, for SGLang's own figures; by default the unit's last start.", exists=True),
    ] = None,
) -> None:
    """Forecast how SGLang will divide a GPU's memory, and how many requests of which length will fit."""
    spec = _spec(server)
    if log is not None:
        with log.open(encoding="utf-8", errors="replace") as lines:
            seen: Observed | None = observed(lines)
    else:
        seen = observed(memory_lines(f"sglang-{spec.name}.service"))
    seen = None if seen == Observed() else seen
    models = pair(spec)
    for finding in models.findings:
        typer.echo(str(finding), err=True)
    if models.target is None:
        typer.echo(f"{spec.model_path} is not on this machine: its config.json is needed for a forecast", err=True)
        raise typer.Exit(1)
    before = _bytes(free_memory) if free_memory else seen and seen.before_gib and int(seen.before_gib * 2**30)
    size = _bytes(gpu_memory) if gpu_memory else _first_gpu() or before
    if not size:
        typer.echo("no GPU tells its memory here: give --gpu-memory, such as 80G", err=True)
        raise typer.Exit(2)
    version = _installed_version(spec)

    def made(spec: ServerSpec) -> Forecast:
        assert models.target is not None
        return forecast(spec, models.target, models.draft, gpu_bytes=size, before_bytes=before or None, version=version)

    try:
        other = None
        if steps is not None:
            changed = spec.speculative.model_copy(update={"num_steps": steps})
            if changed.eagle_topk != 1 and changed.num_draft_tokens is not None:
                typer.echo("with a tree (eagle_topk above 1) the draft tokens stay as they are given", err=True)
            other = steps, made(spec.model_copy(update={"speculative": changed}))
        printed(made(spec), seen, other, _console())
    except ValueError as error:
        typer.echo(f"no forecast: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def command(server: Server) -> None:
    """Print the command line that the unit runs, ready for a shell, with the variables it sets."""
    run = commands.command(_spec(server))
    typer.echo(shlex.join(["env", *(f"{key}={value}" for key, value in run.env.items()), *run.argv]))


_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _bytes(size: str) -> int:
    number, unit = (size[:-1], size[-1]) if size[-1:] in _UNITS else (size, "")
    try:
        return int(float(number) * _UNITS.get(unit, 1))
    except ValueError:
        typer.echo(f"{size!r} is not a size such as 80G", err=True)
        raise typer.Exit(2) from None


def _first_gpu() -> int | None:
    try:
        found = ask(GPU_SECONDS).gpus
    except NoGpus:
        return None
    return found[0].total_bytes if found else None


def _installed_version(spec: ServerSpec) -> Version | None:
    try:
        installed = find(spec.python, commands.command(spec).env)
    except (NoInterpreter, NoSglang):
        return None
    return installed.version if installed else None


def _console() -> Console:
    """Whole lines where nobody looks at a terminal: a pipe has no width."""
    return Console() if sys.stdout.isatty() else Console(width=400, soft_wrap=True)


def _spec(server: str) -> ServerSpec:
    try:
        return load(Path(server) if "/" in server or server.endswith(".toml") else spec_path(server))
    except SpecError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(SPEC_REFUSED) from None
