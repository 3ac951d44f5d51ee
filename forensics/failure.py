"""What a failure of the server says, in words, and the finding that rests on it. Shared by the rules on failures."""

import re

from forensics.causality import Ending, Failure
from forensics.events import ChildDied, FatalPythonError, NativeAbort, ServerError, Traceback
from forensics.model import Evidence, Finding, Role, Strength

_QUOTING_TYPES = (
    "ValueError", "TypeError", "KeyError", "AssertionError", "ValidationError", "RequestValidationError",
    "JSONDecodeError", "UnicodeDecodeError", "UnicodeEncodeError", "TemplateError", "TemplateSyntaxError",
    "UndefinedError", "HTTPException", "SyntaxError", "BadRequestError",
)  # fmt: skip
_QUOTING_FRAME = re.compile(r"/(?:constrained|xgrammar|llguidance|outlines\w*|jinja2|json|pydantic\w*|function_call)/")

CUDA = re.compile(
    r"(?P<runtime>CUDA|HIP)(?:RT| driver)? error(?: \S+)?: ?(?P<error>[^\n.;]{1,160})"
    r"|(?P<npu>NPU|ACL)(?: function error| stream synchronize failed)[:,] ?(?P<code>[^\n;]{1,160})"
    r"|(?P<cutlass>Failed to (?:run|launch|initialize) [^\n]{0,40}(?:cutlass|CUTLASS)[^\n]{0,120})"
    r"|(?P<xpu>level_zero backend failed with error: [^\n]{1,80})"
    r"|(?P<status>CU(?:BLAS|SOLVER|SPARSE|FFT|DNN)_STATUS_\w+)"
    r"|(?P<enum>cudaError[A-Z]\w+)"
    r"|Cuda failure (?:\d+ )?'(?P<nccl>[^'\n]{1,120})'"
    r"|(?P<driver>CUDA driver version is insufficient|NVIDIA driver on your system is too old)"
    r"|Triton Error \[CUDA\]: (?P<triton>[^\n]{1,120})"
)
"""A CUDA call or kernel that failed, in the words of torch, cuBLAS and kin, Triton or NCCL."""

WHOLE = 2000
"""More than any line that a key is made of."""

KEY_CHARS = 120
"""Of a line so much is part of a fingerprint: cut last, since numbers of other lengths would move the cut."""

_VARIABLE = (
    (re.compile(r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[a-f]*\d)[0-9a-f]{16,})\b"), "ID"),
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"/[^\s'\":,]*/"), "…/"),
    (re.compile(r"\d+(?:[.:]\d+)*"), "N"),
)


def said(failure: Failure | None) -> str:
    """All that a failure says, first cause first: `Type: text` of each exception in its chain."""
    if isinstance(failure, Traceback):
        return "\n".join((*failure.chained, f"{failure.exception}: {failure.text}"))
    if isinstance(failure, NativeAbort):
        return f"{failure.exception}: {failure.what}"
    if isinstance(failure, FatalPythonError):
        return f"Fatal Python error: {failure.error}"
    if isinstance(failure, ServerError):
        return dict(failure.values).get("what", failure.record.message)
    return "" if failure is None else failure.record.message


def machine_words(failure: Failure | None) -> str:
    """What of it a library below Python may have said: CUDA, NCCL, the loader. Left out are exceptions whose text
    quotes what somebody sent: a prompt, a schema or a template can hold any words."""
    if not isinstance(failure, Traceback):
        return said(failure)
    if any(_QUOTING_FRAME.search(frame) for frame in failure.frames[-3:]):
        return ""
    spoken = (*failure.chained, f"{failure.exception}: {failure.text}")
    return "\n".join(text for text in spoken if text.split(":", 1)[0].rsplit(".", 1)[-1] not in _QUOTING_TYPES)


def headline(failure: Failure, limit: int = 200) -> str:
    """The failure in one line."""
    if isinstance(failure, Traceback):
        text = f"{failure.exception}: {failure.text.splitlines()[0] if failure.text else ''}".strip(": ")
    else:
        text = said(failure).splitlines()[0] if said(failure) else failure.record.message
    return text if len(text) <= limit else text[: limit - 1] + "…"


def decisive_line(failure: Failure, found: re.Match[str] | None, limit: int = 200) -> str:
    """The line of what it says that a pattern was found in: of a chain of exceptions, the one that matters."""
    if found is None:
        return ""
    text = found.string
    line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0].strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def sentence(text: str) -> str:
    """The text with one full stop at its end, whatever it ended in."""
    text = text.rstrip(" .:,")
    return text if text.endswith("…") else f"{text}."


def innermost(failure: Failure) -> str:
    """`file.py in function` of the frame that raised; without line numbers, which move with every release."""
    if isinstance(failure, Traceback) and failure.frames:
        frame = failure.frames[-1]
    elif isinstance(failure, FatalPythonError) and failure.frames:
        frame = failure.frames[0]
    else:
        return ""
    path, _, function = frame.partition(" in ")
    return f"{path.rsplit('/', 1)[-1].split(':', 1)[0]} in {function}"


def stable(text: str) -> str:
    """The text without what changes from one death to the next: ids of requests, addresses, folders, numbers."""
    for pattern, replacement in _VARIABLE:
        text = pattern.sub(replacement, text)
    return text


def who(failure: Failure, ending: Ending) -> str:
    """Whose failure it is: `scheduler TP0`, `main process` …"""
    role = failure.process if isinstance(failure, Traceback | ServerError | FatalPythonError) else ""
    pid = failure.record.pid
    role = role or (ending.run.pids.get(pid, "") if pid is not None else "")
    tag = failure.tag if isinstance(failure, Traceback | ServerError) else ""
    names = {"": "server", "main": "main process", "child": "child process", "controller": "data-parallel controller"}
    return " ".join(filter(None, (names.get(role, role), tag)))


def finding(
    ending: Ending, failure: Failure, *, summary: str, subclass: str = "", why: str = "", key: tuple[str, ...] = ()
) -> Finding:
    """A finding on the failure that began it. Confirmed when systemd's record of the exit is the one that this
    failure leads to, and the line's writer is known; else its words alone are not enough."""
    known = failure.record.pid is not None
    certain = known and ending.explains_exit(failure)
    began = failure.chained[0] if isinstance(failure, Traceback) and failure.chained else ""
    first = f"the first failure, of {who(failure, ending)}{f', which began as {began[:200]}' if began else ''}"
    default_key = (headline(failure, WHOLE), innermost(failure))
    return Finding(
        strength=Strength.CONFIRMED if certain else Strength.LIKELY,
        summary=summary,
        subclass=subclass,
        evidence=(
            Evidence(role=Role.INITIATING, event=failure, why=why or first),
            *ending.aftermath(failure),
        ),
        key=tuple(stable(part)[:KEY_CHARS] for part in (key or default_key) if part),
        awaits=("kernel",) if isinstance(failure, ChildDied) else (),
        notes=() if known else ("The log does not tell which process wrote which line, so this rests on its words.",),
    )


def search(pattern: re.Pattern[str], failure: Failure | None) -> re.Match[str] | None:
    """The pattern in what the failure says."""
    return pattern.search(said(failure)) if failure is not None else None


def search_machine(pattern: re.Pattern[str], failure: Failure | None) -> re.Match[str] | None:
    """The pattern in what a library below Python may have said of it."""
    return pattern.search(machine_words(failure)) if failure is not None else None
