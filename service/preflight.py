"""Checks before a start: what certainly cannot work is refused in a sentence, before a model is loaded in vain.

Run by ``ExecStartPre=`` as the server's user, and by hand. ``CHECKS`` lists them in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from service import checks, machine_checks
from service.exit_status import PREFLIGHT_REFUSED
from service.load import SpecError, digest_of, parse, read, spec_path
from service.notify import status
from service.pairs import notes
from service.review import made_of
from service.row import Row, good, unknown
from service.spec import ServerSpec

__all__ = ["CHECKS", "main", "preflight"]

Check = Callable[[ServerSpec], Row | None]
CHECKS: tuple[Check, ...] = (
    checks.interpreter,
    checks.options,
    checks.model_path,
    checks.draft_model_path,
    checks.models,
    checks.port,
    machine_checks.driver,
    machine_checks.left_over,
    machine_checks.gpu_memory,
    machine_checks.host_memory,
    machine_checks.shared_memory,
    machine_checks.disk,
)
# What a running server has itself is not held against it.
_OF_A_START = frozenset({checks.port, machine_checks.left_over, machine_checks.gpu_memory})


def preflight(spec: ServerSpec, *, by_hand: bool = False) -> tuple[Row, ...]:
    """What every check found, in order; nothing speaks against a start where none is refused."""
    rows: list[Row] = []
    pid = _running(spec) if by_hand else 0
    if pid:
        rows.append(good("unit", f"it runs now as pid {pid}: its port and GPU memory are not checked"))
    for check in CHECKS:
        if pid and check in _OF_A_START:
            continue
        try:
            row = check(spec)
        except Exception as error:  # a check that breaks must not keep a server from starting
            row = unknown(check.__name__.replace("_", "-"), f"could not be checked: {error!r}")
        if row is not None:
            rows.append(row)
    return tuple(rows)


def _running(spec: ServerSpec) -> int:
    """The pid of the server's main process where systemd has it running, else 0."""
    argv = ["systemctl", "show", "--property=MainPID", "--value", f"sglang-{spec.name}.service"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
        return int(done.stdout.strip() or 0)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def main(server: str, digest: str | None = None) -> int:
    """Check the server named `server`. `digest` is that of the spec which the unit was generated from.

    Another digest means that the spec was edited since: the unit starts what it says, which cannot be checked by
    the edited file. Then, as where the file is unreadable for the server's user, nothing is refused.
    """
    # A stop that comes meanwhile is no failure of the unit.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    path = spec_path(server)
    try:
        raw = read(path)
        changed = digest is not None and digest_of(raw) != digest
        spec = None if changed else parse(raw, path)
    except SpecError as error:
        _say(f"<4>inquest: preflight: not checked: {error}")
        return 0
    if spec is None:
        _say(f"<4>inquest: preflight: not checked: {path} has changed since; systemctl daemon-reload makes it count")
        return 0
    for note in (*notes(spec), *made_of(spec)):
        _say(f"<5>inquest: preflight: note: {note}")
    rows = preflight(spec)
    for row in rows:
        if row.state != "ok":
            _say(f"{_PRIORITIES[row.state]}{row}")
    refused = [row for row in rows if row.state == "refused"]
    if refused:
        status(f"preflight refused: {'; '.join(row.message for row in refused)}")
        return PREFLIGHT_REFUSED
    return 0


_PRIORITIES = {"refused": "<3>", "warning": "<4>", "unknown": "<5>"}


def _say(line: str) -> None:
    """To the journal, with the priority in front that journald takes off; without it to a terminal."""
    print(line if "JOURNAL_STREAM" in os.environ else line[3:], file=sys.stderr)
