"""`inquest try`: a changed spec for a while, and the old one again by itself."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from forensics.cli import client, diff
from forensics.cli.bench import BenchFailed, Load, measure, parse_concurrency, show
from forensics.cli.guard import Guard
from forensics.cli.runs import TableFormat, argument, draw, show_tuning
from forensics.cli.systemctl import UnitNow, look, tell, unit_name
from forensics.errors import InputError, InquestError
from forensics.report import one_line
from forensics.runs.compare import ended, tuning
from forensics.runs.dropin import dropin
from forensics.runs.overrides import Override, apply, parse, parse_sweep
from forensics.runs.shapes import RunDetailShape
from service.fields import seconds
from service.load import SpecError, digest_of, read, spec_path
from service.load import parse as parse_spec
from service.preflight import preflight
from service.spec import ServerSpec
from units.generator import generated
from units.render import render

_LOOK_SECONDS = 0.5
_VERDICT_SECONDS = 60.0
_LONGEST_STOP = "10min"
_DEFAULT_HOLD = "1min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One changed spec: what was changed, the spec itself, its drop-in."""

    overrides: tuple[Override, ...]
    spec: ServerSpec
    dropin: str

    def __str__(self) -> str:
        return ", ".join(map(str, self.overrides))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a variant: the run, and why it ended before its time (empty when it did not)."""

    variant: Variant
    invocation_id: str
    failure: str


def try_(
    server: Annotated[str, typer.Argument(metavar="NAME", help="The server's name.")],
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
    hold_seconds = _span(hold, "--for") if hold else 0.0 if with_bench else _span(_DEFAULT_HOLD, "--for")
    fixed = [parse(text) for text in set_ or ()]
    swept = parse_sweep(sweep) if sweep else ()
    if not fixed and not swept:
        raise InputError("nothing-to-try", "there is nothing to try", "Give --set KEY=VALUE, or --sweep KEY=V,V,…")
    if os.geteuid() != 0:
        raise InquestError("needs-root", "a trial restarts the server: that needs root", "sudo inquest try …")
    variants = [_variant(server, (*fixed, one), ready_within) for one in swept] or [
        _variant(server, fixed, ready_within)
    ]
    unit = unit_name(server)
    before = look(unit)
    _check_there_is_a_way_back(unit, before, spec_path(server))
    good = _good_run(server, before)
    tried = _campaign(unit, before, variants, hold_seconds, load_ if with_bench else None)
    runs = [_settled(one, unit) for one in tried]
    # By now it has ended, and has its last figures.
    good = _run(good["invocation_id"]) if good is not None else None
    _tell(server, tried, runs, good, swept, plot)
    back = _back(unit, before, {one.invocation_id for one in tried})
    if not back or any(one.failure for one in tried) or len(tried) < len(variants):
        raise typer.Exit(1)


# --- before ---------------------------------------------------------------------------------------------------


def _span(text: str, option: str) -> float:
    """Seconds of `5m`, `90s`, `1h 30min`."""
    try:
        value = seconds(f"{text}s" if text.isdecimal() else text)
    except (ValueError, KeyError):
        value = 0.0
    if not value or not math.isfinite(value):
        raise InputError("bad-time", f"{option}: not a time: {text!r}", "For example 90s, 5min, 1h")
    return value


def _variant(server: str, overrides: Sequence[Override], ready_within: str | None) -> Variant:
    """The spec with its changes, checked as a spec is. InputError with every mistake."""
    path = spec_path(server)
    changes = list(overrides)
    if ready_within:
        _span(ready_within, "--ready-within")
        changes.append(Override("limits.timeout_start", ready_within))
    try:
        raw = read(path)
        parse_spec(raw, path)
        changed = apply(raw, changes)
        spec = parse_spec(changed, path)
    except SpecError as error:
        raise InputError("spec-refused", str(error), "Nothing was changed.") from error
    refused = [str(row) for row in preflight(spec, by_hand=True) if row.state == "refused"]
    if refused:
        raise InputError("spec-refused", "\n".join(refused), "Nothing was changed.")
    text = dropin(
        generated(path).text,
        render(spec, path, digest=digest_of(changed), inquest_python=sys.executable),
        [f"On trial: {', '.join(map(str, overrides))}", "Gone when the trial is over, and after a reboot."],
        Restart="no",
    )
    return Variant(overrides=tuple(overrides), spec=spec, dropin=text)


def _check_there_is_a_way_back(unit: str, now: UnitNow, path: Path) -> None:
    """What comes back is what the spec says: it must be what serves now."""
    if now.load_state != "loaded":
        raise InquestError("no-unit", f"{unit} is not known to systemd", "systemctl daemon-reload; inquest units check")
    if now.active_state not in ("active", "inactive", "failed"):
        raise InquestError("unit-busy", f"{unit} is {now.active_state}", "Try again when it serves or rests.")
    edited = now.serves and now.since and path.stat().st_mtime > now.since + 1
    if now.need_daemon_reload or edited:
        raise InquestError(
            "spec-edited",
            f"{path} was changed after {unit} was started: that spec has not served yet, so it cannot be gone back to",
            f"First: systemctl daemon-reload && systemctl restart {unit}",
        )


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


# --- the trial ------------------------------------------------------------------------------------------------


class _Interrupted(BaseException):
    """Somebody wants the trial to end."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the trial in order; from then on they are ignored."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise _Interrupted(signal.Signals(signum).name)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former: dict[int, Any] = {one: signal.signal(one, interrupt) for one in signals}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


