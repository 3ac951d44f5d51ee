"""`inquest alerts`: whether alerts arrive, and what waits."""

import difflib
import os
import pwd
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from forensics import settings
from forensics.cli import client, complete
from forensics.cli.terminal import Formatted
from forensics.errors import InputError, InquestError, SettingsError
from forensics.report import cut, stamp
from forensics.settings.alerts import JOURNAL
from forensics.shapes import AlertsShape, ChannelShape, WaitingShape
from service.terminal import Format, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Whether alerts arrive: send a test, see what waits and why.")

USER = "inquest"
"""Whom the daemon runs as: what it cannot read, a test must not read either."""

CHANNELS = ("channel", "type", "delivered", "waiting", "last delivered (UTC)", "trouble")
WAITING = ("channel", "server", "message", "of", "not before (UTC)", "next try (UTC)", "why")


@app.command()
def status(output: Formatted = Format.TEXT) -> None:
    """Show every channel, what waits for it, and why."""
    found: AlertsShape = client.get("/alerts")
    if output is Format.JSON:
        print_json(found)
        return
    print_table(CHANNELS, [tuple(_channel(channel)) for channel in found["channels"]], whole=CHANNELS[:2])
    if found["waiting"]:
        typer.echo()
        print_table(WAITING, [tuple(_waiting(message)) for message in found["waiting"]], whole=WAITING[:3])


@app.command(name="test")
def send_test(
    channel: Annotated[
        str,
        typer.Argument(help="The channel's name in the settings, or `journal`.", autocompletion=complete.channels),
    ],
    settings_file: Annotated[Path, typer.Option("--settings", help="The settings file.")] = settings.PATH,
) -> None:
    """Send a message that looks true, and say what the receiver answered. As root it is sent as the daemon's user."""
    # Apprise and all that: loaded only where something is sent.
    from forensics.alerts import sinks
    from forensics.alerts.sample import sample

    loaded = settings.load(settings_file)
    known = [JOURNAL, *loaded.alerts.names]
    if channel not in known:
        near = difflib.get_close_matches(channel, known, n=1)
        raise InputError(
            "no-channel",
            f"{settings_file}: no channel {channel!r}",
            (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(known)}.",
        )
    _become_the_daemon()
    [sink] = sinks(loaded, channel)
    began = time.monotonic()
    try:
        answer = sink.send(sample(channel, datetime.now(UTC)))
    except SettingsError:
        raise
    except Exception as error:  # a sink raises whatever it has, and that is the answer
        said = error.message if isinstance(error, InquestError) else f"{type(error).__name__}: {error}"
        raise InquestError("test-failed", f"{channel}: not delivered: {said}") from error
    typer.echo(f"{channel}: delivered in {time.monotonic() - began:.1f} s: {answer}")


def _become_the_daemon() -> None:
    if os.geteuid() != 0:
        return
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        return
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def _channel(channel: ChannelShape) -> Iterator[str]:
    yield channel["name"]
    yield channel["type"]
    yield str(channel["delivered"])
    yield str(channel["waiting"])
    yield stamp(channel["last_delivered_at"]) if channel["last_delivered_at"] else "-"
    yield cut(channel["last_error"], 100) or "-"


def _waiting(message: WaitingShape) -> Iterator[str]:
    yield message["channel"]
    yield message["server"]
    yield f"{message['kind']} ({message['count']})" if message["kind"] == "folded" else message["kind"]
    yield message["id"]
    yield stamp(message["due_at"])
    yield stamp(message["next_try_at"])
    yield cut(message["why"], 100)
