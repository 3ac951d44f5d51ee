"""Data flows one way: sources → timeline → rules → verdict → store → api, alerts. Read off the import statements."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("service", "units", "forensics")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
}
WORDS = ("forensics.events", "forensics.timeline", "forensics.model", "forensics.runs.decoding")
BEHIND_SOURCES = tuple(
    f"forensics.{name}"
    for name in ("rules", "store", "api", "alerts", "classify", "causality", "tracker", "fatality", "stops", "oom")
)
READING = (
    *("events", "model", "timeline", "causality", "missing", "fatality"),
    *("stops", "oom", "oom_excluded", "relay", "senders", "failure", "phase", "xid_catalog"),
    *("announced", "answering", "natives", "exits", "aftermath", "frames"),
)


def imported(module: str) -> Iterator[str]:
    """What a module imports, wherever in it; `from a import b` counts as `a.b` where that is a module."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            base = node.module or ""
            yield from (f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names)


def ours(module: str) -> set[str]:
    return {name for name in imported(module) if name.split(".")[0] in PACKAGES}


def within(name: str, *places: str) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def modules_of(*places: str) -> list[str]:
    return [module for module in MODULES if within(module, *places)]


def test_what_these_tests_name_is_there() -> None:
    """A module that was renamed would be watched no more."""
    named = {*WORDS, *(f"forensics.{name}" for name in READING), *BEHIND_SOURCES}
    named |= {"forensics.rules", "forensics.sources", "forensics.api", "forensics.alerts", "forensics.store"}
    assert named <= set(MODULES)


@pytest.mark.parametrize("module", WORDS)
def test_the_words_need_nothing_but_the_standard_library(module: str) -> None:
    for name in imported(module):
        assert within(name, *WORDS) or name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize("module", modules_of("forensics.rules"))
def test_rules_read_the_ending_and_nothing_else(module: str) -> None:
    allowed = [f"forensics.{name}" for name in READING]
    for name in imported(module):
        known = within(name, *allowed, "forensics.rules")
        assert known or name.split(".")[0] in sys.stdlib_module_names, f"{module} imports {name}"


@pytest.mark.parametrize("module", [f"forensics.{name}" for name in READING])
def test_the_reading_of_an_end_knows_no_source_no_store_no_way_out(module: str) -> None:
    for name in ours(module):
        assert within(name, *WORDS, *(f"forensics.{part}" for part in READING)), f"{module} imports {name}"


@pytest.mark.parametrize("module", modules_of("forensics.sources"))
def test_sources_know_no_rules_and_nothing_behind_them(module: str) -> None:
    for name in ours(module):
        assert not within(name, *BEHIND_SOURCES), f"{module} imports {name}"


@pytest.mark.parametrize("module", modules_of("forensics.api", "forensics.alerts", "forensics.store"))
def test_what_is_shown_does_not_look_at_the_evidence_again(module: str) -> None:
    for name in ours(module):
        assert not within(name, "forensics.sources", "forensics.rules", "forensics.tracker"), f"{module} imports {name}"


@pytest.mark.parametrize("module", modules_of("service", "units"))
def test_what_runs_beside_the_server_does_not_need_the_daemon(module: str) -> None:
    for name in ours(module):
        assert not within(name, "forensics"), f"{module} imports {name}"
        assert within(module, "units") or not within(name, "units"), f"{module} imports {name}"


@pytest.mark.parametrize("module", modules_of("forensics"))
def test_the_daemon_reads_records_and_never_the_server_s_package(module: str) -> None:
    if within(module, "forensics.cli", "forensics.__main__"):
        return  # the one command line mounts the others' sub-commands
    for name in ours(module):
        assert not within(name, "service", "units"), f"{module} imports {name}"
