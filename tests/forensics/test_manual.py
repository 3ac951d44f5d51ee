"""The manual pages say of every command, option, key, source and cause, and are sound in the eyes of their readers."""

import shutil
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
import typer.main

from forensics.cli import COMMANDS, build
from forensics.cli.manual import CHAPTERS, daemon, pages, server
from forensics.cli.manual.command import commands, parameters
from forensics.cli.manual.roff import Page, escaped
from forensics.cli.manual.settings import MEANINGS
from forensics.cli.manual.settings import keys as setting_keys
from forensics.coverage import RECORDED
from forensics.explanations import EXPLANATIONS
from forensics.sampler import SOURCES
from units.keys import DIRECTIVES, keys

PAGES = pages()


def shown(place: str) -> str:
    """A page as plain text, its escapes undone."""
    return PAGES[place].replace(r"\-", "-").replace(r"\fB", "").replace(r"\fR", "").replace(r"\e", "\\")


def leaves(command: Any, name: str) -> typing.Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for below, one in inner.items():
        yield from leaves(one, f"{name} {below}".strip())


def test_every_command_and_every_option_is_described() -> None:
    real = dict(leaves(typer.main.get_command(build()), ""))
    text = shown("man1/inquest.1")
    described = {name: list(parameters(function)) for name, function in commands()}
    assert sorted(described) == sorted(real)
    for name, command in real.items():
        assert f'.SS "inquest {name}"' in text
        words = " ".join(one.spelled for one in described[name]).replace(",", "").split()
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert {*parameter.opts, *parameter.secondary_opts} <= {*words, "-h", "--help"}, (name, parameter)
        assert all(one.words for one in described[name]), name


def test_the_table_of_commands_is_the_order_of_the_page() -> None:
    assert list(dict.fromkeys(name.split()[0] for name, _ in commands())) == [one.name for one in COMMANDS]


def test_every_cause_is_named_with_what_it_is() -> None:
    text = " ".join(shown("man1/inquest.1").split())
    for one in EXPLANATIONS.values():
        assert f".TP {one.cause} {' '.join(one.title.split())}" in text


def test_every_setting_is_described_and_nothing_else() -> None:
    assert sorted(MEANINGS) == sorted(key.name for key in setting_keys())
    text = shown("man5/inquestd.toml.5")
    assert '.SS "[[alerts.webhooks]]"' in text
    assert '(secret: { file = "PATH" } or' in " ".join(text.split())
    assert "(number, at least 0, at most 65535) Default: 8642." in " ".join(text.split())


def test_every_key_of_a_spec_is_described_and_nothing_else() -> None:
    assert set(server.MEANINGS) == set(DIRECTIVES)
    text = " ".join(shown("man5/inquest-server.toml.5").split())
    for key in keys():
        assert f".TP {key.name.rpartition('.')[2]} " in text
    assert "SGLang's --speculative-num-steps." in text
    assert "Sets MemoryMax=." in text


def test_every_source_is_described() -> None:
    assert set(daemon.SOURCES) == RECORDED | SOURCES


def test_text_that_would_be_a_macro_stays_text() -> None:
    page = Page("x", 1, "y", "1", "2026-03-01")
    page.text(".so /etc/passwd")
    page.text("'quoted' and a \\ and `--code`")
    page.example([".dot"])
    lines = str(page).splitlines()
    assert r"\&.so /etc/passwd" in lines
    assert r"\&'quoted' and a \e and \fB\-\-code\fR" in lines
    assert r"\&.dot" in lines
    assert escaped("a-b\\c") == r"a\-b\ec"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed (Debian: mandoc)")
@pytest.mark.parametrize("place", PAGES)
def test_mandoc_finds_nothing_to_complain_of(place: str, tmp_path: Path) -> None:
    path = tmp_path / Path(place).name
    path.write_text(PAGES[place], encoding="utf-8")
    done = subprocess.run(["mandoc", "-Tlint", "-W", "style", path], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_each_page_has_its_place() -> None:
    assert sorted(PAGES) == [
        *("man1/inquest.1", "man5/inquest-server.toml.5", "man5/inquestd.toml.5", "man8/inquestd.service.8"),
    ]
    assert len(CHAPTERS) == len(PAGES)
