"""A spec with changes on trial, and whether there is a way back from it."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forensics.cli.systemctl import UnitNow
from forensics.errors import InputError, InquestError
from forensics.runs.dropin import dropin
from forensics.runs.overrides import Override, apply
from service.fields import seconds
from service.load import SpecError, digest_of, parse, read, spec_path
from service.preflight import preflight
from service.spec import ServerSpec
from units.generator import generated
from units.render import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One changed spec: what was changed, the spec itself, its drop-in."""

    overrides: tuple[Override, ...]
    spec: ServerSpec
    dropin: str

    def __str__(self) -> str:
        return ", ".join(map(str, self.overrides))


def span(text: str, option: str) -> float:
    """Seconds of `5m`, `90s`, `1h 30min`."""
    try:
        value = seconds(f"{text}s" if text.isdecimal() else text)
    except (ValueError, KeyError):
        value = 0.0
    if not value or not math.isfinite(value):
        raise InputError("bad-time", f"{option}: not a time: {text!r}", "For example 90s, 5min, 1h")
    return value


def variant(server: str, overrides: Sequence[Override], ready_within: str | None) -> Variant:
    """The spec with its changes, checked as a spec is. InputError with every mistake."""
    path = spec_path(server)
    changes = list(overrides)
    if ready_within:
        span(ready_within, "--ready-within")
        changes.append(Override("limits.timeout_start", ready_within))
    try:
        raw = read(path)
        parse(raw, path)
        changed = apply(raw, changes)
        spec = parse(changed, path)
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


def check_there_is_a_way_back(unit: str, now: UnitNow, path: Path) -> None:
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
