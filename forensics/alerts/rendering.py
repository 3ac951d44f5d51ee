"""The words of an alert as plain text, Markdown and HTML.

Whatever a log line holds stays text: no markup, no mention and no disguised link comes of it."""

import re
from html import escape

from forensics.alerts.words import Words

_ZERO_WIDTH_SPACE = "\u200b"
# What chat services turn into a call for everybody or somebody (@here, @everyone, <@U123>, <!channel>, <#C123>), and
# some of them, whatever they were told of the text's format, into a link under another name: [here](http://…).
_CALLS = re.compile(r"[@＠](?=\w)|<(?=[@!#&:])|\](?=\()")
_MARKDOWN = re.compile(r"[\\`*_\[\]<>#|~]")


def plain(words: Words) -> str:
    """A line each. For what is no chat: nothing in it is changed."""
    return "\n".join(_parts(words))


def chat(words: Words) -> str:
    """Plain text that calls nobody and leads nowhere, even where a service looks for mentions and links in it."""
    return "\n".join(map(_harmless, _parts(words)))


def markdown(words: Words) -> str:
    """CommonMark: the sentence in bold, the decisive line as code."""
    parts = [f"**{_literal(words.sentence)}**"]
    parts += [_literal(part) for part in (words.blame, words.history, words.todo) if part]
    if words.line:
        # Nothing can be escaped in code; a backtick would end it.
        parts.append(f"`{_harmless(words.line).replace('`', 'ˋ')}`")
    return "\n\n".join([*parts, words.link])


def html(words: Words) -> str:
    """A fragment: paragraphs, the decisive line as code, the link."""
    parts = [f"<p><b>{escape(_harmless(words.sentence))}</b></p>"]
    parts += [f"<p>{escape(_harmless(part))}</p>" for part in (words.blame, words.history, words.todo) if part]
    if words.line:
        parts.append(f"<p><code>{escape(_harmless(words.line))}</code></p>")
    link = escape(words.link)
    return "\n".join([*parts, f'<p><a href="{link}">{link}</a></p>'])


def _parts(words: Words) -> list[str]:
    return [part for part in (words.sentence, words.blame, words.history, words.todo, words.line, words.link) if part]


def _harmless(text: str) -> str:
    return _CALLS.sub(lambda found: found[0] + _ZERO_WIDTH_SPACE, text)


def _literal(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", _harmless(text))
