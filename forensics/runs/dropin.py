"""The difference of two units as a drop-in: with it the first one runs as the second. Pure."""

from collections.abc import Sequence

_KEPT = frozenset({"ExecStartPre", "SourcePath", "Description"})
"""What stays the first unit's: its preflight checks the spec's file, which is not the one on trial."""
_ONLY_GROW = frozenset({"RequiresMountsFor", "Wants", "After"})
"""Dependencies cannot be taken away by a drop-in, nor need they be."""

_LISTS = ("Exec", "Environment")
"""What these directives begin with can be given several times."""

Directives = dict[tuple[str, str], list[str]]


def directives(unit: str) -> Directives:
    """(section, name) → values, each as it is written, continued lines and all."""
    found: Directives = {}
    section, lines = "", iter(unit.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        if line.startswith("["):
            section = line.strip()
            continue
        text = line
        while text.endswith("\\"):
            text += "\n" + next(lines, "")
        name, _, value = text.partition("=")
        found.setdefault((section, name.strip()), []).append(value)
    return found


def dropin(before: str, after: str, head: Sequence[str] = (), **service: str) -> str:
    """The drop-in's text. `head` are comment lines; `service` are directives of [Service] that hold in any case."""
    old, new = directives(before), directives(after)
    for name, value in service.items():
        new["[Service]", name] = [value]
    sections: dict[str, list[str]] = {}
    for section, name in dict.fromkeys([*new, *old]):
        was, becomes = old.get((section, name), []), new.get((section, name), [])
        if was == becomes or name in _KEPT or section == "[Install]":
            continue
        lines = sections.setdefault(section, [])
        if name in _ONLY_GROW:
            lines += [f"{name}={value}" for value in becomes if value not in was]
            continue
        # A list is emptied first, else it would only grow; what has one value takes the new one, and may not be empty.
        if was and (name.startswith(_LISTS) or not becomes):
            lines.append(f"{name}=")
        lines += [f"{name}={value}" for value in becomes]
    blocks = [[section, *lines] for section, lines in sections.items() if lines]
    return "\n\n".join("\n".join(block) for block in ([f"# {line}" for line in head], *blocks) if block) + "\n"
