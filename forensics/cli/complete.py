"""What the shell completes behind TAB: names of servers, causes, ids of crashes. Where nothing can be learnt, nothing.

Each gives pairs of a word and what it means, as the shells show them beside it.
"""

from collections.abc import Iterator
from typing import Any

from forensics.cli import client
from forensics.errors import InquestError

SECONDS = 1.0
"""Longer than this nobody waits behind TAB."""
_IDS = 50


def servers(incomplete: str) -> list[tuple[str, str]]:
    """Those that have a spec, and those that ran."""
    from service.load import names

    found = dict(names())
    for server in _asked("/servers", "servers"):
        found.setdefault(server["server"], server["unit"])
    return _beginning(found, incomplete)


def causes(incomplete: str) -> list[tuple[str, str]]:
    from forensics.explanations import EXPLANATIONS

    return _beginning({one.cause: one.title for one in EXPLANATIONS.values()}, incomplete)


def channels(incomplete: str) -> list[tuple[str, str]]:
    """Those who are told of deaths."""
    return _beginning({one["name"]: one["type"] for one in _asked("/alerts", "channels")}, incomplete)


def crash_ids(incomplete: str) -> list[tuple[str, str]]:
    found = {
        crash["id"]: f"{crash['server']}, {crash['cause']}, {crash['died_at'][:16].replace('T', ' ')}"
        for crash in _asked("/crashes", "crashes", limit=_IDS)
    }
    return _beginning(found, incomplete)


def _beginning(found: dict[str, str], incomplete: str) -> list[tuple[str, str]]:
    return [(word, meaning) for word, meaning in found.items() if word.startswith(incomplete)]


def _asked(path: str, key: str, **parameters: object) -> Iterator[Any]:
    try:
        yield from client.get(path, timeout_seconds=SECONDS, **parameters)[key]
    except InquestError:
        return
