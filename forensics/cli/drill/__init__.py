"""`inquest drill`: scratch units that really die on this machine, and whether the verdict was right and was told."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from forensics.cli import client
from forensics.cli.drill.play import Played, play, until
from forensics.cli.drill.scenes import SCENES, Scene
from forensics.cli.terminal import STATES, Formatted
from forensics.errors import InputError, InquestError
from forensics.report import one_line
from forensics.shapes import WaitingShape
from service.terminal import Format, console, print_json, print_table

_STATES = {"right": "ok", "skipped": "skipped", "abstained": "warning", "wrong": "failed", "no verdict": "failed"}
_TRIED_SECONDS = 5.0
_HEAD = ("death", "outcome", "verdict", "told", "seconds", "crash", "words")


def _causes(incomplete: str) -> list[tuple[str, str]]:
    return [(scene.cause, scene.what) for scene in SCENES if scene.cause.startswith(incomplete)]


def drill(
    cause: Annotated[
        list[str] | None,
        typer.Option(help="Only this death; may be given several times.", autocompletion=_causes),
    ] = None,
    output: Formatted = Format.TEXT,
) -> None:
    """Let scratch units die on this machine, and see whether Inquest judges rightly and tells it. Needs root.

    Each is a transient unit sglang-inquest-drill-CAUSE.service, gone afterwards; no other unit is touched. Its crash is
    kept and told as every other, under that name. Exit status 1 when a verdict was not right or not told.
    """
    scenes = _chosen(cause or [])
    if os.geteuid() != 0:
        raise InquestError("needs-root", "a drill makes units and kills them: that needs root", "sudo inquest drill")
    _check_watched(scenes)
    played: list[Played] = []
    with _interruptible():
        try:
            for scene in scenes:
                with _doing(scene):
                    played.append(play(scene))
                if output is Format.TEXT and sys.stdout.isatty():
                    _print(played[-1])
        except KeyboardInterrupt:
            typer.echo("interrupted; the scratch unit is gone", err=True)
            raise typer.Exit(130) from None
    undelivered = _undelivered()
    if output is Format.JSON:
        print_json({"deaths": [asdict(one) for one in played], "undelivered": undelivered})
    elif not sys.stdout.isatty():
        print_table(_HEAD, map(_row, played))
    for channel, why in undelivered.items():
        typer.echo(f"{channel}: alerts do not arrive: {one_line(why)}", err=True)
    if not all(one.good for one in played):
        raise typer.Exit(1)


def _chosen(causes: Sequence[str]) -> list[Scene]:
    known = {scene.cause: scene for scene in SCENES}
    for cause in causes:
        if cause not in known:
            raise InputError("no-scene", f"no drill for {cause!r}", f"There is one for: {', '.join(known)}.")
    return [scene for scene in SCENES if scene.cause in causes or not causes]


def _check_watched(scenes: Sequence[Scene]) -> None:
    globs = client.get("/healthz")["units"]
    for scene in scenes:
        if not any(fnmatchcase(scene.unit, glob) for glob in globs):
            raise InquestError(
                "not-watched",
                f"inquestd watches {', '.join(globs)}, and so not {scene.unit}",
                'Add "sglang-inquest-drill-*.service" to `units` in /etc/inquest/inquestd.toml for the drill.',
            )


def _undelivered() -> dict[str, str]:
    """Channels that do not take what they are sent, each with the reason. Given a few seconds to be tried at all."""
    until(lambda: None if any(_is_due(one) for one in client.get("/alerts")["waiting"]) else True, _TRIED_SECONDS)
    channels = client.get("/alerts")["channels"]
    return {one["name"]: one["last_error"] for one in channels if one["waiting"] and one["last_error"]}


def _is_due(message: WaitingShape) -> bool:
    return message["attempts"] == 0 and datetime.fromisoformat(message["due_at"]) <= datetime.now(UTC)


@contextmanager
def _interruptible() -> Iterator[None]:
    """A closed terminal and SIGTERM end a drill as Ctrl-C does: the scratch unit is taken away first."""
    former: dict[int, Any] = {
        one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


@contextmanager
def _doing(scene: Scene) -> Iterator[None]:
    words = f"{scene.cause}: {scene.what}"
    if sys.stderr.isatty():
        with console(stderr=True).status(words):
            yield
    else:
        typer.echo(words, err=True)
        yield


def _row(one: Played) -> tuple[str, ...]:
    told = {True: "yes", False: "no", None: "-"}[one.told]
    seconds = "-" if one.seconds is None else f"{one.seconds:.1f}"
    return (one.cause, one.outcome, one.verdict or "-", told, seconds, one.crash_id or "-", one.words)


def _print(one: Played) -> None:
    from rich.padding import Padding
    from rich.text import Text

    style = STATES[_STATES[one.outcome]]
    line = Text.assemble((f"{one.outcome:<10}", style), f"  {one.what}")
    if one.verdict:
        told = "told" if one.told else "NOT TOLD in the journal"
        line.append(f" → {one.verdict}, {told}, after {one.seconds} s ({one.crash_id})")
    out = console()
    out.print(line, soft_wrap=True)
    out.print(Padding(Text(one.words, style="dim"), (0, 0, 0, 12)))
