"""What a log shipper puts before each line, learned from the lines themselves. Pure.

Every shipper, CI and launcher has a form of its own, and who quotes a log indents it. What stands before SGLang's own
prefix, or before the frames of a traceback, on most lines of a file is not the server's: it is taken off all of them.
"""

import re

_OWN = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]+\d+)*\] ")
_FRAME = re.compile(r'(?:  )?File "[^"\n]{1,400}", line \d+,? in ')
_PROCESS = re.compile(
    r"\((?:[A-Za-z]\w*)(?: rank=\d+)? pid=\d{1,10}(?:, ip=[\w.:]+)?\) ?"
    r"(?:[A-Z]{4,8} \d\d-\d\d [\d:]{8} \[?[\w./-]+:\d+\] ?)?$"
)
"""Ray's and vLLM's word on who wrote the line is no shipper's: it tells the processes apart."""

_LONGEST = 200


def learned(lines: list[str]) -> re.Pattern[bytes] | None:
    """The form of what stands before each of these lines; None where nothing does, or it is not the same on most.

    Digits differ from line to line, the rest does not.
    """
    for landmark in (_OWN, _FRAME):
        shapes = [_shape(line[: found.start()]) for line in lines if (found := landmark.search(line[: 2 * _LONGEST]))]
        if not shapes:
            continue
        shape = max(dict.fromkeys(shapes), key=shapes.count)
        if not shape:
            return None
        pattern = re.compile(shape.encode())
        fitting = sum(pattern.match(line.encode()) is not None for line in lines)
        return pattern if fitting >= 2 and fitting * 2 > len(lines) else None
    return None


def without(shipper: re.Pattern[bytes], raw: bytes) -> bytes:
    """The line without what the shipper put before it; a line that has nothing of it as it is."""
    found = shipper.match(raw)
    return raw[found.end() :] if found else raw


def _shape(before: str) -> str:
    before = _PROCESS.sub("", before)
    return "" if len(before) > _LONGEST or before.isspace() else re.sub(r"\d+", r"\\d+", re.escape(before))
