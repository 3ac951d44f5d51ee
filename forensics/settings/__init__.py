"""The daemon's settings: `/etc/inquest/inquestd.toml`, checked at the door.

A missing file means the defaults. A mistake is told with the file, the key, what is wrong, what is allowed, and the
key that was probably meant; all mistakes of a file at once.
"""

import math
import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from forensics.errors import SettingsError
from forensics.settings.alerts import Alerts
from forensics.settings.api import Api
from forensics.settings.mistakes import problems
from forensics.settings.values import Secret, Table

__all__ = ["PATH", "Alerts", "Api", "Retention", "Secret", "Settings", "load"]

PATH = Path("/etc/inquest/inquestd.toml")


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
        lines = "\n".join(f"{path}: {line}" for line in problems(error, Settings))
        raise SettingsError("settings-invalid", lines, f"Correct {path}; every key is optional.") from None
