"""Values that several tables have: URLs, secrets, names."""

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from forensics.errors import SettingsError


class Table(BaseModel):
    """A table of the file: no unknown keys, no changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def http_url(url: str) -> str:
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


HttpUrl = Annotated[str, AfterValidator(http_url)]
# Decided by the value's type, so that a mistake is told for the form that was meant.
HttpUrlOrSecret = Annotated[
    Annotated[HttpUrl, Tag("text")] | Annotated[Secret, Tag("table")],
    Discriminator(lambda value: "table" if isinstance(value, dict | Secret) else "text"),
]
