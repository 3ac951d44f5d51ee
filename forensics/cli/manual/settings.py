"""inquestd.toml(5): every key of the daemon's settings, with kind, limits and default read off the model."""

import inspect
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from forensics.cli.manual.roff import Page
from forensics.settings import Secret, Settings

SUMMARY = "settings of the daemon of Inquest"

MEANINGS = {
    "units": "Globs of the units to watch.",
    "state_dir": "Where the store lies. systemd's StateDirectory= names it; /var/lib/inquestd without.",
    "settle_seconds": "How long a finding that rests on silence waits for late records, for example of the kernel.",
    "sample_interval_seconds": "How often a living server's processes, memory and GPUs are sampled.",
    "lookback_seconds": "How far the very first start reads the journal back. What died then is stored, not alerted.",
    "log_level": "What the daemon logs about itself.",
    "api.host": "Where it listens. Another address than loopback's needs a token.",
    "api.port": "The TCP port; 0 takes any that is free.",
    "api.socket": "A unix socket in addition. Its file's mode is its guard.",
    "api.token": "Asked for over TCP, as a bearer token or as a browser's password.",
    "api.hosts": "Names beside localhost by which the API is reached, for example of a proxy.",
    "api.cors_origins": "Pages of elsewhere that may read the API, as browsers name them: https://host.",
    "alerts.link": "The API's address as people reach it, put into each message.",
    "alerts.gather_seconds": "How long repeats of one death on one server are gathered before they are told together:"
    " the first time, the second, and so on; the last again and again. An empty list tells each by itself.",
    "alerts.stays_ready_seconds": "A server is told to be back when it has been ready for so long.",
    "alerts.webhooks[].name": "The channel's name, which tells deliveries apart.",
    "alerts.webhooks[].url": "Where messages are POSTed as JSON.",
    "alerts.webhooks[].timeout_seconds": "How long one try may take.",
    "alerts.webhooks[].headers": "Headers that go with each request, each value a secret.",
    "alerts.webhooks[].signing_key": "The key by which each request is signed as Standard Webhooks has it.",
    "alerts.alertmanagers[].name": "The channel's name.",
    "alerts.alertmanagers[].url": "The address below which Alertmanager has its API.",
    "alerts.alertmanagers[].timeout_seconds": "How long one try may take.",
    "alerts.alertmanagers[].headers": "Headers that go with each request, each value a secret.",
    "alerts.otlp[].name": "The channel's name.",
    "alerts.otlp[].url": "The address below which the collector takes /v1/logs.",
    "alerts.otlp[].timeout_seconds": "How long one try may take.",
    "alerts.otlp[].headers": "Headers that go with each request, each value a secret.",
    "alerts.apprise[].name": "The channel's name.",
    "alerts.apprise[].url": "A URL as Apprise has it, for mail, Slack, Telegram, ntfy and others.",
    "alerts.commands[].name": "The channel's name.",
    "alerts.commands[].argv": "The program with its whole path, and its arguments; run as the daemon's user.",
    "alerts.commands[].timeout_seconds": "How long it may run.",
    "alerts.routes[].families": "Only verdicts of these families.",
    "alerts.routes[].causes": "Only these causes.",
    "alerts.routes[].servers": "Only these servers, by name.",
    "alerts.routes[].strengths": "Only verdicts of these strengths.",
    "alerts.routes[].kinds": "Only messages of these kinds.",
    "alerts.routes[].to": "The channels that are told of what fits; all of them where it is not given.",
    "retention.max_crashes": "How many crashes are kept, the newest.",
    "retention.max_age_days": "How long a crash is kept.",
}
"""What each key is for. A key that is not in here fails a test, and no installation."""


@dataclass(frozen=True, slots=True)
class Key:
    """`name` is dotted, `[]` behind an array of tables; `kind` says what may stand there, `about` what its table is."""

    name: str
    kind: str
    default: str
    about: str


def keys(model: type[BaseModel] = Settings, prefix: str = "", schema: dict[str, Any] | None = None) -> Iterator[Key]:
    """Every key, tables where they stand."""
    schema = schema or model.model_json_schema()
    definitions = schema.get("$defs", {})
    for name, field in model.model_fields.items():
        table, is_array = _table(field.annotation)
        if table is not None:
            inner = definitions.get(table.__name__, {}) | {"$defs": definitions}
            yield from keys(table, f"{prefix}{name}{'[]' if is_array else ''}.", inner)
        else:
            kind = _kind(schema["properties"][name], definitions)
            yield Key(prefix + name, kind, _default(field), inspect.cleandoc(model.__doc__ or ""))


def _table(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The table that a key holds, and whether it is an array of them. A secret is a value, for people."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (None if annotation is Secret else annotation), False
    if typing.get_origin(annotation) is tuple:
        inner = typing.get_args(annotation)[0]
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return inner, True
    return None, False


def _kind(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _kind_of_reference(schema["$ref"].rpartition("/")[2], definitions)
    if "anyOf" in schema or "oneOf" in schema:
        kinds = [_kind(one, definitions) for one in schema.get("anyOf") or schema["oneOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    match schema.get("type"):
        case "array":
            return f"list, each {_kind(schema['items'], definitions)}"
        case "object":
            return "table"
        case "integer" | "number":
            bounds = [("minimum", "at least"), ("exclusiveMinimum", "more than"), ("maximum", "at most")]
            said = [f"{words} {schema[name]:g}" for name, words in bounds if name in schema]
            return ", ".join(["number", *said])
    return "text"


def _kind_of_reference(name: str, definitions: dict[str, Any]) -> str:
    if name == Secret.__name__:
        return 'secret: { file = "PATH" } or { credential = "NAME" }'
    return _kind(definitions[name], definitions)


def _default(field: Any) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "" if field.default_factory is not None else "must be given"
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' if isinstance(one, str) else f"{one:g}" for one in value) + "]"
    return "inf" if value == math.inf else f"{value:g}" if isinstance(value, float) else str(value)


def write(page: Page) -> None:
    """Everything behind the name."""
    page.head("Synopsis")
    page.text("`/etc/inquest/inquestd.toml`")
    page.head("Description")
    page.text(
        "TOML. Every key is optional, and so is the file. A mistake keeps the daemon from starting; it is told with the"
        " file, the key, what is wrong, and what is allowed. After a change: `systemctl restart inquestd`."
    )
    page.text(
        'Secrets are never written into the file: { file = "PATH" } names one that the user inquest may read,'
        ' { credential = "NAME" } one that systemd passes with LoadCredential=.'
    )
    table = None
    page.head("Keys")
    for key in keys():
        folder, _, name = key.name.rpartition(".")
        if folder != table:
            table = folder
            shown = f"[[{folder.removesuffix('[]')}]]" if folder.endswith("[]") else f"[{folder}]"
            page.sub(shown if folder else "At the top")
            for paragraph in key.about.split("\n\n"):
                page.text(paragraph)
        default = f" Default: {key.default}." if key.default and key.default != "must be given" else ""
        must = " It must be given." if key.default == "must be given" else ""
        page.item(name, f"{MEANINGS.get(key.name, '')} ({key.kind}){default}{must}")
    page.head("See also")
    page.text("`inquestd.service`(8), `inquest`(1), `systemd.exec`(5)")
