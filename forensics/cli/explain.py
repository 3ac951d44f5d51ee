"""`inquest explain`: what a cause is, how it is recognised, and what to do. Works without the daemon."""

import difflib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from forensics.cli import complete
from forensics.cli.terminal import Formatted, print_lines
from forensics.errors import InputError
from forensics.explanations import EXPLANATIONS, Explanation
from forensics.inquest import Line
from service.terminal import Format, print_json, print_table

_HEADS = {
    "signal": "How it is recognised",
    "not_this": "What it is not",
    "followed_by": "What follows it",
    "needs": "What evidence it needs",
    "to_do": "What to do",
}


def explain(
    cause: Annotated[
        str | None,
        typer.Argument(metavar="[CAUSE]", help="For example kernel-oom. All, if none is given.",
                       autocompletion=complete.causes),
    ] = None,
    output: Formatted = Format.TEXT,
) -> None:  # fmt: skip
    """Explain a cause: how it is recognised, what it is not confused with, what evidence it needs, what to do."""
    if cause is None:
        if output is Format.JSON:
            print_json([asdict(one) for one in EXPLANATIONS.values()])
        else:
            rows = [(one.cause, one.family, one.title) for one in EXPLANATIONS.values()]
            print_table(("cause", "family", "what it is"), rows, whole=("cause", "family"))
        return
    found = EXPLANATIONS.get(cause)
    if found is None:
        near = difflib.get_close_matches(cause, EXPLANATIONS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`inquest explain` lists all."
        raise InputError("no-cause", f"no cause is called {cause!r}", hint)
    if output is Format.JSON:
        print_json(asdict(found))
    else:
        print_lines(_lines(found))


def _lines(one: Explanation) -> Iterator[Line]:
    yield Line("verdict", f"{one.cause}: {one.title}", 0)
    if one.family != one.cause:
        yield Line("quiet", f"of the family {one.family}", 0)
    for name, head in _HEADS.items():
        yield Line("text", "")
        yield Line("head", head)
        words = getattr(one, name)
        yield Line("text", f"  {words[:1].upper()}{words[1:]}", 2)
    yield Line("text", "")
    yield Line("quiet", f"inquest crashes --cause {one.cause}")
