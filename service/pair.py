"""The target and the draft of a spec, read from where they lie; and what their files say against a start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.command import command
from service.finding import Finding, note
from service.fit import misfits
from service.model import BadModel, Model, located, read
from service.spec import ServerSpec

__all__ = ["Pair", "pair"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A model is None where it is not on this machine, or cannot be read; `findings` then may say why."""

    target: Model | None
    draft: Model | None
    findings: tuple[Finding, ...]


def pair(spec: ServerSpec) -> Pair:
    """Read both models' configurations and headers, no weights; takes well under a second."""
    s, findings = spec.speculative, list[Finding]()
    target = _model(spec, "model_path", spec.model_path, spec.revision, findings)
    draft = None
    if s.draft_model_path is not None and s.algorithm not in (None, "NGRAM"):
        key = "speculative.draft_model_path"
        draft = _model(spec, key, s.draft_model_path, s.draft_model_revision, findings)
    if target is not None and draft is not None:
        findings += _fit(spec, target, draft)
    return Pair(target, draft, tuple(findings))


def _model(spec: ServerSpec, key: str, reference: str, revision: str | None, findings: list[Finding]) -> Model | None:
    try:
        path = located(reference, {"HOME": "/var/lib/sglang"} | command(spec).env, revision)
        if path is None or not (path / "config.json").exists():
            return None
        return read(path)
    except BadModel as error:
        findings.append(Finding(key, f"{reference}: {error}"))
    except OSError:  # whether the server may read it, another check says
        pass
    return None


def _fit(spec: ServerSpec, target: Model, draft: Model) -> Iterator[Finding]:
    for misfit in misfits(spec.speculative.algorithm, target, draft):
        key = "speculative.draft_model_path"
        yield Finding(key, misfit.message) if misfit.certain else note(key, misfit.message)
