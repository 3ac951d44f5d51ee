"""What is quoted reads back as the very same string."""

import shutil
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.units.systemd_syntax import argv, c_unescaped, directives, specified, words
from units.quote import argument, assignment, escaped_name, input_text, printable, text, word

# What a spec can hold: any text without control characters.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
NASTY = ["", " ", "$HOME", "${X}", "%n", "100%", "\\", "a\\nb", '"', "'", "a b", ";", "\\;", "#", "~", "ü", "$", "%",
         '\\"', "@x", "-", "\\\\x41", " a ", "=", "${", "$$", "%%"]  # fmt: skip


def nasty(test: Callable[..., None]) -> Callable[..., None]:
    for string in NASTY:
        test = example(string)(test)
    return test


@given(TEXT)
@nasty
def test_argument(string: str) -> None:
    unit = f"ExecStart=/bin/x {argument(string)} \\\n    {argument(string)}\nUser=x\n"
    (_, exec_start), user = directives(unit)
    assert argv(exec_start) == ["/bin/x", string, string]
    assert user == ("User", "x")


@given(TEXT)
@nasty
def test_assignment(string: str) -> None:
    ((_, value),) = directives(f"Environment={assignment('KEY', string)}\n")
    assert words(value) == [f"KEY={string}"]


@given(TEXT.filter(bool))
def test_word(string: str) -> None:
    ((_, value),) = directives(f"RequiresMountsFor={word(string)} {word(string)}\n")
    assert words(value) == [string, string]


@given(st.text())
@nasty
@example("two\nlines")
@example("\udcff")
def test_free_text_stays_on_its_line(string: str) -> None:
    (_, value), user = directives(f"Description={text(string)}\nUser=x\n")
    assert specified(value) == printable(string).strip()
    assert user == ("User", "x")


@given(st.text())
@nasty
@example("two\nlines")
def test_input_text(string: str) -> None:
    ((_, value),) = directives(f"StandardInputText=x{input_text(string)}x\n")
    assert specified(c_unescaped(value)) == f"x{printable(string)}x"


def test_plain_words_stay_readable() -> None:
    assert argument("--mem-fraction-static") == "--mem-fraction-static"
    assert argument("/var/lib/models/qwen2.5-7b") == "/var/lib/models/qwen2.5-7b"
    assert argument("a b") == '"a b"'


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd-escape is not installed")
@pytest.mark.parametrize("name", ["demo", "my model", "a/b", "a@b", ".hidden", "ä", "a\\b", "a-b", "a:b_c.d"])
def test_name_is_escaped_as_systemd_does(name: str) -> None:
    done = subprocess.run(["systemd-escape", "--", name], capture_output=True, text=True, check=True)
    assert escaped_name(name) == done.stdout.strip()
