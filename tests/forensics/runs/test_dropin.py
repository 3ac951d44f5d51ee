from pathlib import Path

from forensics.runs.dropin import directives, dropin
from forensics.runs.overrides import apply, parse
from service.load import parse as parse_spec
from units.render import render

SPEC = b"""
model_path = "/models/target"
port = 30000
[speculative]
algorithm = "NGRAM"
num_draft_tokens = 4
[limits]
memory_max = "20G"
[env]
A = "1"
B = "2"
"""
SOURCE = Path("/etc/inquest/servers/demo.toml")


def unit(raw: bytes) -> str:
    return render(parse_spec(raw, SOURCE), SOURCE, digest="0" * 16)


def merged(before: str, drop: str) -> dict[tuple[str, str], list[str]]:
    """The unit as systemd reads it with the drop-in: an empty value empties, another is added to a list or replaces."""
    found = directives(before)
    for key, values in directives(drop).items():
        for value in values:
            grows = key[1].startswith(("Exec", "Environment"))
            found[key] = [] if value == "" else [*found.get(key, []), value] if grows else [value]
    return {key: values for key, values in found.items() if values}


def changed(*overrides: str) -> tuple[str, str]:
    return unit(SPEC), unit(apply(SPEC, [parse(text) for text in overrides]))


def test_the_unit_with_its_drop_in_is_the_unit_of_the_changed_spec() -> None:
    before, after = changed(
        "speculative.num_draft_tokens=8",
        "port=30001",
        "env.A=x y",
        "env.B=",
        "limits.memory_max=",
        "limits.timeout_stop=9min",
    )
    with_it = merged(before, dropin(before, after))
    assert with_it == directives(after)


def test_only_what_differs_stands_in_it() -> None:
    before, after = changed("speculative.num_draft_tokens=8")
    names = {name for _, name in directives(dropin(before, after))}
    assert names == {"ExecStart"}


def test_directives_of_a_trial_hold_in_any_case() -> None:
    before, after = changed("speculative.num_draft_tokens=8")
    text = dropin(before, after, ["On trial: x"], Restart="no")
    assert text.startswith("# On trial: x\n\n[Service]\n")
    assert merged(before, text)["[Service]", "Restart"] == ["no"]
    assert "\nRestart=\n" not in text


def test_the_preflight_stays_that_of_the_file() -> None:
    before = unit(SPEC)
    after = render(parse_spec(SPEC, SOURCE), SOURCE, digest="f" * 16)
    assert directives(dropin(before, after)) == {}


def test_continued_lines_are_one_value() -> None:
    found = directives("[Service]\nExecStart=/bin/a \\\n    --b \\\n    --c\n# no\nUser=x\n")
    assert found == {("[Service]", "ExecStart"): ["/bin/a \\\n    --b \\\n    --c"], ("[Service]", "User"): ["x"]}
