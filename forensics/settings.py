"""The daemon's settings: `/etc/inquest/inquestd.toml`, checked at the door.

A missing file means the defaults. A mistake is told with the file, the key, what is wrong, what is allowed, and the
key that was probably meant; all mistakes of a file at once.
"""

import difflib
import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic_core import ErrorDetails

from forensics.errors import SettingsError

PATH = Path("/etc/inquest/inquestd.toml")
SHORTEST_TOKEN = 16


class Table(BaseModel):
    """A table of the file: no unknown keys, no changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _address(host: str) -> str:
    # `localhost` is not looked up: it is loopback by RFC 6761.
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError("not an IP address; allowed: an address such as 127.0.0.1 or ::1, or localhost") from None
    return host


def _origin(origin: str) -> str:
    if re.fullmatch(r"https?://[A-Za-z0-9.\[\]:-]+", origin) is None:
        raise ValueError("not an origin as browsers send it: https://host or https://host:port, nothing behind it")
    return origin


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not a URL of the form http://host/… or https://host/…")
    return url


class Secret(Table):
    """A value that is not written into this file: read from a file, or from a systemd credential by its name."""

    file: Path | None = None
    credential: Annotated[str, Field(pattern=r"^[^/]+$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_table(cls, value: object) -> object:
        if not isinstance(value, dict | Secret):
            raise ValueError(
                'a secret is never written here; allowed: { file = "/etc/inquest/…" } or { credential = "…" }'
            )
        return value

    @model_validator(mode="after")
    def _one(self) -> "Secret":
        if (self.file is None) == (self.credential is None):
            raise ValueError("give either `file` or `credential`")
        return self

    def read(self) -> str:
        """The value, without the newline at its end. SettingsError when it cannot be read."""
        if self.file is not None:
            path = self.file
        else:
            path = Path(
                os.environ.get("CREDENTIALS_DIRECTORY", "/run/credentials/inquestd.service"), str(self.credential)
            )
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                "secret-unreadable",
                f"{path}: cannot be read: {error}",
                "The daemon's user needs to read it; with `credential`, add LoadCredential= to inquestd.service.",
            ) from error


HttpUrl = Annotated[str, AfterValidator(_http_url)]
# Decided by the value's type, so that a mistake is told for the form that was meant.
HttpUrlOrSecret = Annotated[
    Annotated[HttpUrl, Tag("text")] | Annotated[Secret, Tag("table")],
    Discriminator(lambda value: "table" if isinstance(value, dict | Secret) else "text"),
]


class Webhook(Table):
    """Where crashes are POSTed as JSON. `headers` go with each request; their values come from files or credentials,
    since they are secrets as a rule. The URL may come from there too."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    url: HttpUrlOrSecret
    timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 10.0
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], Secret] = {}


class Alerts(Table):
    """The journal is always told. `link` is the address of the API as people reach it, put into each message."""

    webhooks: tuple[Webhook, ...] = ()
    link: HttpUrl | None = None

    @model_validator(mode="after")
    def _names_differ(self) -> "Alerts":
        names = [webhook.name for webhook in self.webhooks]
        for name in names:
            if names.count(name) > 1 or name == "journal":
                raise ValueError(f"the webhook name {name!r} is taken; names tell deliveries apart")
        return self


def _api_socket() -> Path | None:
    # systemd names it to the daemon alone; run by hand there is no place that is the daemon's.
    folder = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(folder, "api.sock") if folder else None


