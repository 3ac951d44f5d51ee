"""``inquest units show | check | write | keys``: by hand what the generator does at every daemon-reload."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.load import SERVERS_DIR, load, names, spec_path
from service.pairs import notes
from service.review import made_of, review
from service.terminal import Format, print_json, print_table
from units.generator import Generated, generated
from units.keys import keys
from units.verify import verify
from units.write import write

app = typer.Typer(no_args_is_help=True, help="The systemd units that are generated from servers' specs.")

SPEC_HELP = "A server's name, or the path of a TOML file."


@app.command()
def show(server: Annotated[str, typer.Argument(help=SPEC_HELP, show_default=False, autocompletion=names)]) -> None:
    """Print the unit that is generated from a spec; exits 1 when the spec has mistakes (then it is a refusal)."""
    unit = generated(_path(server))
    typer.echo(unit.text, nl=False)
    if unit.problems:
        raise typer.Exit(1)


@app.command()
def check(
    servers: Annotated[
        list[str] | None, typer.Argument(help=SPEC_HELP + " All, if none is given.", autocompletion=names)
    ] = None,
) -> None:
    """Say what is wrong with specs, in plain words, and let systemd verify the units made from them."""
    paths = [_path(server) for server in servers] if servers else sorted(SERVERS_DIR.glob("*.toml"))
    if not paths:
        typer.echo(f"no spec in {SERVERS_DIR}: there is nothing to check", err=True)
    good: list[Generated] = []
    ports: dict[int, str] = {}
    failed = False
    for path in paths:
        unit = generated(path)
        if unit.problems:
            failed = True
            for problem in unit.problems:
                typer.echo(str(problem), err=True)
            continue
        good.append(unit)
        spec = load(path)
        for note in (*notes(spec), *made_of(spec)):
            typer.echo(f"{path}: note: {note}")
        found = review(spec)
        for finding in found:
            typer.echo(f"{path}: {'' if finding.is_error else 'note: '}{finding}", err=finding.is_error)
        wrong = any(finding.is_error for finding in found)
        failed = failed or wrong
        if (other := ports.setdefault(spec.port, spec.name)) != spec.name:
            typer.echo(f"{path}: note: port {spec.port} is that of {other} as well: only one of them can run at a time")
        typer.echo(f"{path}: {'' if wrong else 'good, '}makes {unit.unit}")
    complaints = verify(good)
    for complaint in complaints or ():
        typer.echo(f"systemd-analyze verify: {complaint}", err=True)
    if complaints is None:
        typer.echo("systemd-analyze is not installed: the units were not verified by systemd", err=True)
    if failed or complaints:
        raise typer.Exit(1)


@app.command(name="write")
def write_units(
    servers: Annotated[
        list[str] | None, typer.Argument(help=SPEC_HELP + " All, if none is given.", autocompletion=names)
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="The folder to write to; from there systemd takes units as they are.")
    ] = Path("/etc/systemd/system"),
) -> None:
    """Write units by hand, for a machine without the generator; specs with mistakes are left out (exit 1)."""
    paths = [_path(server) for server in servers] if servers else sorted(SERVERS_DIR.glob("*.toml"))
    failed = False
    for unit in map(generated, paths):
        if unit.problems:
            failed = True
            for problem in unit.problems:
                typer.echo(str(problem), err=True)
        else:
            typer.echo(f"wrote {write(unit, directory)}")
    typer.echo("now: systemctl daemon-reload")
    if failed:
        raise typer.Exit(1)


@app.command(name="keys")
def list_keys(
    output: Annotated[Format, typer.Option("--format", help="`json` prints the keys as a list.")] = Format.TEXT,
) -> None:
    """List every key of a spec: what holds when it is not given, and the option or directive that it sets."""
    if output is Format.JSON:
        print_json([asdict(key) for key in keys()])
    else:
        print_table(("key", "default", "sets"), [(key.name, key.default, key.becomes) for key in keys()])


def _path(server: str) -> Path:
    return Path(server).absolute() if "/" in server or server.endswith(".toml") else spec_path(server)
