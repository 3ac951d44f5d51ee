"""`[api]`: where the API listens, and who may ask."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from forensics.errors import SettingsError
from forensics.settings.values import Secret, Table

SHORTEST_TOKEN = 16


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