def _campaign(
    unit: str, before: UnitNow, variants: Sequence[Variant], hold_seconds: float, load_: Load | None
) -> list[Tried]:
    """Try each; go back whatever happens."""
    tried: list[Tried] = []
    guard = Guard(unit, was_active=before.serves)
    with _interruptible():
        guard.start()
        try:
            for variant in variants:
                _say(f"{variant}: starting {unit}")
                guard.put(variant.dropin)
                tried.append(_try_one(unit, variant, hold_seconds, load_))
        except _Interrupted as interrupted:
            _say(f"interrupted ({interrupted})")
            now = look(unit)
            if len(tried) < len(variants):
                tried.append(
                    Tried(variant=variants[len(tried)], invocation_id=now.invocation_id, failure="interrupted")
                )
        finally:
            _say("going back to the old spec")
            guard.release()
    return tried


def _try_one(unit: str, variant: Variant, hold_seconds: float, load_: Load | None) -> Tried:
    tell("reset-failed", unit, check=False)
    started = _start(unit)
    now = look(unit)
    if not started or not now.serves:
        _say(f"{variant}: did not become ready: {now.status_text or now.active_state}")
        return Tried(variant=variant, invocation_id=now.invocation_id, failure="did not become ready")
    _say(f"{variant}: {now.status_text or 'ready'}")
    failure, begun = "", time.monotonic()
    if load_ is not None:
        try:
            show(measure(variant.spec, load_))
        except BenchFailed as error:
            _say(error.message)
            failure = "died during the bench" if error.code == "server-died" else "the bench failed"
    left = hold_seconds - (time.monotonic() - begun)
    if not failure and left > 0:
        _say(f"{variant}: serving for {left:.0f} s")
        failure = _hold(unit, now.invocation_id, left)
    return Tried(variant=variant, invocation_id=now.invocation_id, failure=failure)


def _start(unit: str) -> bool:
    """`systemctl restart`, which returns when the server answers or has failed; says meanwhile what it does."""
    process = subprocess.Popen(
        ["systemctl", "restart", unit], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    said = ""
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_SECONDS) == 0
            words = look(unit).status_text.split(":")[-1].strip()
            if words and words != said:
                said = words
                _say(f"  {words}")
    finally:
        process.kill()
        process.wait()


def _hold(unit: str, invocation_id: str, for_seconds: float) -> str:
    """Let it serve; why it did not to the end, or empty."""
    until = time.monotonic() + for_seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
        now = look(unit)
        if not now.serves or now.invocation_id != invocation_id:
            return "died"
    return ""


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
        time.sleep(_LOOK_SECONDS)
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
            _say(f"  {words}")
        time.sleep(_LOOK_SECONDS)
    if now.serves and now.invocation_id not in tried:
        typer.echo(f"{unit} serves again with the old spec: {now.status_text or 'ready'}.")
        return True
    sys.stderr.write(f"{unit} did not come back with the old spec: it is {now.active_state}; see: inquest show\n")
    return False


def _say(text: str) -> None:
    # Where the terminal is gone the trial still has to go back.
    with suppress(OSError):
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {one_line(text)}\n")
        sys.stderr.flush()
