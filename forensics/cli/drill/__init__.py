"""`inquest drill`: scratch units that really die on this machine, and whether the verdict was right and was told."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from forensics.cli import client
from forensics.cli.drill.play import Played, play, until
from forensics.cli.drill.scenes import SCENES, Scene
from forensics.cli.terminal import STATES, Formatted
from forensics.errors import InputError, InquestError
from service.terminal import Format, console, print_json, print_table

_STATES = {"right": "ok", "skipped": "skipped", "abstained": "warning", "wrong": "failed", "no verdict": "failed"}
_TAKEN_SECONDS = 5.0
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
    waiting = _waiting()
    if output is Format.JSON:
        print_json({"deaths": [asdict(one) for one in played], "waiting": waiting})
    elif not sys.stdout.isatty():
        print_table(_HEAD, map(_row, played))
    for channel, count in waiting.items():
        typer.echo(f"{channel}: {count} alerts wait to be delivered", err=True)
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


def _waiting() -> dict[str, int]:
    """How many alerts wait for each channel that does not take them within a few seconds."""
    alerts: dict[str, dict[str, int]] = {}

    def all_taken() -> bool | None:
        alerts.update(client.get("/healthz")["alerts"])
        return None if any(states.get("waiting") for states in alerts.values()) else True

    until(all_taken, _TAKEN_SECONDS)
    return {channel: states["waiting"] for channel, states in alerts.items() if states.get("waiting")}


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
