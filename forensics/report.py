"""A crash in a few words: one line, a message for a telephone. Pure. The whole of it is `forensics.inquest`."""

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
    return stamp(crash["died_at"])


def stamp(text: str) -> str:
    """A time of the API to the second, as systemd writes times."""
    return text[:19].replace("T", " ")


def judged(crash: CrashShape) -> str:
    """Cause and strength: `kernel-oom, confirmed`."""
    words = [crash["cause"], crash["strength"] or "", "" if crash["settled"] else "may still change"]
    return ", ".join(filter(None, words))


def size_words(size_bytes: int) -> str:
    """Bytes with a binary prefix, as the kernel and SGLang's users count them."""
    size = float(size_bytes)
    for prefix in ("", "Ki", "Mi", "Gi"):
        if abs(size) < 1024:
            return f"{size:.0f} {prefix}B" if not prefix else f"{size:.1f} {prefix}B"
        size /= 1024
    return f"{size:.1f} TiB"
