"""How PID 1 reads a unit file, for the directives that are generated: the other side of ``units.quote``.

Written after systemd's own reader (config_parse in conf-parser.c, extract_first_word and cunescape in
extract-word.c and escape.c, config_parse_exec and config_parse_environ in load-fragment.c), not after the code under
test. Against PID 1 itself it was checked once on systemd 252 with some thousand strings.
"""

from __future__ import annotations

import re

SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'",
          "s": " "}  # fmt: skip
SPECIFIERS = {"%%": "%", "%S": "/var/lib"}


def directives(text: str) -> list[tuple[str, str]]:
    """(name, raw value) of every assignment, continuation lines joined as systemd joins them."""
    found: list[tuple[str, str]] = []
    pending = ""
    for line in text.split("\n"):
        if not pending and line.lstrip()[:1] in {"#", ";", ""}:
            continue
        joined = pending + line.lstrip() if pending else line.lstrip()
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            pending = joined[:-1] + " "
            continue
        pending = ""
        if not joined.startswith("["):
            name, _, value = joined.partition("=")
            found.append((name.strip(), value.strip()))
    assert not pending, "the file ends in a continuation"
    return found


def values(text: str, name: str) -> list[str]:
    return [value for key, value in directives(text) if key == name]


def words(raw: str) -> list[str]:
    """Split as extract_first_word() does with EXTRACT_UNQUOTE and EXTRACT_CUNESCAPE, then resolve specifiers."""
    found: list[str] = []
    word, quote, i, open_word = "", "", 0, False
    while i < len(raw):
        c = raw[i]
        if c == "\\":
            assert i + 1 < len(raw), "a lone backslash at the end"
            piece, i = _unescaped(raw, i + 1)
            word, open_word = word + piece, True
            continue
        if quote:
            word, quote = (word, "") if c == quote else (word + c, quote)
        elif c in "'\"":
            quote, open_word = c, True
        elif c in " \t":
            if open_word:
                found.append(word)
            word, open_word = "", False
        else:
            word, open_word = word + c, True
        i += 1
    assert not quote, "an open quote"
    return [specified(w) for w in (*found, *([word] if open_word else []))]


def c_unescaped(raw: str) -> str:
    """As cunescape() does, for StandardInputText=."""
    out, i = "", 0
    while i < len(raw):
        piece, i = _unescaped(raw, i + 1) if raw[i] == "\\" else (raw[i], i + 1)
        out += piece
    return out


def _unescaped(raw: str, i: int) -> tuple[str, int]:
    if raw[i] in SIMPLE:
        return SIMPLE[raw[i]], i + 1
    if raw[i] == "x":
        return chr(int(raw[i + 1 : i + 3], 16)), i + 3
    raise AssertionError(f"an escape that systemd refuses: \\{raw[i]}")


def specified(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        assert match[0] in SPECIFIERS, f"a specifier by accident: {match[0]}"
        return SPECIFIERS[match[0]]

    return re.sub(r"%.?", value, text)


def argv(raw: str) -> list[str]:
    """An Exec…= value as the process sees it: words, then variables, of which none is expected."""

    def value(match: re.Match[str]) -> str:
        assert match[0] == "$$", f"a variable by accident: {match[0]}"
        return "$"

    assert not re.search(r"(^|\s)\\?;(\s|$)", re.sub(r'"(?:[^"\\]|\\.)*"', "", raw)), "a second command"
    return [re.sub(r"\$.?", value, word) for word in words(raw)]
