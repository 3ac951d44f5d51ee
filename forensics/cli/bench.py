"""`inquest bench`: SGLang's own `bench_serving` on a running server, tied to its run."""

import json
import math
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.systemctl import look, unit_name
from forensics.errors import InputError, InquestError
from forensics.sources.bench import MESSAGE_ID
from service.command import command
from service.load import SpecError, load, names, spec_path
from service.ready import Endpoint
from service.spec import ServerSpec
from service.terminal import Format, print_json, print_table

FIGURES = (
    "completed",
    "duration",
    "request_throughput",
    "output_throughput",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p99_tpot_ms",
    "accept_length",
)
"""What is kept of bench_serving's result, under its own names."""
_LOOK_SECONDS = 1.0
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent: at each concurrency `rounds` times as many requests; the bound for all of it in seconds."""

    concurrency: tuple[int, ...] = (1, 4, 16)
    rounds: int = 4
    input_tokens: int = 256
    output_tokens: int = 256
    within_seconds: float = 600.0
    arguments: tuple[str, ...] = ()


class BenchFailed(InquestError):
    """No figures came of it."""


def bench(
    server: Annotated[
        str, typer.Argument(metavar="NAME", help="The server's name; it must be running.", autocompletion=names)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGS...]", help="More options of bench_serving, such as --dataset-name."),
    ] = None,
    concurrency: Annotated[str, typer.Option(help="How many requests at a time, one measurement each.")] = "1,4,16",
    rounds: Annotated[int, typer.Option(min=1, help="So many times as many requests as run at a time.")] = 4,
    input_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a prompt.")] = 256,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate for each.")] = 256,
    within: Annotated[float, typer.Option(min=1, help="Seconds that all of it may take.")] = 600.0,
    output: Annotated[
        Format, typer.Option("--format", help="`json` prints the figures of each concurrency.")
    ] = Format.TEXT,
) -> None:
    """Measure a running server with SGLang's own bench_serving; the figures stay with the run.

    Prompts are random tokens unless you choose a data set: what a draft accepts of your users' prompts is another
    matter, so for speculation give it real ones: -- --dataset-name sharegpt --dataset-path FILE
    """
    load_ = Load(
        concurrency=parse_concurrency(concurrency),
        rounds=rounds,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        within_seconds=within,
        arguments=tuple(arguments or ()),
    )
    try:
        spec = load(spec_path(server))
    except SpecError as error:
        raise InputError("spec-refused", str(error)) from error
    measured = measure(spec, load_)
    if output is Format.JSON:
        print_json(measured)
    else:
        show(measured)


def parse_concurrency(text: str) -> tuple[int, ...]:
    """`1,4,16`. InputError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 4096 for part in parts):
        raise InputError("bad-concurrency", f"not numbers of requests: {text!r}", "For example --concurrency 1,4,16")
    return tuple(dict.fromkeys(map(int, parts)))


def measure(spec: ServerSpec, load_: Load) -> list[dict[str, float]]:
    """One measurement a concurrency, each told to the journal at once. BenchFailed when the server died, when it took
    too long, or when bench_serving failed; what was measured before that stays with the run."""
    unit = unit_name(spec.name)
    now = look(unit)
    if not now.serves:
        raise BenchFailed(
            "not-running", f"{unit} is {now.active_state or 'not there'}, not active", f"systemctl start {unit}"
        )
    deadline = time.monotonic() + load_.within_seconds
    measured = []
    for concurrency in load_.concurrency:
        sys.stderr.write(f"bench: {concurrency} at a time\n")
        figures = _one(spec, load_, concurrency, unit, now.invocation_id, deadline)
        _remember(unit, now.invocation_id, load_, figures)
        measured.append(figures)
    return measured


