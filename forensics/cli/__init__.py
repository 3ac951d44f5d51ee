"""The terminal: the command `inquest`. Each command is a file of its own, loaded only when it is meant.

What is shown comes from the API, so that a terminal needs no right to the store and sees what everybody sees.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer


class Command(NamedTuple):
    """`where` is `module:attribute`, a function or, for commands with commands of their own, a Typer."""

    name: str
    where: str
    panel: str


_DEATHS, _SERVERS, _SPECS, _MACHINE = "Deaths", "Servers", "Specs and units", "This machine"
COMMANDS = (
    Command("crashes", "forensics.cli.crashes:crashes", _DEATHS),
    Command("show", "forensics.cli.show:show", _DEATHS),
    Command("watch", "forensics.cli.watch:watch", _DEATHS),
    Command("explain", "forensics.cli.explain:explain", _DEATHS),
    Command("analyze", "forensics.cli.analyze:analyze", _DEATHS),
    Command("servers", "forensics.cli.servers:servers", _SERVERS),
    Command("runs", "forensics.cli.runs:runs", _SERVERS),
    Command("diff", "forensics.cli.diff:diff", _SERVERS),
    Command("bench", "forensics.cli.bench:bench", _SERVERS),
    Command("try", "forensics.cli.trial:try_", _SERVERS),
    Command("units", "units.cli:app", _SPECS),
    Command("preflight", "service.cli:preflight", _SPECS),
    Command("plan", "service.cli:plan", _SPECS),
    Command("command", "service.cli:command", _SPECS),
    Command("alerts", "forensics.cli.alerts:app", _MACHINE),
    Command("doctor", "forensics.cli.doctor:doctor", _MACHINE),
    Command("drill", "forensics.cli.drill:drill", _MACHINE),
    Command("daemon", "forensics.cli.daemon:daemon", _MACHINE),
)
COMPLETING = "_INQUEST_COMPLETE"
"""The variable by which a shell asks what comes next."""
EPILOG = (
    "Exit status: 0 done; 1 it could not be done, or a check failed; 2 wrong usage or settings."
    " `inquest preflight` has 69 for a start that would be refused, 78 for a spec with mistakes."
)


def build(only: str | None = None) -> typer.Typer:
    """The command line: all of it, or with one command alone. A command of that name that does not exist is none."""
    app = typer.Typer(
        name="inquest",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Who killed the server? Verdicts on the deaths of SGLang servers under systemd.",
        epilog=EPILOG,
    )
    app.callback()(_options)
    if COMPLETING in os.environ:
        # The scripts for the shells are installed; options that write into people's own files are not needed.
        from typer._completion_classes import completion_init

        completion_init()
    for command in COMMANDS:
        if only in (None, command.name):
            module, _, attribute = command.where.partition(":")
            target: Any = getattr(import_module(module), attribute)
            if isinstance(target, typer.Typer):
                app.add_typer(target, name=command.name, rich_help_panel=command.panel)
            else:
                app.command(name=command.name, rich_help_panel=command.panel)(target)
    return app


def meant(words: Sequence[str]) -> str | None:
    """The one command that these words of a command line need; None where all are."""
    if given := os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS"):
        words = given.split()[1:]
    first = words[0] if words else ""
    return first if first == "--version" or first in {command.name for command in COMMANDS} else None


def _version(value: bool) -> None:  # noqa: FBT001 — as typer calls it
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"inquest {version('inquestd')}\n")
        raise typer.Exit


def _options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Options that stand before a command."""
