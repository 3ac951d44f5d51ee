"""`inquest servers`: every server that ran, and how it is."""

from collections.abc import Iterator

import typer

from forensics.cli import client
from forensics.cli.terminal import Formatted
from forensics.report import one_line
from forensics.shapes import LastRunShape, RunningShape, ServerShape
from service.terminal import Format, print_json, print_table

HEAD = ("server", "state", "runs", "crashes", "last crash")


def servers(output: Formatted = Format.TEXT) -> None:
    """List the servers: running since when, how often and of what they died, what is odd about their speculation."""
    found: list[ServerShape] = client.get("/servers")["servers"]
    if output is Format.JSON:
        print_json(found)
        return
    if not found:
        typer.echo("No servers.", err=True)
        return
    rows = [tuple(row(server)) for server in found]
    print_table(HEAD, rows)
    for server in found:
        if server["remark"]:
            typer.echo(f"{server['server']}: {one_line(server['remark'])}")


def row(server: ServerShape) -> Iterator[str]:
    running = server["running"]
    yield server["server"]
    yield _state(running) if running else f"ended{_ended(server['last_run'])}"
    yield str(server["runs"])
    yield str(server["crashes"])
    crash = server["last_crash"]
    yield f"{crash['cause']}, {_stamp(crash['died_at'])} ({crash['id']})" if crash else "-"


def _state(running: RunningShape) -> str:
    silent = running["not_answering_since"]
    return f"not answering since {_stamp(silent)}" if silent else f"running since {_stamp(running['since'])}"


def _ended(run: LastRunShape | None) -> str:
    return f" {_stamp(run['died_at'])}, {run['cause']}" if run else ""


def _stamp(text: str) -> str:
    return text[:19].replace("T", " ")
