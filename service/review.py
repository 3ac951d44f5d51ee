"""A spec looked at with all that this machine knows of it: the SGLang installed, the models on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from service.command import command
from service.finding import Finding, note
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
    """What speaks against the spec on this machine; where SGLang or the models are elsewhere, only that they are."""
    installed = installed_for(spec)
    return (*_elsewhere(spec), *(against(spec, installed) if installed else ()), *pair(spec).findings)


def _elsewhere(spec: ServerSpec) -> Iterator[Finding]:
    """Paths that are not there: a spec may be checked on another machine than its server's."""
    draft = spec.speculative.draft_model_path
    for key, path in (
        ("python", spec.python),
        ("model_path", spec.model_path),
        ("speculative.draft_model_path", draft),
    ):
        if path is not None and path.startswith("/") and not Path(path).exists():
            yield note(key, f"{path} does not exist on this machine: a start here would be refused")
