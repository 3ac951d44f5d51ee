"""``inquest preflight`` and ``inquest command``: a server's start, looked at by hand before systemd does it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from service import command as commands
from service.exit_status import PREFLIGHT_REFUSED, SPEC_REFUSED
from service.load import SpecError, load, spec_path
from service.pairs import notes
from service.preflight import preflight as run_checks
from service.spec import ServerSpec

app = typer.Typer(no_args_is_help=True)

Server = Annotated[str, typer.Argument(help="The server's name, or the path of its TOML file.", show_default=False)]


@app.command()
def preflight(server: Server) -> None:
    """Check whether a server could start now; says what speaks against it, and exits 69 if anything does."""
    spec = _spec(server)
    for note in notes(spec):
        typer.echo(f"note: {note}", err=True)
    refusals = run_checks(spec)
    for refusal in refusals:
        typer.echo(str(refusal), err=True)
    if refusals:
        raise typer.Exit(PREFLIGHT_REFUSED)
    typer.echo(f"{spec.name}: nothing speaks against a start")


@app.command()
def command(server: Server) -> None:
    """Print the command line that the unit runs, ready for a shell, with the variables it sets."""
    run = commands.command(_spec(server))
    typer.echo(shlex.join(["env", *(f"{key}={value}" for key, value in run.env.items()), *run.argv]))


def _spec(server: str) -> ServerSpec:
    try:
        return load(Path(server) if "/" in server or server.endswith(".toml") else spec_path(server))
    except SpecError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(SPEC_REFUSED) from None
