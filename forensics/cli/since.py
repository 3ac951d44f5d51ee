"""Times as systemd writes them (systemd.time(7)), as far as people type them after `--since`."""

import re
from datetime import datetime, timedelta

_UNITS = {
    "s": 1,
    "sec": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86_400,
    "day": 86_400,
    "w": 604_800,
    "week": 604_800,
}
_SPAN = re.compile(r"(\d+) ?([a-z]+?)s?(?= ?\d|\Z)")
_FORMS = "allowed: 2h, 30min, 3d, '2 hours ago', today, yesterday, 2026-03-01, '2026-03-01 12:30'"


def parse_since(text: str, now: datetime) -> datetime:
    """The moment that is meant, with a time zone. A time without one is local. ValueError says what is allowed.

    `now` is the present, with the local time zone.
    """
    words = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if words == "now":
        return now
    if words == "today":
        return midnight
    if words == "yesterday":
        return midnight - timedelta(days=1)
    span = words.removesuffix("ago").strip().removeprefix("-")
    pieces = [(int(number), unit if unit in _UNITS else unit.rstrip("s")) for number, unit in _SPAN.findall(span)]
    if pieces and _SPAN.sub("", span).strip() == "" and all(unit in _UNITS for _, unit in pieces):
        return now - timedelta(seconds=sum(number * _UNITS[unit] for number, unit in pieces))
    try:
        stamp = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"not a time: {text!r}; {_FORMS}") from None
    return stamp if stamp.tzinfo is not None else stamp.astimezone()