def _one(
    spec: ServerSpec, load_: Load, concurrency: int, unit: str, invocation_id: str, deadline: float
) -> dict[str, float]:
    user = pwd.getpwnam(spec.user) if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="inquest-bench-"))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(
                argv(spec, load_, concurrency, folder / "result"),
                env={**_environment(user), **command(spec).env},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                # Its progress bar; with nobody to see it, its last words.
                stderr=None if sys.stderr.isatty() else log,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                start_new_session=True,
            )
            try:
                _wait(process, unit, invocation_id, deadline)
            finally:
                _end(process)
            log.seek(0)
            words = [line for line in log.read().splitlines() if line.strip()][-3:]
        return _result(folder / "result", spec.python, concurrency, load_, words)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def argv(spec: ServerSpec, load_: Load, concurrency: int, result: Path) -> list[str]:
    """bench_serving's command line, run by the interpreter of SGLang's own environment."""
    endpoint = Endpoint(spec.host, spec.port, https=bool(spec.ssl_certfile))
    host = f"[{endpoint.reachable_host}]" if ":" in endpoint.reachable_host else endpoint.reachable_host
    options = {
        "backend": "sglang",
        "base-url": f"{'https' if endpoint.https else 'http'}://{host}:{spec.port}",
        "model": spec.model_path,
        "tokenizer": spec.tokenizer_path or spec.model_path,
        "dataset-name": "random-ids",
        "random-input-len": load_.input_tokens,
        "random-output-len": load_.output_tokens,
        "random-range-ratio": 1.0,
        "num-prompts": concurrency * load_.rounds,
        "max-concurrency": concurrency,
        "output-file": result,
    }
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return [spec.python, "-m", "sglang.bench_serving", *given, *load_.arguments]


def _environment(user: pwd.struct_passwd | None) -> dict[str, str]:
    """This terminal's; but another user's caches lie in that user's home."""
    return {**os.environ, **({"HOME": user.pw_dir, "USER": user.pw_name} if user else {})}


def _wait(process: subprocess.Popen[bytes], unit: str, invocation_id: str, deadline: float) -> None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            return
        now = look(unit)
        if not now.serves or now.invocation_id != invocation_id:
            raise BenchFailed(
                "server-died",
                f"{unit} died during the bench: run {invocation_id[:12]}",
                "What killed it: inquest show",
            )
        if time.monotonic() > deadline:
            raise BenchFailed("bench-too-long", "the bench took longer than it may", "Give it more time: --within")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with all its children, when it has not ended by itself."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


def _result(path: Path, python: str, concurrency: int, load_: Load, words: Sequence[str]) -> dict[str, float]:
    said = "; ".join(words) or "it said nothing"
    try:
        result: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        missing = re.search(r"No module named '([\w.]+)'", said)
        hint = f"Install it beside SGLang: {python} -m pip install {missing[1]}" if missing else ""
        raise BenchFailed("bench-failed", f"bench_serving brought no figures: {said}", hint) from None
    found = {name: value for name in FIGURES if isinstance(value := result.get(name), int | float)}
    figures = {name: round(float(value), 3) for name, value in found.items() if math.isfinite(value)}
    if not figures.get("completed"):
        raise BenchFailed("bench-failed", f"no request was answered well: {said}")
    return {"concurrency": float(concurrency), "requested": float(concurrency * load_.rounds), **figures}


def _remember(unit: str, invocation_id: str, load_: Load, figures: dict[str, float]) -> None:
    """Tell the journal, from which the daemon takes it to the run."""
    from systemd import journal

    options = f"{load_.input_tokens} tokens in, {load_.output_tokens} out"
    options += f"; {' '.join(load_.arguments)}" if load_.arguments else ""
    journal.send(
        f"bench of {unit} with {figures['concurrency']:.0f} at a time: "
        f"{figures.get('output_throughput', 0):.1f} tokens/s generated",
        MESSAGE_ID=MESSAGE_ID,
        PRIORITY="6",
        SYSLOG_IDENTIFIER="inquest",
        INQUEST_UNIT=unit,
        INQUEST_INVOCATION_ID=invocation_id,
        INQUEST_BENCH_OPTIONS=options,
        INQUEST_BENCH_FIGURES=json.dumps(figures),
    )


def show(measured: Sequence[dict[str, float]]) -> None:
    """A row a concurrency."""
    names = ["concurrency", *(name for name in FIGURES if any(name in one for one in measured))]
    rows = [tuple(f"{one[name]:g}" if name in one else "-" for name in names) for one in measured]
    print_table(names, rows)
    for one in measured:
        failed = one["requested"] - one["completed"]
        if failed > 0:
            typer.echo(f"{failed:.0f} of {one['requested']:.0f} requests failed at {one['concurrency']:.0f} at a time.")
    if os.geteuid() != 0:
        typer.echo("Not kept with the run: the daemon believes only what root measured.", err=True)
