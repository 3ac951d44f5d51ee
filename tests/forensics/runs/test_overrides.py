import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.errors import InputError
from forensics.runs.overrides import Override, apply, dump, parse, parse_sweep
from service.load import parse as parse_spec

SPEC = b"""
model_path = "/models/a \\"quoted\\" one"  # a comment
port = 30000
extra_args = ["--some-option", "half"]

[speculative]
algorithm = "EAGLE"
draft_model_path = "/models/draft"
num_steps = 3
eagle_topk = 1
num_draft_tokens = 4

[env]
"A_B" = "1"
"""
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
PLAIN = TEXT | st.integers(-(2**62), 2**62) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
NAMES = TEXT.filter(bool)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=10", 10),
        ("a.b=0.85", 0.85),
        ("a.b=true", True),
        ("a.b=EAGLE3", "EAGLE3"),
        ('a.b="10"', "10"),
        ("a.b=/models/x y", "/models/x y"),
        ("a.b=['--dtype', 'half']", ["--dtype", "half"]),
        ("a.b=", None),
        ("a.b = 5min", "5min"),
    ],
)
def test_values_are_read_as_toml_or_as_bare_text(text: str, value: Any) -> None:
    assert parse(text) == Override("a.b", value)


@pytest.mark.parametrize("text", ["a.b", "=1", "a..b=1", "a b=1", ""])
def test_what_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not of the form KEY=VALUE"):
        parse(text)


def test_a_sweep_keeps_its_order_and_each_value_once() -> None:
    assert [str(one) for one in parse_sweep("speculative.num_steps=10,1,3,1")] == [
        "speculative.num_steps=10",
        "speculative.num_steps=1",
        "speculative.num_steps=3",
    ]


@pytest.mark.parametrize("text", ["a=1", "a=1,,2", "a=", "a"])
def test_one_value_is_no_sweep(text: str) -> None:
    with pytest.raises(InputError):
        parse_sweep(text)


def test_a_changed_spec_is_the_spec_but_for_what_was_changed() -> None:
    changed = apply(
        SPEC, [parse("speculative.num_steps=10"), parse("speculative.num_draft_tokens="), parse("memory.page_size=16")]
    )
    before, after = tomllib.loads(SPEC.decode()), tomllib.loads(changed.decode())
    assert after.pop("memory") == {"page_size": 16}
    assert after["speculative"].pop("num_steps") == 10
    before["speculative"].pop("num_steps")
    before["speculative"].pop("num_draft_tokens")
    assert after == before
    assert parse_spec(changed, Path("/etc/inquest/servers/demo.toml")).speculative.num_steps == 10


def test_a_key_below_a_plain_value_is_refused() -> None:
    with pytest.raises(InputError, match="port is not a table"):
        apply(SPEC, [parse("port.x=1")])


@given(
    st.dictionaries(NAMES, PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(NAMES, PLAIN, max_size=3), max_size=5)
)
def test_what_is_written_is_what_is_read(table: dict[str, Any]) -> None:
    assert tomllib.loads(dump(table)) == table
