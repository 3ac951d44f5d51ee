"""A spec against the SGLang that is installed: options it does not know, and what this release refuses."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from service.command import command, key_of
from service.finding import Finding, note
from service.installed import Installed
from service.spec import ServerSpec

__all__ = ["against"]

_PAGED_TREES = ("flashinfer", "fa3", "triton")


def against(spec: ServerSpec, installed: Installed) -> tuple[Finding, ...]:
    """What `installed` will refuse of `spec`, or not understand as it is meant."""
    return (*_options(spec, installed), *_topk_and_pages(spec, installed), *_pipeline(spec, installed))


def _options(spec: ServerSpec, installed: Installed) -> Iterator[Finding]:
    if not installed.options:
        return
    words = command(spec).argv[3:]
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if not word.startswith("--") or len(word) == 2:
            continue
        name, _, value = word.partition("=")
        key = key_of(name) or "extra_args"
        if not installed.knows(name):
            near = difflib.get_close_matches(name, installed.options, n=1, cutoff=0.75)
            meant = f"; the nearest it knows is {near[0]}" if near else ""
            yield Finding(key, f"{name} is no option of the installed {installed}, which would refuse to start{meant}")
            continue
        choices, value = installed.options.get(name, ()), value or following
        if choices and value not in choices and not value.startswith("--"):
            said = f"{value!r} is not among the values that the installed {installed} lists for {name}"
            # Plugins extend these lists; that of the algorithms was fixed as long as there was one.
            yield Finding(key, f"{said}: {', '.join(choices)}", is_error=name == "--speculative-algorithm")


def _topk_and_pages(spec: ServerSpec, installed: Installed) -> Iterator[Finding]:
    topk, page, backend = spec.speculative.eagle_topk or 1, spec.memory.page_size or 1, spec.attention_backend
    if installed.version is None or spec.speculative.algorithm is None or topk == 1 or page == 1:
        return
    allowed = _PAGED_TREES if installed.version >= (0, 5, 23) else ("flashinfer",)
    if backend is None:
        words = f"{topk} with page_size {page} works with the attention backend {' or '.join(allowed)} only"
        yield note("speculative.eagle_topk", f"{words}; none is given")
    elif backend not in allowed:
        words = f"{topk} with page_size {page} needs the attention backend {' or '.join(allowed)}; it is {backend}"
        yield Finding("speculative.eagle_topk", words)


def _pipeline(spec: ServerSpec, installed: Installed) -> Iterator[Finding]:
    if installed.version is None or spec.speculative.algorithm is None or (spec.parallel.pp_size or 1) == 1:
        return
    if installed.version < (0, 5, 7):
        yield Finding("parallel.pp_size", f"must be 1 with speculation in {installed}")
    else:
        yield note("parallel.pp_size", f"with speculation works in few modes of {installed}, if at all")
