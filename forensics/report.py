"""A crash in words: one line, a message for a telephone, the whole inquest. Pure; the terminal adds the colours."""

from collections.abc import Iterator
from typing import NamedTuple

from forensics.shapes import CrashShape, EvidenceShape

MESSAGE_CHARS = 300
"""A decisive line longer than this is cut in messages; the report has it whole."""

# Said only where the cause itself settles it; a rule that knows more says so in its summary.
_BLAME = {
    "configuration-error": "The configuration is to blame.",
    "environment-error": "The installed environment is to blame, not the server's settings.",
    "host-reset": "Not the configuration: the host went down.",
    "gpu-fault": "Not the configuration: the GPU failed.",
}


class Line(NamedTuple):
    """A line of a report, and what it is: `title`, `verdict`, `head`, `text`, `initiating`, `cascade`, `teardown`,
    `context`, `quiet`."""

    style: str
    text: str


def message(crash: CrashShape, *, host: str, link: str, amends: bool = False) -> str:
    """The text of an alert, in the order in which it is read at night: what died and why; whether the configuration
    is to blame; what to do; the decisive line; where the rest stands."""
    died = f"{crash['server']} on {host} {'died' if crash['is_crash'] else 'stopped as asked'}"
    lines = [f"{'Corrected: ' if amends else ''}{died}: {one_line(crash['summary'])} ({judged(crash)})"]
    if blame := _BLAME.get(crash["cause"]):
        lines.append(blame)
    history = crash["history"]
    if history is not None and crash["is_crash"] and (history["occurrence"] > 1 or history["since_good"]):
        lines.append(cut(history["sentence"]))
    lines += crash["advice"][:1]
    if (decisive := decisive_evidence(crash)) is not None:
        lines.append(cut(decisive_line(decisive)))
    elif crash["gaps"]:
        lines.append("Not seen: " + cut("; ".join(f"{gap['source']}: {gap['reason']}" for gap in crash["gaps"])))
    lines.append(f"{link}/crashes/{crash['id']}")
    return "\n".join(lines)


def decisive_evidence(crash: CrashShape) -> EvidenceShape | None:
    """The record on which the verdict rests: the first initiating one."""
    return next((piece for piece in crash["evidence"] if piece["role"] == "initiating"), None)


def decisive_line(piece: EvidenceShape) -> str:
    """The line of a record that says it: of a traceback the last, of all else the first."""
    lines = [line for line in piece["message"].splitlines() if line.strip()]
    if not lines:
        return f"({piece['kind']} from {piece['source']})"
    return lines[-1 if piece["kind"] == "traceback" else 0].strip()


def one_line(text: str) -> str:
    """Text from outside on one line: control characters cannot move the reader's cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def cut(text: str, chars: int = MESSAGE_CHARS) -> str:
    text = one_line(text)
    return text if len(text) <= chars else text[: chars - 1] + "…"


def died(crash: CrashShape) -> str:
    """The time of death to the second, UTC, as systemd writes times."""
    return crash["died_at"][:19].replace("T", " ")


def report(crash: CrashShape) -> Iterator[Line]:
    """The inquest: verdict, what happened in which role, what it was not, what could not be seen, what to do."""
    yield Line("title", f"{crash['server']} · {judged(crash)} · {died(crash)} UTC")
    yield Line("verdict", one_line(crash["summary"]))
    yield Line("text", "")
    yield from _facts(crash)
    yield from _evidence(crash)
    yield from _memory(crash)
    if crash["history"] is not None and crash["is_crash"]:
        yield from _list("Seen before", [crash["history"]["sentence"]])
    yield from _list("Ruled out", [f"{other['cause']}: {other['why']}" for other in crash["ruled_out"]])
    yield from _list("Also seen", crash["also"])
    yield from _list("Could not be seen", [f"{gap['source']}: {gap['reason']}" for gap in crash["gaps"]])
    yield from _list("The ground after it", crash["ground"])
    yield from _list("Notes", crash["notes"])
    yield from _list("What to do", crash["advice"])
    yield Line("text", "")
    yield Line("quiet", f"fingerprint  {crash['fingerprint']}  {one_line(crash['signature'])}")
    yield Line("quiet", f"journal      journalctl _SYSTEMD_INVOCATION_ID={crash['invocation_id']}")


def judged(crash: CrashShape) -> str:
    """Cause and strength: `kernel-oom, confirmed`."""
    words = [crash["cause"], crash["strength"] or "", "" if crash["settled"] else "may still change"]
    return ", ".join(filter(None, words))


def _facts(crash: CrashShape) -> Iterator[Line]:
    run = crash["run"]
    if run["signal"]:
        ended = f"{run['exit_code']} by {run['signal']}"
    elif run["exit_status"] is not None:
        ended = f"{run['exit_code']} with status {run['exit_status']}"
    else:
        ended = "systemd did not say how the main process ended"
    ready = "had been ready" if crash["became_ready"] else "was never ready"
    rows = {
        "unit": crash["unit"],
        "ran": f"{crash['started_at'][:19].replace('T', ' ')} to {died(crash)} UTC, {ready}",
        "died while": crash["phase"],
        "main process": f"{ended}; systemd's result: {run['result'] or 'not known'}",
        "restarts": "" if run["n_restarts"] is None else str(run["n_restarts"]),
        "last seen": _doing(crash),
        "speculation": _speculation(crash),
        "subclass": crash["subclass"],
        "verdict no.": str(crash["revision"]) if crash["revision"] > 1 else "",
    }
    for name, value in rows.items():
        if value:
            yield Line("text", f"  {name:<13} {one_line(value)}")


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


def _evidence(crash: CrashShape) -> Iterator[Line]:
    if not crash["evidence"]:
        yield from _list("Evidence", ["none that decides"])
        return
    yield Line("text", "")
    yield Line("head", "Evidence")
    for piece in crash["evidence"]:
        why = f"  ← {one_line(piece['why'])}" if piece["why"] else ""
        yield Line(piece["role"], f"  {piece['at'][11:23]} {piece['role']:<10} {piece['source']}{why}")
        for line in piece["message"].splitlines() or [f"({piece['kind']})"]:
            yield Line("quiet", f"      {_printable(line)}")


def _memory(crash: CrashShape) -> Iterator[Line]:
    memory = crash["memory"]
    if memory is None:
        return
    yield Line("text", "")
    yield Line("head", "Memory")
    if memory["sentence"]:
        yield Line("text", f"  {one_line(memory['sentence'])}")
    width = max((len(figure["what"]) for figure in memory["figures"]), default=0)
    for figure in memory["figures"]:
        size = size_words(figure["size_bytes"])
        yield Line("text", f"  {one_line(figure['what']):<{width}}  {size:>10}  {figure['source']}")


def size_words(size_bytes: int) -> str:
    """Bytes with a binary prefix, as the kernel and SGLang's users count them."""
    size = float(size_bytes)
    for prefix in ("", "Ki", "Mi", "Gi"):
        if abs(size) < 1024:
            return f"{size:.0f} {prefix}B" if not prefix else f"{size:.1f} {prefix}B"
        size /= 1024
    return f"{size:.1f} TiB"


def _list(head: str, items: list[str]) -> Iterator[Line]:
    if items:
        yield Line("text", "")
        yield Line("head", head)
        for item in items:
            yield Line("text", f"  {one_line(item)}")


def _printable(line: str) -> str:
    """Indentation is kept: it is part of a traceback."""
    return "".join(char if char.isprintable() else "�" for char in line.expandtabs())
