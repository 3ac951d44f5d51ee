"""A server's spec as the command that systemd runs: argument list and environment. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import BaseModel

from service.spec import ServerSpec

__all__ = ["NOT_SGLANG", "Command", "command", "key_of", "option"]

# Keys of the top level that are not options of sglang.launch_server.
NOT_SGLANG = frozenset(
    {"name", "python", "user", "group", "description", "enabled", "environment_file", "limits", "env", "extra_args"}
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Command:
    """`argv` (first the interpreter's absolute path) and the variables to be set on top of systemd's own."""

    argv: tuple[str, ...]
    env: dict[str, str]


def option(table: str, key: str) -> str:
    """SGLang's option for a key: ``option("speculative", "num_steps") == "--speculative-num-steps"``."""
    return "--" + (f"speculative_{key}" if table == "speculative" else key).replace("_", "-")


def key_of(name: str) -> str | None:
    """The dotted key of a spec that sets an option of SGLang, None where it has none."""
    return _KEYS.get(name.split("=", 1)[0])


def command(spec: ServerSpec) -> Command:
    """The server's command line, one option for each key that is set, in the order of the spec's fields."""
    argv = [spec.python, "-m", "sglang.launch_server", *_options("", spec), *spec.extra_args]
    return Command(argv=tuple(argv), env=_environment(spec))


def _options(table: str, values: BaseModel) -> list[str]:
    options: list[str] = []
    for key, value in values:
        if not table and key in NOT_SGLANG:
            continue
        if isinstance(value, BaseModel):
            options += _options(key, value)
        elif value is True:
            options.append(option(table, key))
        elif value is not None and value is not False:
            options += [option(table, key), str(value)]
    return options


def _environment(spec: ServerSpec) -> dict[str, str]:
    """The interpreter's own ``bin`` comes first on PATH: SGLang calls py-spy and ninja by name."""
    bin_dir = str(PurePosixPath(spec.python).parent)
    path = spec.env.get("PATH", SYSTEM_PATH).split(":")
    if bin_dir not in path:
        path.insert(0, bin_dir)
    return {"PATH": ":".join(path), "PYTHONUNBUFFERED": "1"} | {k: v for k, v in spec.env.items() if k != "PATH"}


def _keys() -> Iterator[tuple[str, str]]:
    for key, field in ServerSpec.model_fields.items():
        if key in {"speculative", "memory", "parallel"}:
            yield from ((option(key, sub), f"{key}.{sub}") for sub in type(field.default).model_fields)
        elif key not in NOT_SGLANG:
            yield option("", key), key


_KEYS = dict(_keys())