class Api(Table):
    """Where the API listens, and who may ask. `socket` is a unix socket in addition, in the daemon's runtime directory
    if it has one; its file's mode is its guard. `token` is asked for over TCP, and needed where `host` is not loopback.
    `hosts` are names beside loopback's by which the API is reached; `cors_origins` pages of elsewhere that may read it.
    """

    host: Annotated[str, AfterValidator(_address)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8642
    socket: Path | None = Field(default_factory=_api_socket)
    token: Secret | None = None
    hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")], ...] = ()
    cors_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()

    @property
    def beyond_loopback(self) -> bool:
        return self.host != "localhost" and not ipaddress.ip_address(self.host).is_loopback

    @model_validator(mode="after")
    def _guarded(self) -> "Api":
        if self.beyond_loopback and self.token is None:
            raise ValueError(
                f"host {self.host} is not a loopback address, and there is no token: log lines are not for everybody. "
                'Give `token = { file = "/etc/inquest/api.token" }`, or keep host = "127.0.0.1" and reach it '
                "through an SSH tunnel or a proxy that authenticates"
            )
        return self

    def read_token(self) -> str | None:
        """The token; None where none is set. SettingsError when it cannot be read or could be guessed."""
        if self.token is None:
            return None
        token = self.token.read().strip()
        if len(token) < SHORTEST_TOKEN:
            raise SettingsError(
                "token-too-short",
                f"the API's token has {len(token)} characters, fewer than {SHORTEST_TOKEN}",
                "Make one with `openssl rand -hex 32`.",
            )
        return token


class Retention(Table):
    """How much the store keeps: the newest `max_crashes`, none older than `max_age_days`. Clean runs count apart."""

    max_crashes: Annotated[int, Field(ge=1)] = 20_000
    max_age_days: Annotated[int, Field(ge=1)] = 365


def _state_dir() -> Path:
    # systemd joins several directories with colons; ours has one.
    return Path(os.environ.get("STATE_DIRECTORY", "/var/lib/inquestd").split(":")[0])


class Settings(Table):
    """All settings with their defaults.

    `units` are globs of the units to watch. `settle_seconds` is how long a finding that rests on silence waits for
    late records. `lookback_seconds` is how far the first start reads back, as far as the journal goes unless it is
    set: what ran and died then is stored, not alerted.
    """

    units: Annotated[tuple[Annotated[str, Field(pattern=r"^[^/\s]+\.service$")], ...], Field(min_length=1)] = (
        "sglang-*.service",
    )
    state_dir: Path = Field(default_factory=_state_dir)
    settle_seconds: Annotated[float, Field(ge=0, le=60)] = 2.5
    sample_interval_seconds: Annotated[float, Field(ge=0.1, le=60)] = 1.0
    lookback_seconds: Annotated[float, Field(ge=0)] = math.inf
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    api: Api = Api()
    alerts: Alerts = Alerts()
    retention: Retention = Retention()

    @property
    def local_address(self) -> str:
        """The API's address on this machine."""
        host = f"[{self.api.host}]" if ":" in self.api.host else self.api.host
        return f"http://{host}:{self.api.port}"

    @property
    def link(self) -> str:
        """The API's address as messages give it, without a slash at its end."""
        return (self.alerts.link or self.local_address).rstrip("/")


def load(path: Path = PATH) -> Settings:
    """The settings in the file, or the defaults when there is none. SettingsError names every mistake."""
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SettingsError("settings-unreadable", f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError("settings-not-toml", f"{path}: not valid TOML: {error}") from error
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        problems = "\n".join(f"{path}: {line}" for line in _problems(error))
        raise SettingsError("settings-invalid", problems, f"Correct {path}; every key is optional.") from None


def _problems(error: ValidationError) -> Iterator[str]:
    """One line a mistake: the key as TOML writes it, what is wrong, what is allowed."""
    for detail in error.errors(include_url=False):
        where = [part for part in detail["loc"] if part not in _UNION_TAGS]
        if detail["type"] == "extra_forbidden":
            yield _unknown_key(where)
        else:
            yield f"{_key(where)}: {_what(detail)}"


# pydantic puts the chosen member of a union into the location; people did not write that.
_UNION_TAGS = frozenset({"text", "table"})


def _what(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        said = str(detail["ctx"]["error"])
    else:
        said = detail["msg"][:1].lower() + detail["msg"][1:]
    given = detail["input"]
    # A mistake about a webhook or a token is told without its value: tokens stand in URLs and headers.
    if isinstance(given, dict | list) or {"webhooks", "token"} & set(detail["loc"]):
        return said
    return f"{said} (it is {given!r})"


def _unknown_key(where: list[Any]) -> str:
    allowed = list(_table(where[:-1]).model_fields)
    near = difflib.get_close_matches(str(where[-1]), allowed, n=1)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return f"{_key(where)}: unknown key{meant} Allowed here: {', '.join(allowed)}".replace(
        "key Allowed", "key. Allowed"
    )


def _table(where: list[Any]) -> type[Table]:
    tables: dict[tuple[str, ...], type[Table]] = {
        (): Settings,
        ("api",): Api,
        ("alerts",): Alerts,
        ("alerts", "webhooks"): Webhook,
        ("retention",): Retention,
    }
    return tables.get(tuple(part for part in where if isinstance(part, str)), Secret)


def _key(where: list[Any]) -> str:
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the file"
