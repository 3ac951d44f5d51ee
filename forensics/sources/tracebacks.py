"""Lines of one process → a Python traceback, a faulthandler dump, a C++ abort. Pure; no line is trusted for more."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

TRACEBACK = "Traceback (most recent call last):"
FATAL = re.compile(r"Fatal Python error: (?P<error>.*)")
TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>.*?)'")
STRAY_HEADER = re.compile(
    r"(?:--- Logging error ---|Process \S+:|Exception in thread .*:"
    r"|Exception ignored .*|Error in sys\.excepthook:|ERROR: .*)$"
)
"""Unprefixed lines that announce a traceback and say whose it is."""

_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?)(?:,)? in (?P<function>.*)')
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<text>.*))?$", re.DOTALL)
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_ELISIONS = ("[...]", "...", "…")
_GROUP_BARS = re.compile(r"^ *(?:\| ?|\+-+.*|\+ )")
_MAX_TEXT_LINES = 12
_BUILD = re.compile(r"Ninja build failed|Error building extension")
_COMPILER = re.compile(r": (?:fatal )?error: |\): error: |fatal +: |died due to signal|^Killed$|undefined reference")
"""Of a failed build's output, which can be thousands of lines, those that say why are kept wherever they stand."""
_MAX_FRAMES = 40


@dataclass(frozen=True, slots=True)
class ParsedTraceback:
    """`exception_line` is the index of the line that names the exception: the decisive one.

    `chained` are the earlier exceptions of the chain as `Type: text`, first cause first.
    """

    exception: str
    text: str
    frames: tuple[str, ...]
    chained: tuple[str, ...]
    exception_line: int


def parse_traceback(lines: Sequence[str]) -> ParsedTraceback | None:
    """The last exception of a (chained) traceback; None when the lines end before an exception was named.

    `lines[0]` holds the `Traceback …` text. Exception groups are read without their bars.
    """
    found: list[tuple[str, list[str], list[str], int]] = []
    frames: list[str] = []
    text: list[str] = []
    state = "frames"
    grouped = "Exception Group Traceback" in lines[0]
    elided = False
    for index, raw in enumerate(lines[1:], start=1):
        line = _GROUP_BARS.sub("", raw) if grouped else raw
        if state == "frames":
            if TRACEBACK in line:
                continue
            if frame := _FRAME.match(line):
                frames.append(f"{frame['file']}:{frame['line']} in {frame['function']}")
            elif line.strip() in _ELISIONS:
                elided = True
            elif line[:1] not in ("", " ", "\t") and (named := _EXCEPTION.match(line)):
                text = [named["text"] or ""]
                found.append((named["type"], frames, text, index))
                frames, state = [], "text"
            elif elided and line[:1] not in ("", " ", "\t"):
                # Whoever shortened the text left the message without its type.
                text = [line]
                found.append(("", frames, text, index))
                frames, state = [], "text"
        elif state == "text":
            if line.strip() in _CHAINED:
                state = "chain"
            elif len(text) < _MAX_TEXT_LINES or (
                len(text) < 2 * _MAX_TEXT_LINES and _BUILD.search(text[0]) and _COMPILER.search(line)
            ):
                text.append(line)
        elif TRACEBACK in line:
            state = "frames"
    if not found:
        return None
    exception, frames, text, index = found[-1]
    if len(frames) > _MAX_FRAMES:
        frames = frames[: _MAX_FRAMES // 2] + frames[-_MAX_FRAMES // 2 :]
    return ParsedTraceback(
        exception=exception,
        text="\n".join(text).strip(),
        frames=tuple(frames),
        chained=tuple(f"{kind}: {said[0]}".rstrip(": ") for kind, _, said, _ in found[:-1]),
        exception_line=index,
    )


def parse_fatal_frames(lines: Sequence[str]) -> tuple[str, ...]:
    """faulthandler's frames of the thread that died (`Current thread`), innermost first."""
    frames: list[str] = []
    current = False
    for line in lines:
        if line.startswith(("Current thread", "Stack (most recent call first)")):
            current = True
        elif line.startswith(("Thread 0x", "Extension modules:")):
            current = False
        elif current and (frame := _FRAME.match(line)):
            frames.append(f"{frame['file']}:{frame['line']} in {frame['function']}")
    return tuple(frames[:_MAX_FRAMES])


def parse_what(lines: Sequence[str]) -> str:
    """The `what():` of a C++ exception that nobody caught."""
    for line in lines:
        if line.lstrip().startswith("what():"):
            return line.split("what():", 1)[1].strip()
    return ""
