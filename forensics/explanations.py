"""What each cause is, in words: read off the docstrings of `forensics/rules`, so that a cause explains itself."""

import inspect
import re
from dataclasses import dataclass
from types import ModuleType

from forensics.model import Family
from forensics.rules import RULES, unknown

_PART = re.compile(r"^([A-Z][A-Za-z ]+): +", re.MULTILINE)
_PARTS = {
    "signal": "Signal",
    "not_this": "Not this",
    "followed_by": "Followed by",
    "needs": "Needs",
    "to_do": "To do",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One cause: what it is (`title`), by which records it is recognised (`signal`), what it is not confused with,
    which cascade follows it, what evidence it needs, and what to do."""

    cause: str
    family: str
    title: str
    signal: str
    not_this: str
    followed_by: str
    needs: str
    to_do: str


def explained(module: ModuleType, family: Family) -> Explanation:
    """A rule's docstring, taken apart. ValueError names the part that is missing."""
    first, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    cause, colon, title = first.partition(": ")
    pieces = _PART.split(rest)
    found = {label: " ".join(text.split()) for label, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    missing = [label for label in _PARTS.values() if not found.get(label)]
    if missing or not colon:
        raise ValueError(f"{module.__name__}: its docstring lacks: {', '.join(missing) or 'cause: what it is'}")
    parts = {name: found[label] for name, label in _PARTS.items()}
    return Explanation(cause=cause, family=family.value, title=" ".join(title.split()), **parts)


def _modules() -> list[tuple[ModuleType, Family]]:
    ruled = [(inspect.getmodule(rule.match), rule.family) for rule in RULES]
    return [*((module, family) for module, family in ruled if module is not None), (unknown, Family.UNKNOWN)]


EXPLANATIONS = {one.cause: one for one in (explained(module, family) for module, family in _modules())}
"""By cause, in the rules' order of precedence, `unknown` last."""
