"""`inquest try`: a changed spec for a while, and the old one again by itself."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import client, diff
from forensics.cli.bench import Load, parse_concurrency
from forensics.cli.campaign import LOOK_SECONDS, Tried, campaign, say
from forensics.cli.runs import TableFormat, argument, draw, show_tuning
from forensics.cli.systemctl import UnitNow, look, unit_name
from forensics.cli.variants import check_there_is_a_way_back, span, variant
from forensics.errors import InputError, InquestError
from forensics.report import one_line
from forensics.runs.compare import ended, tuning
from forensics.runs.overrides import Override, parse, parse_sweep
from forensics.runs.shapes import RunDetailShape
from service.fields import seconds
from service.load import names, spec_path

_VERDICT_SECONDS = 60.0
_LONGEST_STOP = "10min"
_DEFAULT_HOLD = "1min"


def try_(
    server: Annotated[str, typer.Argument(metavar="NAME", help="The server's name.", autocompletion=names)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A key of the spec on trial; repeatable.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="KEY=V,V,…", help="Try these values one after the other, unattended.")
    ] = None,
    hold: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long each serves: 5m, 90s … (1min without a bench)")
    ] = None,
    bench: Annotated[
        bool | None, typer.Option("--bench/--no-bench", help="Measure each with bench_serving; a sweep does.")
    ] = None,
    concurrency: Annotated[str, typer.Option(help="For the bench: how many requests at a time.")] = "1,4,16",
    rounds: Annotated[int, typer.Option(min=1, help="For the bench: times as many requests as at a time.")] = 4,
    input_tokens: Annotated[int, typer.Option(min=1, help="For the bench: tokens in a prompt.")] = 256,
    output_tokens: Annotated[int, typer.Option(min=1, help="For the bench: tokens to generate.")] = 256,
    ready_within: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time to become ready; the spec's timeout_start otherwise.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a sweep's tuning table (.svg, .png).")] = None,
) -> None:
    """Try a changed spec; the old one comes back by itself when the trial dies, fails or is over.

    Nothing is written to the spec. Ctrl-C, a closed terminal, kill -9 and a reboot leave the old spec in force.
    Exit status 1 when a variant did not serve to its end.
    """
    load_ = Load(
        concurrency=parse_concurrency(concurrency),
        rounds=rounds,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
    with_bench = sweep is not None if bench is None else bench
    hold_seconds = span(hold, "--for") if hold else 0.0 if with_bench else span(_DEFAULT_HOLD, "--for")
    fixed = [parse(text) for text in set_ or ()]
    swept = parse_sweep(sweep) if sweep else ()
    if not fixed and not swept:
        raise InputError("nothing-to-try", "there is nothing to try", "Give --set KEY=VALUE, or --sweep KEY=V,V,…")
    if os.geteuid() != 0:
        raise InquestError("needs-root", "a trial restarts the server: that needs root", "sudo inquest try …")
    variants = [variant(server, (*fixed, one), ready_within) for one in swept] or [variant(server, fixed, ready_within)]
    unit = unit_name(server)
    before = look(unit)
    check_there_is_a_way_back(unit, before, spec_path(server))
    good = _good_run(server, before)
    tried = campaign(unit, before, variants, hold_seconds, load_ if with_bench else None)
    runs = [_settled(one, unit) for one in tried]
    # By now it has ended, and has its last figures.
    good = _run(good["invocation_id"]) if good is not None else None
    _tell(server, tried, runs, good, swept, plot)
    back = _back(unit, before, {one.invocation_id for one in tried})
    if not back or any(one.failure for one in tried) or len(tried) < len(variants):
        raise typer.Exit(1)


def _good_run(server: str, now: UnitNow) -> RunDetailShape | None:
    """The run to compare with: the one that serves now, else the last that was ready."""
    try:
        if now.serves:
            return _run(now.invocation_id)
        runs = client.get("/runs", server=server, limit=50)["runs"]
    except InquestError as error:
        sys.stderr.write(f"There will be no comparison: {error.message}\n")
        return None
    ready = [run for run in runs if run["ready_after_seconds"] is not None]
    return _run(ready[0]["invocation_id"]) if ready else None


def _run(invocation_id: str) -> RunDetailShape | None:
    try:
        found: RunDetailShape = client.get(f"/runs/{invocation_id}")
    except InquestError:
        return None
    return found


# --- after ----------------------------------------------------------------------------------------------------


def _settled(one: Tried, unit: str) -> RunDetailShape | None:
    """The run's record with its verdict; waits for the end of the server's stop. None when the daemon does not say."""
    if not one.invocation_id:
        return None
    until = time.monotonic() + seconds(one.variant.spec.limits.timeout_stop or _LONGEST_STOP) + _VERDICT_SECONDS
    found = None
    while time.monotonic() < until:
        try:
            found = client.get(f"/runs/{one.invocation_id}")
        except InquestError as error:
            if error.code != "not-found":
                sys.stderr.write(f"There is no verdict: {error.message}\n")
                return None
        if found is not None and found["end"] is not None:
            break
        time.sleep(LOOK_SECONDS)
    result: RunDetailShape | None = found
    return result


def _tell(
    server: str,
    tried: Sequence[Tried],
    runs: Sequence[RunDetailShape | None],
    good: RunDetailShape | None,
    swept: Sequence[Override],
    plot: Path | None,
) -> None:
    for one, run in zip(tried, runs, strict=True):
        words = one.failure or "served to its end"
        if run is not None and run["end"] is not None and (one.failure or run["end"]["is_crash"]):
            words += f"; {ended(run)}: {one_line(run['end']['summary'])}"
        name = run["id"] if run is not None else one.invocation_id[:12] or "no run"
        typer.echo(f"{one.variant}: {words} ({name})")
    known = [run for run in runs if run is not None]
    if swept:
        table = tuning(server, known, argument(swept[0].key))
        show_tuning(table, TableFormat.TEXT)
        if plot is not None:
            draw(table, plot)
    elif good is not None and known:
        diff.show(good, known[0])


def _back(unit: str, before: UnitNow, tried: set[str]) -> bool:
    """Wait until the old spec serves again, if it did: in a run that is none of the trial's."""
    if not before.serves:
        typer.echo(f"{unit} is stopped, as it was before.")
        return True
    said, until = "", time.monotonic() + _VERDICT_SECONDS
    while (now := look(unit)).active_state in ("deactivating", "activating", "reloading") or (
        now.invocation_id in tried and time.monotonic() < until
    ):
        words = now.status_text.split(":")[-1].strip()
        if words != said:
            said = words
            say(f"  {words}")
        time.sleep(LOOK_SECONDS)
    if now.serves and now.invocation_id not in tried:
        typer.echo(f"{unit} serves again with the old spec: {now.status_text or 'ready'}.")
        return True
    sys.stderr.write(f"{unit} did not come back with the old spec: it is {now.active_state}; see: inquest show\n")
    return False
