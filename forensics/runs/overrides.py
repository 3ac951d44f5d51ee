"""`speculative.num_steps=10` and the spec that comes of it. Pure."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.errors import InputError


@dataclass(frozen=True, slots=True)
class Override:
    """One key of a spec, dotted, and its value on trial; None takes the key away."""

    key: str
    value: Any

    def __str__(self) -> str:
        return f"{self.key}={_value(self.value) if self.value is not None else ''}"


def parse(text: str) -> Override:
    """`KEY=VALUE`; the value as TOML writes it, or bare text. InputError for anything else."""
    key, sign, value = text.partition("=")
    key = key.strip()
    if not sign or not key or not all(part.isidentifier() for part in key.split(".")):
        raise InputError("bad-override", f"not of the form KEY=VALUE: {text!r}", "For example speculative.num_steps=10")
    return Override(key, _parsed(value.strip()))


def parse_sweep(text: str) -> tuple[Override, ...]:
    """`KEY=VALUE,VALUE,…`: an override for each value, in this order, none twice."""
    key, _, values = text.partition("=")
    found = [parse(f"{key}={value}") for value in values.split(",")]
    if any(one.value is None for one in found) or len(found) < 2:
        raise InputError("bad-sweep", f"not of the form KEY=VALUE,VALUE,…: {text!r}", "For example dtype=half,bfloat16")
    return tuple({str(one): one for one in found}.values())


def apply(raw: bytes, overrides: Sequence[Override]) -> bytes:
    """A spec's TOML with these keys changed. `raw` is valid TOML; comments are not kept."""
    table = tomllib.loads(raw.decode("utf-8"))
    for override in overrides:
        *tables, key = override.key.split(".")
        place = table
        for name in tables:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise InputError("bad-override", f"{override.key}: {name} is not a table of the spec")
        if override.value is None:
            place.pop(key, None)
        else:
            place[key] = override.value
    return dump(table).encode()


def dump(table: Mapping[str, Any]) -> str:
    """A spec's table as TOML: plain values first, then its tables, one level deep."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in table.items() if not isinstance(value, Mapping)]
    for name, value in table.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(name)}]"]
            lines += [f"{_key(inner)} = {_value(one)}" for inner, one in value.items()]
    return "\n".join(lines) + "\n"


def _parsed(text: str) -> Any:
    if not text:
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _key(name: str) -> str:
    return name if name.replace("-", "_").isidentifier() and name.isascii() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(name)} = {_value(one)}' for name, one in value.items())}}}"
    return str(value)
