"""A manual page in man(7)'s macros. Text is plain but for `code`, which is set in bold."""

import re
import textwrap
from collections.abc import Iterable

_SOURCE_COLUMNS = 70
_CODE = re.compile(r"`([^`]+)`")


class Page:
    """One page, written from top to bottom; `str` gives its source."""

    def __init__(self, name: str, section: int, summary: str, version: str, date: str) -> None:
        self.name, self.section = name, section
        self._lines = [
            f'.TH {_quoted(name.upper())} {section} "{date}" {_quoted(f"inquest {version}")} "Inquest"',
            # Names of options and keys are not to be broken, nor lines stretched.
            ".nh",
            ".ad l",
            ".SH NAME",
            f"{escaped(name)} \\- {escaped(summary)}",
        ]
        self._begins = True

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def head(self, title: str) -> None:
        self._lines.append(f".SH {_quoted(title.upper())}")
        self._begins = True

    def sub(self, title: str) -> None:
        self._lines.append(f".SS {_quoted(title)}")
        self._begins = True

    def text(self, words: str) -> None:
        """A paragraph."""
        # The first one of a section needs no macro, and mandoc says so.
        if not self._begins:
            self._lines.append(".PP")
        self._begins = False
        self._lines.append(_line(words))

    def item(self, term: str, *words: str) -> None:
        """A term and what it means, one paragraph or more."""
        self._lines += [".TP", rf"\fB{escaped(term)}\fR", _line(words[0])]
        for more in words[1:]:
            self._lines += [".IP", _line(more)]
        self._begins = False

    def example(self, lines: Iterable[str]) -> None:
        """As it stands."""
        if not self._begins:
            self._lines.append(".PP")
        self._begins = False
        self._lines += [".RS 4", ".nf", *(_kept(line) for line in lines), ".fi", ".RE"]


def escaped(text: str) -> str:
    """Backslashes and hyphens as themselves: a hyphen of an option must stay one when it is copied."""
    return text.replace("\\", r"\e").replace("-", r"\-")


def _line(words: str) -> str:
    text = _CODE.sub(lambda found: rf"\fB{found[1]}\fR", escaped(" ".join(words.split())))
    lines = textwrap.wrap(text, _SOURCE_COLUMNS, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(_kept_begin, lines))


def _kept(line: str) -> str:
    return _kept_begin(escaped(line))


def _kept_begin(text: str) -> str:
    # A dot or a quote at a line's beginning would be a macro.
    return rf"\&{text}" if text.startswith((".", "'")) else text


def _quoted(text: str) -> str:
    return '"' + escaped(text).replace('"', r"\(dq") + '"'
