"""Every key of a spec: what it is when it is not given, and what it becomes. Read off the spec's own model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from service.command import NOT_SGLANG, option
from service.spec import ServerSpec

__all__ = ["DIRECTIVES", "Key", "keys"]

# What keys become that are no options of SGLang.
DIRECTIVES = {
    "python": "ExecStart=, its program",
    "user": "User=",
    "group": "Group=",
    "description": "Description=",
    "enabled": "starts with the machine",
    "environment_file": "EnvironmentFile=",
    "limits.memory_max": "MemoryMax=",
    "limits.memory_high": "MemoryHigh=",
    "limits.memory_swap_max": "MemorySwapMax=",
    "limits.oom_policy": "OOMPolicy=",
    "limits.timeout_start": "TimeoutStartSec=",
    "limits.timeout_stop": "TimeoutStopSec=, 5 to 15 min by the context length",
    "limits.on_hang": "WatchdogSec=, where it is restart",
    "limits.hang_timeout": "ExecStartPost=, of the heartbeat",
    "limits.restart": "Restart=",
    "limits.restart_sec": "RestartSec=",
    "limits.start_limit_burst": "StartLimitBurst=",
    "limits.start_limit_interval": "StartLimitIntervalSec=",
    "limits.limit_core": "LimitCORE=",
    "limits.limit_nofile": "LimitNOFILE=",
    "env": "Environment=, a line each",
    "extra_args": "ExecStart=, at its end",
}


@dataclass(frozen=True, slots=True)
class Key:
    """`name` is dotted; `default` is empty where SGLang's or systemd's own holds; `becomes` names what it sets."""

    name: str
    default: str
    becomes: str


def keys(model: type[BaseModel] = ServerSpec, table: str = "") -> Iterator[Key]:
    """The keys in the order of the command line, tables last."""
    for key, field in model.model_fields.items():
        name = f"{table}.{key}" if table else key
        if isinstance(field.default, BaseModel):
            yield from keys(type(field.default), name)
        elif key != "name":
            plain = (not table and key not in NOT_SGLANG) or table not in {"", "limits"}
            yield Key(name, _default(field.default), option(table, key) if plain else DIRECTIVES[name])


def _default(value: object) -> str:
    if value is PydanticUndefined:
        return "must be given"
    if value in (None, {}, []):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
