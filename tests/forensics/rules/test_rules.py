"""The table of rules: what every rule must keep."""

import re
from dataclasses import replace

import pytest

from forensics.causality import Ending
from forensics.classify import classify
from forensics.events import Event, Gap
from forensics.model import Family, Finding, NotThis, Strength
from forensics.rules import RULES, Rule
from forensics.timeline import Timeline
from tests.forensics.factories import main_exit, run, traceback

SOURCES = ("systemd", "kernel", "server", "coredump", "oomkillers")


def test_slugs_are_unique_and_stable_in_form() -> None:
    causes = [rule.cause for rule in RULES]
    assert len(causes) == len(set(causes))
    assert all(re.fullmatch(r"[a-z]+(?:-[a-z]+)*", cause) for cause in causes)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.cause)
def test_a_rule_lives_in_the_file_of_its_name_and_says_what_it_goes_by(rule: Rule) -> None:
    module = __import__(rule.match.__module__, fromlist=["match"])
    assert module.__name__.endswith(rule.cause.replace("-", "_"))
    text = module.__doc__ or ""
    assert text.startswith(f"{rule.cause}: ")
    for part in ("Signal:", "Not this:", "Followed by:"):
        assert f"\n{part}" in text, part


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.cause)
@pytest.mark.parametrize("sources", [(), SOURCES])
def test_a_rule_says_nothing_certain_of_nothing(rule: Rule, sources: tuple[str, ...]) -> None:
    """Without a single fact there is no confirmed finding, and no rule raises."""
    nothing = replace(run(), exit_code=None, exit_status=None, result=None, main_pid=None, pids={})
    answer = rule.match(Ending(nothing, Timeline.of((), (), sources)))
    assert answer is None or isinstance(answer, NotThis)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.cause)
def test_silence_rules_nothing_out_that_was_not_read(rule: Rule) -> None:
    """`NotThis` by silence is said only of sources that were heard."""
    gaps = [Gap(source=source, reason="could not be read") for source in SOURCES]
    answer = rule.match(Ending(run(), Timeline.of([main_exit()], gaps, SOURCES)))
    if isinstance(answer, NotThis):
        assert not re.search(r"kernel log was read|^no |^neither|^nobody", answer.why), answer.why


def test_a_rule_that_raises_costs_a_note_and_nothing_else() -> None:
    def broken(ending: Ending) -> Finding:
        raise ZeroDivisionError(ending.run.unit)

    timeline = Timeline.of([traceback(), main_exit()], (), SOURCES)
    rules = (Rule("broken", Family.UNKNOWN, broken), *RULES)
    with_it, without = classify(run(), timeline, rules), classify(run(), timeline)
    assert with_it.cause == without.cause
    assert any("broken" in note for note in with_it.notes)


def test_the_first_confirmed_finding_in_order_decides_unless_a_likely_one_explains_it() -> None:
    one, other = traceback(), main_exit()

    def says(strength: Strength, event: Event, context: Event | None = None) -> Rule:
        from forensics.model import Evidence, Role

        pieces = [Evidence(role=Role.INITIATING, event=event)]
        pieces += [Evidence(role=Role.CASCADE, event=context)] if context else []
        found = Finding(strength=strength, summary="x", evidence=tuple(pieces))
        return Rule(f"{strength}-{id(event)}", Family.UNKNOWN, lambda ending: found)

    timeline = Timeline.of([one, other], (), SOURCES)
    unrelated, certain = says(Strength.LIKELY, other), says(Strength.CONFIRMED, one)
    assert classify(run(), timeline, (unrelated, certain)).cause == certain.cause
    explaining = says(Strength.LIKELY, other, one)
    assert classify(run(), timeline, (explaining, certain)).cause == explaining.cause
    assert classify(run(), timeline, (certain, explaining)).cause == certain.cause
    assert classify(run(), timeline, (unrelated,)).cause == unrelated.cause
