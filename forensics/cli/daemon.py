"""`inquest daemon`: what inquestd.service runs. Loads little: the daemon's memory is counted."""

from pathlib import Path
from typing import Annotated

import typer

from forensics import settings


def daemon(
    settings_file: Annotated[Path, typer.Option("--settings", help="The settings file.")] = settings.PATH,
) -> None:
    """Run inquestd in the foreground; systemd does this as inquestd.service."""
    from forensics.daemon import main

    raise typer.Exit(main(settings.load(settings_file)))
