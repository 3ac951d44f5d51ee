"""Times as systemd writes them (systemd.time(7)), as far as people type them after `--since`."""

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "d": 86_400,
    "day": 86_400,
    "w": 604_800,
    "week": 604_800,
}
_SPAN = re.compile(r"(\d+) ?([a-z]+?)s?(?= ?\d|\Z)")
_EPOCH = re.compile(r"@\d+(?:\.\d+)?")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_WEEKDAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? +", re.IGNORECASE)
SINCE_HELP = "2h, -30min, '3 days ago', today, yesterday, 12:30, 2026-03-01, '2026-03-01 12:30', @1772366400 …"
_FORMS = f"allowed: {SINCE_HELP.removesuffix(' …')}"


def parse_since(text: str, now: datetime) -> datetime:
    """The moment that is meant, with a time zone. A time without one is local. ValueError says what is allowed.

    `now` is the present, with the local time zone.
    """
    try:
        return _parse(_WEEKDAY.sub("", text.strip(), count=1), now)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"not a time: {text!r}; {_FORMS}") from None


def _parse(text: str, now: datetime) -> datetime:
    words = text.lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if words == "now":
        return now
    if words == "today":
        return midnight
    if words == "yesterday":
        return midnight - timedelta(days=1)
    if _EPOCH.fullmatch(words):
        return datetime.fromtimestamp(float(words[1:]), UTC)
    if _CLOCK.fullmatch(words):
        hour, minute, *second = map(int, words.split(":"))
        return midnight.replace(hour=hour, minute=minute, second=second[0] if second else 0)
    span = words.removesuffix("ago").strip().removeprefix("-")
    pieces = [(int(number), unit if unit in _UNITS else unit.rstrip("s")) for number, unit in _SPAN.findall(span)]
    if pieces and _SPAN.sub("", span).strip() == "" and all(unit in _UNITS for _, unit in pieces):
        return now - timedelta(seconds=sum(number * _UNITS[unit] for number, unit in pieces))
    if words.endswith(" utc"):
        return datetime.fromisoformat(text[:-4].strip()).replace(tzinfo=UTC)
    stamp = datetime.fromisoformat(text)
    return stamp if stamp.tzinfo is not None else stamp.astimezone()


def since_text(given: str | None) -> str | None:
    """What was typed, as the API takes it. BadParameter names the option and what is allowed."""
    if given is None:
        return None
    try:
        return parse_since(given, datetime.now().astimezone()).isoformat()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
