"""systemd's quoting: text that PID 1 reads back as exactly the string that went in (systemd.syntax(7))."""

from __future__ import annotations

import re

__all__ = ["argument", "assignment", "escaped_name", "specifiers"]

_BARE = re.compile(r"[A-Za-z0-9_./:=@,+-]+")


def specifiers(text: str) -> str:
    """For directives that take one free text, such as Description=: only ``%`` is special."""
    return text.replace("%", "%%")


def argument(text: str) -> str:
    """One word of an Exec…= line. ``$`` is doubled: PID 1 would put a variable's value there."""
    return _quoted(text.replace("$", "$$"))


def assignment(key: str, value: str) -> str:
    """One word of Environment=, where ``$`` has no meaning."""
    return _quoted(f"{key}={value}")


def word(text: str) -> str:
    """One word of another directive that takes a list of words, such as RequiresMountsFor=."""
    return _quoted(text)


def escaped_name(text: str) -> str:
    """As systemd-escape(1): any string as a part of a unit's name."""
    keep = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.")
    parts: list[str] = []
    for index, byte in enumerate(text.encode("utf-8", "surrogateescape")):
        character = chr(byte)
        if character == "/":
            parts.append("-")
        elif character in keep and not (index == 0 and character == "."):
            parts.append(character)
        else:
            parts.append(f"\\x{byte:02x}")
    return "".join(parts)


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
