"""A spec looked at with all that this machine knows of it: the SGLang installed, the models on disk."""

from __future__ import annotations

from service.command import command
from service.finding import Finding
from service.installed import Installed, NoInterpreter, NoSglang, find
from service.outcome import sentences
from service.pair import pair
from service.release import against
from service.spec import ServerSpec

__all__ = ["installed_for", "made_of", "review"]


def installed_for(spec: ServerSpec) -> Installed | None:
    """The SGLang that the spec's interpreter would run; None where there is none, or it cannot be told."""
    try:
        return find(spec.python, command(spec).env)
    except (NoInterpreter, NoSglang):
        return None


def made_of(spec: ServerSpec) -> tuple[str, ...]:
    """What the installed SGLang will make of the spec, a line for each value that is not as written."""
    installed, target = installed_for(spec), pair(spec).target
    version, architecture = installed.version if installed else None, target.architecture if target else ""
    return tuple(f"{key}: {words}" for key, words in sentences(spec, version, architecture))


def review(spec: ServerSpec) -> tuple[Finding, ...]:
    """What speaks against the spec on this machine; nothing where SGLang or the models are elsewhere."""
    installed = installed_for(spec)
    return (*(against(spec, installed) if installed else ()), *pair(spec).findings)
