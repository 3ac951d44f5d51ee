"""`inquest doctor`: can it see everything that it needs, and what to do where it cannot."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict

import typer

from forensics.cli.doctor import inquestd, machine, units
from forensics.cli.doctor.facts import Facts, read
from forensics.cli.doctor.row import Row
from forensics.cli.terminal import STATES, Formatted
from service.terminal import Format, console, print_json, print_table

CHECKS: tuple[Callable[[Facts], Iterable[Row] | Row | None], ...] = (
    machine.systemd,
    inquestd.settings,
    inquestd.daemon,
    inquestd.restarts,
    machine.journal,
    machine.journal_persistent,
    machine.kernel_log,
    machine.core_dumps,
    machine.memory_controller,
    machine.gpus,
    machine.d_bus,
    machine.clock,
    machine.disks,
    inquestd.sigtrace,
    inquestd.alerts,
    units.generator,
    units.specs,
    units.units,
)


def doctor(output: Formatted = Format.TEXT) -> None:
    """Look at this machine: can Inquest see everything that it needs? Exit status 1 when a check failed.

    A warning says what some verdicts will lack. What a user may not read, root may: run it as root for the whole.
    """
    rows = examined(read())
    if output is Format.JSON:
        print_json([asdict(row) for row in rows])
    elif sys.stdout.isatty():
        _show(rows)
    else:
        print_table(("check", "state", "finding", "remedy"), [(r.check, r.state, r.finding, r.remedy) for r in rows])
    if any(row.state == "failed" for row in rows):
        raise typer.Exit(1)


def examined(facts: Facts) -> list[Row]:
    """Every check, in order."""
    rows: list[Row] = []
    for check in CHECKS:
        found = check(facts)
        rows += [found] if isinstance(found, Row) else found or ()
    return rows


def _show(rows: list[Row]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": "✓", "warning": "!", "failed": "✗"}
    out, table = console(), Table.grid(padding=(0, 2))
    for row in rows:
        style = STATES[row.state]
        words = Text(row.finding, style="dim" if row.state == "ok" else "")
        if row.remedy:
            words.append(f"\n→ {row.remedy}", style="cyan")
        table.add_row(Text(marks[row.state], style=style), Text(row.check, style=style), words)
    out.print(Padding(table, (0, 0, 1, 1)))
    counts = {state: sum(row.state == state for row in rows) for state in marks}
    out.print(f" {counts['ok']} ok, {counts['warning']} warnings, {counts['failed']} failed")
