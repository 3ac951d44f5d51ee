"""The manual pages, made from the code when Inquest is installed, so that they say what it does.

python -m forensics.cli.manual FOLDER      # writes FOLDER/man1/inquest.1 and so on
"""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple

from forensics.cli.manual import command, daemon, server, settings
from forensics.cli.manual.roff import Page


class Chapter(NamedTuple):
    name: str
    section: int
    summary: str
    write: Callable[[Page], None]


CHAPTERS = (
    Chapter("inquest", 1, command.SUMMARY, command.write),
    Chapter("inquestd.toml", 5, settings.SUMMARY, settings.write),
    Chapter("inquest-server.toml", 5, server.SUMMARY, server.write),
    Chapter("inquestd.service", 8, daemon.SUMMARY, daemon.write),
)


def pages() -> dict[str, str]:
    """Every page: its place below a folder of manuals (`man1/inquest.1`) and its source."""
    made = {}
    for chapter in CHAPTERS:
        date = datetime.now(UTC).date().isoformat()
        page = Page(chapter.name, chapter.section, chapter.summary, version("inquestd"), date)
        chapter.write(page)
        made[f"man{chapter.section}/{chapter.name}.{chapter.section}"] = str(page)
    return made
