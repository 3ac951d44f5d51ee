"""A tuning table as an SVG picture: throughput by concurrency, accept length, and where it crashed. Pure."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from forensics.runs.decoding import CONCURRENCY
from forensics.runs.shapes import TuningRowShape, TuningShape

_WIDTH, _HEIGHT = 900, 550
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 84, 64, 124
_TICKS = 5
_COLOURS = {"1": "#1f6fb2", "2-4": "#2a9d8f", "5-16": "#e08a1e", "17+": "#8a4fbf"}
_ACCEPT, _CRASH, _GREY = "#444444", "#c62828", "#8a8a8a"

Point = tuple[float, float]


def svg(table: TuningShape) -> str:
    """The picture as SVG text, complete in itself."""
    rows = table["rows"]
    speeds = [value for row in rows for value in row["best"].values()]
    lengths = [row["accept_length"] for row in rows if row["accept_length"] is not None]
    most_speed, most_length = _ceiling(max(speeds, default=1.0)), _ceiling(max(lengths, default=1.0))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_WIDTH / 2, 26, f"{table['server']}: by {table['by']}", size=17),
        *_axes(rows, most_speed, most_length if lengths else None),
        *_speeds(rows, most_speed),
        *_acceptance(rows, most_length),
        *_crashes(rows),
        *_legend(table, accepted=bool(lengths)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(index: int, count: int) -> float:
    """Values stand at equal distances: 1, 2, 10 steps are read one by one."""
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (index + 0.5) / max(count, 1)


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most


def _ceiling(value: float) -> float:
    """A round number at or above it, a little room included."""
    scale = 10.0 ** math.floor(math.log10(max(value, 1e-6)))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15)
    return next(step * scale for step in steps if step * scale >= 1.04 * value)


def _axes(rows: Sequence[TuningRowShape], most_speed: float, most_length: float | None) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for tick in range(_TICKS + 1):
        y = _y(tick, _TICKS)
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        yield _text(_LEFT - 8, y + 4, f"{most_speed * tick / _TICKS:g}", anchor="end")
        if most_length is not None:
            yield _text(right + 8, y + 4, f"{round(most_length * tick / _TICKS, 3):g}", anchor="start", colour=_ACCEPT)
    yield f'<line x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{_GREY}"/>'
    for index, row in enumerate(rows):
        shown = "not set" if row["value"] is None else row["value"]
        yield _text(_x(index, len(rows)), bottom + 20, shown if len(shown) <= 18 else f"…{shown[-17:]}")
    middle = (_TOP + bottom) / 2
    yield _text(22, middle, "best generation throughput (tokens/s)", turn=True)
    if most_length is not None:
        yield _text(_WIDTH - 18, middle, "accept length", turn=True, colour=_ACCEPT)


def _speeds(rows: Sequence[TuningRowShape], most: float) -> Iterator[str]:
    for name, _ in CONCURRENCY:
        points = [
            (_x(index, len(rows)), _y(row["best"][name], most)) for index, row in enumerate(rows) if name in row["best"]
        ]
        if points:
            yield _line(points, _COLOURS[name])
            for x, y in points:
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{_COLOURS[name]}"/>'


def _acceptance(rows: Sequence[TuningRowShape], most: float) -> Iterator[str]:
    points = [
        (_x(index, len(rows)), _y(row["accept_length"], most))
        for index, row in enumerate(rows)
        if row["accept_length"] is not None
    ]
    if points:
        yield _line(points, _ACCEPT, dashed=True)
        for x, y in points:
            yield f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{_ACCEPT}"/>'


def _crashes(rows: Sequence[TuningRowShape]) -> Iterator[str]:
    """A cross below the value, and what it died of most often."""
    room = (_WIDTH - _LEFT - _RIGHT) / max(len(rows), 1)
    for index, row in enumerate(rows):
        if not row["crashes"]:
            continue
        x, y = _x(index, len(rows)), _HEIGHT - _BOTTOM + 36
        yield f'<path d="M{x - 6:.1f} {y - 6}l12 12m0 -12l-12 12" stroke="{_CRASH}" stroke-width="3" fill="none"/>'
        causes = [cause for cause in row["ends"] if cause not in ("clean-stop", "running")]
        words = causes[0] + (" …" if len(causes) > 1 else "")
        if 6 * len(words) < room:
            yield _text(x, y + 20, words, colour=_CRASH, size=11)


def _legend(table: TuningShape, *, accepted: bool) -> Iterator[str]:
    x, y = float(_LEFT), _HEIGHT - 40
    named = [name for name, _ in CONCURRENCY if any(name in row["best"] for row in table["rows"])]
    for name in named:
        yield f'<circle cx="{x + 6:.1f}" cy="{y - 4}" r="4.5" fill="{_COLOURS[name]}"/>'
        yield _text(x + 16, y, f"{name} running", anchor="start")
        x += 112
    if accepted:
        yield f'<rect x="{x + 2:.1f}" y="{y - 8}" width="7" height="7" fill="{_ACCEPT}"/>'
        yield _text(x + 16, y, "accept length (right)", anchor="start")
        x += 160
    if any(row["crashes"] for row in table["rows"]):
        yield f'<path d="M{x} {y - 9}l9 9m0 -9l-9 9" stroke="{_CRASH}" stroke-width="2.5" fill="none"/>'
        yield _text(x + 16, y, "crashed", anchor="start")
    if table["also_varied"]:
        names = ", ".join(table["also_varied"])
        names = names if len(names) <= 100 else f"{names[:100]}…"
        yield _text(
            _LEFT,
            _HEIGHT - 14,
            f"These runs differ in other arguments too: {names}",
            anchor="start",
            size=11,
            colour=_GREY,
        )


def _line(points: Sequence[Point], colour: str, *, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    size: int = 13,
    colour: str = "#222222",
    turn: bool = False,
) -> str:
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
    clean = escape("".join(char if char.isprintable() else " " for char in words))
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}"{turned}>{clean}</text>'
