"""The terminal: `inquest crashes`, `inquest show`, the daemon's start, and the commands of `units` and `service`.

What is shown comes from the API, so that a terminal needs no right to the store and sees what everybody sees.
"""

from pathlib import Path
from typing import Annotated

import typer

from forensics import settings
from forensics.cli import analyze, commands, diff, runs, servers


def build(*, lean: bool = False) -> typer.Typer:
    """The whole command line; `lean` leaves out what the daemon's own start does not need."""
    app = typer.Typer(
        name="inquest",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Who killed the server? Exit status: 0 done, 1 it could not be done, 2 wrong usage or settings.",
    )
    app.command()(commands.crashes)
    app.command()(commands.show)
    app.command()(analyze.analyze)
    app.command()(servers.servers)
    app.command()(runs.runs)
    app.command()(diff.diff)
    app.command()(daemon)
    if not lean:
        import service.cli
        import units.cli
        from forensics.cli import bench, trial

        app.command()(bench.bench)
        app.command(name="try")(trial.try_)
        app.add_typer(service.cli.app)
        app.add_typer(units.cli.app, name="units")
    return app


def daemon(
    settings_file: Annotated[Path, typer.Option("--settings", help="The settings file.")] = settings.PATH,
) -> None:
    """Run inquestd in the foreground; systemd does this as inquestd.service."""
    from forensics.daemon import main

    raise typer.Exit(main(settings.load(settings_file)))
