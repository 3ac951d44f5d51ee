"""From a TOML file to a ``ServerSpec``, or to every mistake in it in plain words."""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from service.pairs import findings
from service.spec import ServerSpec, valid_name

__all__ = [
    "SERVERS_DIR",
    "Problem",
    "SpecError",
    "digest_of",
    "load",
    "names",
    "parse",
    "read",
    "spec_path",
    "wants_boot",
]

SERVERS_DIR = Path("/etc/inquest/servers")
_TOO_LARGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `key` is dotted (``speculative.num_steps``), empty where it is the file as a whole."""

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.message}" if self.key else f"{self.file}: {self.message}"


class SpecError(ValueError):
    """A spec that cannot be used; `problems` holds every mistake found, in the file's order where it is known."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def digest_of(raw: bytes) -> str:
    """A short fingerprint of a spec's bytes: tells whether the file is still the one a unit was made from."""
    return hashlib.sha256(raw).hexdigest()[:16]


def spec_path(server: str, directory: Path = SERVERS_DIR) -> Path:
    """Where the spec of the server named `server` lies."""
    return directory / f"{server}.toml"


def names(beginning: str = "") -> list[tuple[str, str]]:
    """The servers that have a spec, each with its file, as a shell offers them behind TAB."""
    return [(path.stem, str(path)) for path in sorted(SERVERS_DIR.glob("*.toml")) if path.stem.startswith(beginning)]


def load(path: Path) -> ServerSpec:
    """The spec at `path`; raises ``SpecError``, also where the file cannot be read."""
    return parse(read(path), path)


def read(path: Path) -> bytes:
    """The bytes of the spec at `path`; raises ``SpecError`` where it is not a readable file."""
    try:
        if not path.exists():
            raise SpecError((Problem(str(path), "", _missing(path)),))
        if not path.is_file():
            raise SpecError((Problem(str(path), "", "is not a file"),))
        if path.stat().st_size > _TOO_LARGE_BYTES:
            raise SpecError((Problem(str(path), "", "is larger than 1 MiB: not a server's spec"),))
        return path.read_bytes()
    except OSError as error:
        raise SpecError((Problem(str(path), "", f"cannot be read: {error.strerror}"),)) from None


def wants_boot(raw: bytes) -> bool:
    """Whether a spec says ``enabled = true``, also where its other keys have mistakes."""
    try:
        return tomllib.loads(raw.decode("utf-8")).get("enabled") is True
    except (ValueError, RecursionError):
        return False


def parse(raw: bytes, path: Path) -> ServerSpec:
    """The bytes of the file at `path` as a spec; the server's name is the file's. Raises ``SpecError``."""
    file, name = str(path), path.name.removesuffix(".toml")
    if not valid_name(name):
        words = "letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64"
        raise SpecError((Problem(file, "", f"{name!r} cannot name a server: rename the file; allowed are {words}"),))
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError((Problem(file, "", f"is not UTF-8 text (line {line}): TOML files must be"),)) from None
    except tomllib.TOMLDecodeError as error:
        last = raw.rstrip().count(b"\n") + 1
        words = str(error).replace("at end of document", f"at line {last}, the last")
        raise SpecError((Problem(file, "", f"is not valid TOML: {words}"),)) from None
    except RecursionError:
        raise SpecError((Problem(file, "", "is not valid TOML: nested too deeply"),)) from None
    try:
        spec = ServerSpec.model_validate({**table, "name": name})
    except ValidationError as error:
        raise SpecError(tuple(Problem(file, *_in_words(e, table)) for e in error.errors(include_url=False))) from None
    errors = tuple(Problem(file, found.key, found.message) for found in findings(spec) if found.is_error)
    if "name" in table:
        errors += (Problem(file, "name", f"is not a key: the server is called {name!r} after its file"),)
    if errors:
        raise SpecError(errors)
    return spec


def _missing(path: Path) -> str:
    others = sorted(p.stem for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.stem, others, n=1)
    if near:
        return f"does not exist; did you mean {near[0]!r}?"
    return f"does not exist; servers with a spec: {', '.join(others) if others else 'none'}"


def _in_words(error: ErrorDetails, table: Mapping[str, Any]) -> tuple[str, str]:
    """One of pydantic's errors as (dotted key, message)."""
    key = ".".join(str(part) for part in error["loc"])
    kind, ctx, given = error["type"], error.get("ctx", {}), error["input"]
    match kind:
        case "extra_forbidden":
            return key, _unknown(key, table)
        case "missing":
            return key, "is missing: every server needs it"
        case "value_error":
            return key, f"{ctx['error']}{_shown(key, given)}"
        case "literal_error":
            return key, f"must be one of {ctx['expected']}{_shown(key, given)}"
        case "string_pattern_mismatch":
            return key, f"is not a valid name{_shown(key, given)}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return key, f"must be a table: write [{key}] and the keys below it"
        case "list_type":
            return key, f"must be a list of strings such as ['--dtype', 'bfloat16']{_shown(key, given)}"
    return key, f"{_wanted(kind, ctx)}{_shown(key, given)}"


def _shown(key: str, given: object) -> str:
    """The value that was given, except where it may be a secret: mistakes end in the journal."""
    if key.startswith(("env", "extra_args")):
        return ""
    text = repr(given)
    return f"; it is {text if len(text) <= 80 else text[:80] + '…'}"


_WANTED = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number, without quotes",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number, without quotes",
    "bool_type": "must be true or false, without quotes",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
}


def _wanted(kind: str, ctx: Mapping[str, Any]) -> str:
    return _WANTED.get(kind, f"is not allowed ({kind})").format_map(ctx)


def _unknown(key: str, table: Mapping[str, Any]) -> str:
    """Name the key that was probably meant: also one in another table, or written as SGLang's option."""
    known = list(_known(ServerSpec))
    leaf = key.rsplit(".", 1)[-1].lstrip("-").replace("-", "_")
    for place in known:
        table_name, _, bare = place.rpartition(".")
        if leaf in {bare, f"{table_name}_{bare}"}:
            where = f"{bare!r} in the table [{table_name}]" if table_name else f"{bare!r} before the first table"
            return f"is not a key here; write it as {where}"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.7) or [
        place for bare in difflib.get_close_matches(leaf, [p.rsplit(".", 1)[-1] for p in known], n=1, cutoff=0.8)
        for place in known if place.rsplit(".", 1)[-1] == bare
    ]  # fmt: skip
    if near:
        return f"is not a key; did you mean {near[0]!r}?"
    if isinstance(table.get(key), dict):
        tables = ", ".join(f"[{n}]" for n, f in ServerSpec.model_fields.items() if _is_table(f.annotation))
        return f"is not a table of a spec; there are {tables} and [env]"
    return f"is not a key; an option of SGLang without a key goes into extra_args: ['--{leaf.replace('_', '-')}', …]"


def _is_table(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _known(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if _is_table(field.annotation):
            yield from _known(field.annotation, f"{name}.")
        elif name != "name":
            yield prefix + name
