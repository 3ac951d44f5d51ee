"""The systemd generator: at boot and at every daemon-reload, each ``/etc/inquest/servers/*.toml`` becomes a unit.

systemd.generator(7) sets the manners: called with three folders, of which the first is ours; early at boot,
before most file systems and any network; nothing but the folder may be written; it must be quick. One spec that
cannot be used never harms another: it becomes a unit whose start says what is wrong.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.journal import JOURNAL_SOCKET, send
from service.load import SERVERS_DIR, Problem, SpecError, digest_of, parse, read, wants_boot
from service.spec import valid_name
from units.quote import escaped_name, printable
from units.render import render, render_refusal, unit_name

__all__ = ["Generated", "complain", "generate", "generated", "main"]


@dataclass(frozen=True, slots=True)
class Generated:
    """A unit's file name and text; whether it starts with the machine; the mistakes that made it a refusal."""

    unit: str
    text: str
    enabled: bool
    problems: tuple[Problem, ...] = ()


def generated(source: Path, *, inquest_python: str = sys.executable) -> Generated:
    """The unit for the spec at `source`; never raises for what stands in the file or for its absence."""
    name = source.name.removesuffix(".toml")
    unit = unit_name(name if valid_name(name) else escaped_name(name))
    raw = b""
    try:
        raw = read(source)
        spec = parse(raw, source)
    except SpecError as error:
        # One that should start at boot fails at boot, where 'systemctl --failed' shows it.
        return Generated(unit, render_refusal(unit, source, error.problems), wants_boot(raw), error.problems)
    text = render(spec, source, digest=digest_of(raw), inquest_python=inquest_python)
    return Generated(unit, text, enabled=spec.enabled)


def generate(target: Path, servers: Path = SERVERS_DIR, *, inquest_python: str = sys.executable) -> tuple[str, ...]:
    """Write the unit of every spec in `servers` into `target`; returns what went wrong, a line each."""
    complaints: list[str] = []
    try:
        sources = sorted(p for p in servers.iterdir() if p.suffix == ".toml" and not p.name.startswith("."))
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (f"{servers}: cannot be read: {error.strerror}",)
    for source in sources:
        try:
            unit = generated(source, inquest_python=inquest_python)
            complaints += map(str, unit.problems)
            _write(target, unit)
        except Exception as error:  # one spec, whatever is in it, must not cost the others their units
            complaints.append(f"{source}: {type(error).__name__}: {error}")
    return tuple(complaints)


def _write(target: Path, unit: Generated) -> None:
    (target / unit.unit).write_text(unit.text, encoding="utf-8")
    if unit.enabled:
        wants = target / "multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit.unit).symlink_to(f"../{unit.unit}")


def main(argv: list[str] | None = None) -> int:
    """``inquest-generator NORMAL-DIR [EARLY-DIR LATE-DIR]``, as systemd calls it."""
    folders = sys.argv[1:] if argv is None else argv
    if not folders:
        print("usage: inquest-generator NORMAL-DIR [EARLY-DIR LATE-DIR] (systemd calls it)", file=sys.stderr)
        return 2
    complain(generate(Path(folders[0]), Path(os.environ.get("INQUEST_SERVERS", SERVERS_DIR))))
    return 0


def complain(complaints: tuple[str, ...], journal: str = JOURNAL_SOCKET, kernel_log: str = "/dev/kmsg") -> None:
    """Log each line where it can be logged now: journald, before it runs the kernel's buffer; and stderr."""
    for complaint in complaints:
        print(f"inquest-generator: {printable(complaint)}", file=sys.stderr)
        try:
            send({"MESSAGE": complaint, "PRIORITY": "3", "SYSLOG_IDENTIFIER": "inquest-generator"}, journal)
        except OSError:
            with suppress(OSError), open(kernel_log, "w", encoding="utf-8") as kmsg:
                kmsg.write(f"<3>inquest-generator: {printable(complaint)}")


if __name__ == "__main__":
    sys.exit(main())
