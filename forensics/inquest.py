"""The inquest on one crash in words: the verdict first, what to do last. Pure; the terminal adds colours and width."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from forensics.report import cut, died, judged, one_line, size_words, stamp
from forensics.shapes import ChangeShape, CrashShape, EvidenceShape, GapShape, RejectedShape

PHASES = {
    "before-logging": "before it logged a line",
    "startup": "while starting",
    "warmup": "while warming up",
    "serving": "while serving",
    "shutdown": "while stopping",
}
_MARKS = {"initiating": "●", "cascade": "○", "teardown": "·"}
_NAME = 13
_TIME = 12


class Line(NamedTuple):
    """A line of a report, and what it is: `verdict`, `title`, `head`, `text`, `initiating`, `cascade`, `teardown`,
    `context`, `gap`, `quiet`. Where it is wrapped, the rest stands below column `hang`."""

    style: str
    text: str
    hang: int = 0


def report(crash: CrashShape) -> Iterator[Line]:
    """The inquest. What is not known of a crash that was read from saved files is None in it, and is left out."""
    yield Line("verdict", one_line(crash["summary"]))
    yield Line("title", _title(crash))
    yield Line("text", "")
    yield from _facts(crash)
    yield from _timeline(crash)
    yield from _memory(crash)
    yield from _pairs("Ruled out", [(other["cause"], other["why"]) for other in crash["ruled_out"]])
    yield from _list("Also seen", crash["also"])
    yield from _pairs("Could not be seen", [(gap["source"], gap["reason"] + _span(gap)) for gap in crash["gaps"]])
    yield from _pairs("Rejected evidence", [(found["claims"], _rejected(found)) for found in crash["rejected"]])
    yield from _list("The ground after it", crash["ground"])
    yield from _list("Notes", crash["notes"])
    yield from _history(crash)
    yield from _list("What to do", crash["advice"])
    yield Line("text", "")
    yield Line("quiet", f"fingerprint  {crash['fingerprint']}  {one_line(crash['signature'])}", _NAME)
    if crash["invocation_id"]:
        yield Line("quiet", f"journal      journalctl _SYSTEMD_INVOCATION_ID={crash['invocation_id']}", _NAME)


def _title(crash: CrashShape) -> str:
    ended = "died" if crash["is_crash"] else "ended"
    words = [ended, f"{died(crash)} UTC" if crash["died_at"] else "", PHASES.get(crash["phase"], "")]
    when = " ".join(filter(None, words))
    return " · ".join([crash["server"] or "a server", judged(crash), *([when] if when != ended else [])])


def _facts(crash: CrashShape) -> Iterator[Line]:
    run = crash["run"]
    if run["signal"]:
        main = f"{run['exit_code']} by {run['signal']}"
    elif run["exit_status"] is not None:
        main = f"{run['exit_code']} with status {run['exit_status']}"
    else:
        main = "systemd did not say how the main process ended"
    # Of saved files without a record of systemd's there is nothing to say here.
    unsaid = run["result"] is None and any(gap["source"] == "systemd" for gap in crash["gaps"])
    rows = {
        "unit": crash["unit"] or "",
        "log": "" if crash["unit"] else crash["server"],
        "ran": _ran(crash),
        "main process": main,
        "systemd": "" if unsaid else _systemd(crash),
        "next": "" if unsaid else crash["supervision"]["next"],
        "restarts": "" if run["n_restarts"] is None else str(run["n_restarts"]),
        "last seen": _doing(crash),
        "speculation": _speculation(crash),
        "subclass": crash["subclass"],
        "verdict no.": str(crash["revision"]) if crash["revision"] > 1 else "",
    }
    for name, value in rows.items():
        if value:
            yield Line("text", f"  {name:<{_NAME}} {one_line(value)}", _NAME + 3)


def _systemd(crash: CrashShape) -> str:
    """Its own words for the end, and the settings that it went by."""
    told = {"OOMPolicy": crash["supervision"]["oom_policy"], "Restart": crash["supervision"]["restart"]}
    settings = [f"{name}={value}" for name, value in told.items() if value]
    return ", ".join([f"Result={crash['run']['result'] or '(not known)'}", *settings])


def _ran(crash: CrashShape) -> str:
    ready = {True: "had been ready", False: "was never ready"}.get(crash["became_ready"], "")
    if not crash["started_at"] or not crash["died_at"]:
        return ready
    lived = datetime.fromisoformat(crash["died_at"]) - datetime.fromisoformat(crash["started_at"])
    words = f"{stamp(crash['started_at'])} to {died(crash)} UTC ({duration(lived.total_seconds())})"
    return f"{words}, {ready}" if ready else words


def duration(seconds: float) -> str:
    """A length of time in its two largest units: `3 d 4 h`, `2 min 5 s`, `0.4 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def _speculation(crash: CrashShape) -> str:
    given = crash["speculation"]
    main = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens", "draft_model_path", "draft_model_revision")
    return ", ".join(f"{name} {given[name]}" for name in main if name in given)


def _doing(crash: CrashShape) -> str:
    doing = crash["doing"]
    words = ", ".join(f"{name} {value}" for name, value in doing["figures"].items())
    if words and doing["seconds_before_death"] is not None:
        words += f" ({doing['seconds_before_death']:.1f} s before)"
    return words


# --- the timeline --------------------------------------------------------------------------------------------


def _timeline(crash: CrashShape) -> Iterator[Line]:
    """The evidence in the order of time, and between it the stretches of which something could not be read."""
    yield Line("text", "")
    yield Line("head", "Timeline")
    if not crash["evidence"]:
        yield Line("text", "  no record that decides")
    pieces: list[tuple[str, Iterable[Line]]] = [(piece["at"] or "", _piece(piece)) for piece in crash["evidence"]]
    dated = all(at for at, _ in pieces)
    first = min((at for at, _ in pieces), default="")
    # What could not be read from before the first record to the end stands below alone: it lies between nothing.
    between = [gap for gap in crash["gaps"] if gap["to_at"] or (gap["from_at"] or "") > first] if dated else []
    pieces += [(gap["from_at"] or gap["to_at"] or "", _gap(gap)) for gap in between]
    for _, lines in sorted(pieces, key=lambda piece: piece[0]) if dated else pieces:
        yield from lines


def _piece(piece: EvidenceShape) -> Iterator[Line]:
    role = piece["role"]
    time = f"{_clock(piece['at']):<{_TIME}} " if piece["at"] else ""
    head = f"  {time}{_MARKS.get(role, ' ')} {role:<10}  {piece['source']}"
    why = f" · {one_line(piece['why'])}" if piece["why"] else ""
    yield Line(role, head + why, len(time) + 16)
    for line in piece["message"].splitlines() or [f"({piece['kind']})"]:
        words = _printable(line)
        # What initiated the death is what one came to read.
        style = "text" if role == "initiating" else "quiet"
        yield Line(style, f"      {words}", 6 + len(words) - len(words.lstrip()))


def _gap(gap: GapShape) -> Iterator[Line]:
    start, end = _clock(gap["from_at"]), _clock(gap["to_at"])
    span = f"until {end}" if not start else f"to {end}" if end else "to the end"
    words = f"  {start or '…':<{_TIME}} ┄ {'gap':<10}  {gap['source']} · not seen {span}: {one_line(gap['reason'])}"
    yield Line("gap", words, _TIME + 17)


def _rejected(found: RejectedShape) -> str:
    times = f"{found['count']} times, first " if found["count"] > 1 else ""
    return f"`{cut(found['message'], 160)}` ({times}by {found['written_by']}): {found['why']}"


def _span(gap: GapShape) -> str:
    if not gap["from_at"] and not gap["to_at"]:
        return ""
    return f" ({_clock(gap['from_at']) or '…'} to {_clock(gap['to_at']) or '…'})"


def _clock(at: str | None) -> str:
    """To the millisecond."""
    return at[11:23] if at else ""


# --- the rest ------------------------------------------------------------------------------------------------


def _memory(crash: CrashShape) -> Iterator[Line]:
    memory = crash["memory"]
    if memory is None:
        return
    yield Line("text", "")
    yield Line("head", "Memory")
    if memory["sentence"]:
        yield Line("text", f"  {one_line(memory['sentence'])}", 2)
    width = max((len(figure["what"]) for figure in memory["figures"]), default=0)
    for figure in memory["figures"]:
        size = size_words(figure["size_bytes"])
        yield Line("text", f"  {one_line(figure['what']):<{width}}  {size:>10}  {figure['source']}", 2)


def _history(crash: CrashShape) -> Iterator[Line]:
    history = crash["history"]
    if history is None or not crash["is_crash"]:
        return
    since = {"the death before that was alike": history["since_previous"], "it last served": history["since_good"]}
    if any(since.values()):
        yield Line("text", "")
        yield Line("head", "Configuration changed")
    for event, changes in since.items():
        if changes:
            yield Line("text", f"  since {event}")
            yield from _changes(changes)
    yield from _list("Seen before", [history["sentence"]])


def _changes(changes: list[ChangeShape]) -> Iterator[Line]:
    width = max(len(change["name"]) for change in changes)
    for change in changes:
        before, after = (
            one_line(value) if value is not None else "(unset)" for value in (change["before"], change["after"])
        )
        yield Line("text", f"    {one_line(change['name']):<{width}}  {before} → {after}", width + 6)


def _pairs(head: str, pairs: list[tuple[str, str]]) -> Iterator[Line]:
    if pairs:
        yield Line("text", "")
        yield Line("head", head)
        width = max(len(name) for name, _ in pairs)
        for name, words in pairs:
            yield Line("text", f"  {name:<{width}}  {one_line(words)}", width + 4)


def _list(head: str, items: list[str]) -> Iterator[Line]:
    if items:
        yield Line("text", "")
        yield Line("head", head)
        for item in items:
            yield Line("text", f"  {one_line(item)}", 2)


def _printable(line: str) -> str:
    """Indentation is kept: it is part of a traceback."""
    return "".join(char if char.isprintable() else "�" for char in line.expandtabs())
