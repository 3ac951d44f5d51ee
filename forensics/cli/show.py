"""`inquest show`: the inquest on one crash."""

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import client, complete
from forensics.cli.crashes import fetched
from forensics.cli.terminal import Formatted, print_lines
from forensics.errors import InquestError
from forensics.inquest import report
from forensics.report import died, size_words
from forensics.shapes import CrashShape
from service.terminal import Format, print_json

_NEAR = 3
# The journal's lines are looked up anew.
_BUNDLE_SECONDS = 60.0
_LOOKED_THROUGH = 500


def show(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID|SERVER]",
            help="The crash's id or its beginning, or a server's name for its newest crash. The newest of all, if none"
            " is given.",
            autocompletion=complete.crash_ids,
        ),
    ] = None,
    output: Formatted = Format.TEXT,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all of its evidence to this file (.tar.zst, secrets removed) instead: for `inquest analyze`,"
            " or to attach to a report.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """The inquest on one crash: verdict, timeline, what it was not, what to do."""
    crash = _newest() if which is None else _named(which)
    if bundle is not None:
        _write(bundle, client.fetch(f"/crashes/{crash['id']}/evidence.tar.zst", timeout_seconds=_BUNDLE_SECONDS))
    elif output is Format.JSON:
        print_json(crash)
    else:
        print_lines(report(crash))


def _write(bundle: Path, content: bytes) -> None:
    try:
        bundle.write_bytes(content)
    except OSError as error:
        raise InquestError(
            "bundle-unwritable", f"{bundle}: {error.strerror}", "Name a file that you may write."
        ) from error
    typer.echo(f"wrote {bundle}, {size_words(len(content))}")


def _newest() -> CrashShape:
    found = next(fetched(limit=1), None)
    if found is None:
        raise InquestError("no-crash", "there is no crash to show")
    return found


def _named(which: str) -> CrashShape:
    """By id, else the newest of a server of that name. InquestError names what comes near."""
    try:
        # The API would take a slash for another path.
        by_id: CrashShape = client.get(f"/crashes/{which}" if which.isalnum() else "/crashes/-")
        return by_id
    except InquestError as error:
        if error.code != "not-found":
            raise
    of_server = next(fetched(server=which, limit=1), None) if which else None
    if of_server is not None:
        return of_server
    raise InquestError("no-crash", f"no crash {which!r} in the store, and no server of that name has one", _near(which))


def _near(which: str) -> str:
    import difflib

    known = {crash["id"]: crash for crash in fetched(limit=_LOOKED_THROUGH)}
    # By the beginning, of which people mistype a digit, and not by chance likenesses further behind.
    length = max(1, min(len(which), 12))
    beginnings = {crash_id[:length]: crash_id for crash_id in reversed(known)}
    near = [known[beginnings[text]] for text in difflib.get_close_matches(which, beginnings, n=_NEAR)]
    if not near:
        return "See `inquest crashes` for their ids."
    lines = [f"  {one['id']}  {died(one)} UTC  {one['server']}  {one['cause']}" for one in near]
    return "\n".join(["Nearest:", *lines])
