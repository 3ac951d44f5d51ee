"""systemd's quoting: text that PID 1 reads back as exactly the string that went in (systemd.syntax(7)).

Strings from a spec hold no control characters; those from elsewhere, such as a file's name, are made harmless.
"""

from __future__ import annotations

import re

__all__ = ["argument", "assignment", "escaped_name", "input_text", "printable", "text", "word"]

# Without these a word needs no quotes. '~' and '!' are left out: some directives give them a meaning.
_BARE = re.compile(r"[A-Za-z0-9_./:=@,+-]+")
_NAME = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.")


def printable(line: str) -> str:
    """`line` as one line of valid UTF-8: a line break in it would begin a directive of its own."""
    clean = "".join("?" if ord(c) < 32 or ord(c) == 127 else c for c in line)
    return clean.encode("utf-8", "replace").decode("utf-8")


def text(line: str) -> str:
    """For a directive that takes the line as it is, such as Description=: ``%`` is special, and a last ``\\``."""
    return printable(line).replace("%", "%%") + (" " if line.endswith("\\") else "")


def input_text(line: str) -> str:
    """For StandardInputText=, which reads C escapes as well."""
    return printable(line).replace("\\", "\\\\").replace("%", "%%")


def argument(string: str) -> str:
    """One word of an Exec…= line. ``$`` is doubled: PID 1 would put a variable's value there."""
    return _quoted(string.replace("$", "$$"))


def assignment(key: str, value: str) -> str:
    """One word of Environment=, where ``$`` has no meaning."""
    return _quoted(f"{key}={value}")


def word(string: str) -> str:
    """One word of another directive that takes a list, such as RequiresMountsFor=."""
    return _quoted(string)


def escaped_name(string: str) -> str:
    """As systemd-escape(1): any string as a part of a unit's name."""
    parts: list[str] = []
    for index, byte in enumerate(string.encode("utf-8", "surrogateescape")):
        if byte == ord("/"):
            parts.append("-")
        elif byte in _NAME and not (index == 0 and byte == ord(".")):
            parts.append(chr(byte))
        else:
            parts.append(f"\\x{byte:02x}")
    return "".join(parts)


def _quoted(string: str) -> str:
    if _BARE.fullmatch(string):
        return string
    return '"' + string.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
