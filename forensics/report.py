"""A crash in a few words. Pure. The whole of it is `forensics.inquest`, a message `forensics.alerts.words`."""

from forensics.shapes import CrashShape, EvidenceShape

MESSAGE_CHARS = 300
"""A decisive line longer than this is cut in messages; the report has it whole."""


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
