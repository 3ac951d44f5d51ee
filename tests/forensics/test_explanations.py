"""Each cause explains itself, and what it says to do is what the advice says."""

import inspect
import re
from io import BytesIO
from types import ModuleType

import pytest

from forensics import advice, xid_catalog
from forensics.events import Gap
from forensics.explanations import EXPLANATIONS, Explanation, explained
from forensics.model import Family
from forensics.rules import RULES
from forensics.sources.export import read_json
from tests.cases import build
from tests.cases.replay import replay
from tests.cases.story import Journal
from tests.forensics.commandline import Inquest

# What stands for a thing that one does something to: keys of a spec, directives, variables, options, commands.
_TERM = re.compile(r"--[a-z][a-z-]+|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[A-Z][A-Za-z0-9_]+(?==)|\bss -ltnp")


def test_every_cause_is_explained_and_unknown_too() -> None:
    assert list(EXPLANATIONS) == [*(rule.cause for rule in RULES), "unknown"]


@pytest.mark.parametrize("one", EXPLANATIONS.values(), ids=lambda one: one.cause)
def test_an_explanation_says_everything(one: Explanation) -> None:
    for part in (one.title, one.signal, one.not_this, one.followed_by, one.needs, one.to_do):
        assert len(part) > 10
        assert "\n" not in part


@pytest.mark.parametrize("lacking", ["Signal", "Not this", "Followed by", "Needs", "To do"])
def test_a_part_that_is_missing_is_named(lacking: str) -> None:
    parts = [part for part in ("Signal", "Not this", "Followed by", "Needs", "To do") if part != lacking]
    module = ModuleType("forensics.rules.made_up")
    module.__doc__ = "made-up: a cause.\n\n" + "".join(f"{part}: words\n" for part in parts)
    with pytest.raises(ValueError, match=f"made_up: its docstring lacks: {lacking}"):
        explained(module, Family.UNKNOWN)


def _advised(path: str) -> dict[str, set[str]]:
    """By cause, the terms in the advice of a recorded case."""
    journal = Journal(name=path)
    build.CASES[path](journal)
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in journal.gaps]
    units = {expected.unit for expected in journal.expected}
    found: dict[str, set[str]] = {}
    for judged in replay(read_json(BytesIO(journal.dump().encode())), units, gaps):
        found.setdefault(judged.verdict.cause, set()).update(_TERM.findall(" ".join(judged.verdict.advice)))
    return found


def test_what_is_advised_in_any_recorded_case_stands_in_the_explanation() -> None:
    advised: dict[str, set[str]] = {}
    for path in build.CASES:
        for cause, terms in _advised(path).items():
            advised.setdefault(cause, set()).update(terms)
    assert {"memory_max", "MAX_JOBS"} <= advised["kernel-oom"]
    for cause, terms in advised.items():
        missing = {term for term in terms - {"_SYSTEMD_INVOCATION_ID"} if term not in EXPLANATIONS[cause].to_do}
        assert not missing, f"{cause} is advised on {missing}, of which its explanation says nothing"


def test_what_an_explanation_says_to_set_is_advised_somewhere() -> None:
    source = "".join(inspect.getsource(module) for module in (advice, xid_catalog))
    for one in EXPLANATIONS.values():
        for term in _TERM.findall(one.to_do):
            assert term in source, f"{one.cause}: {term} is never advised"


# --- the command ---------------------------------------------------------------------------------------------


def test_explain_works_without_a_daemon(
    inquest: Inquest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INQUEST_API", "http://127.0.0.1:1")
    assert inquest("explain", "kernel-oom") == 0
    out = capsys.readouterr().out
    for head in ("How it is recognised", "What it is not", "What evidence it needs", "What to do"):
        assert f"\n{head}\n  " in out
    assert "raise memory_max in the spec" in out


def test_all_causes_in_one_table(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("explain") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["cause", "family", "what", "it", "is"]
    assert [row.split()[0] for row in rows] == list(EXPLANATIONS)


def test_a_cause_that_is_none(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("explain", "kernel-ooms") == 2
    assert capsys.readouterr().err == "inquest: no cause is called 'kernel-ooms'\nDid you mean kernel-oom?\n"
