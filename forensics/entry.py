"""One journal entry, as every source sees it, whether read live, from an export, or from a plain text line."""

from collections.abc import Mapping
from dataclasses import dataclass

from forensics.events import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A journal entry. Field names are journald's own (systemd.journal-fields(7)).

    `monotonic_usec` is CLOCK_MONOTONIC within `boot_id`, `realtime_usec` is microseconds since the epoch, UTC.
    Kernel entries use the kernel's own stamp (`_SOURCE_MONOTONIC_TIMESTAMP`) where there is one: journald
    receives them up to a second late. `fields` holds text; what was not UTF-8 is decoded with U+FFFD.
    """

    cursor: str
    boot_id: str
    monotonic_usec: int
    realtime_usec: int
    fields: Mapping[str, str]

    def get(self, name: str) -> str:
        """The field's text, or the empty string."""
        return self.fields.get(name, "")

    def get_int(self, name: str) -> int | None:
        """The field as a decimal number, or None when it is absent or not a number."""
        text = self.fields.get(name, "")
        digits = text.removeprefix("-")
        return int(text) if digits.isdecimal() and len(digits) < 20 else None

    @property
    def message(self) -> str:
        return self.fields.get("MESSAGE", "")

    @property
    def pid(self) -> int | None:
        """`_PID`: who wrote the entry. Trusted: journald takes it from the socket's credentials."""
        return self.get_int("_PID")

    @property
    def from_kernel(self) -> bool:
        """Written by the kernel itself. A root process writing to /dev/kmsg has the transport, not the name."""
        return self.get("_TRANSPORT") == "kernel" and self.get("SYSLOG_IDENTIFIER") == "kernel"

    @property
    def from_systemd(self) -> bool:
        """Written by the system's PID 1: the one sender whose UNIT= and MESSAGE_ID= can be believed."""
        return self.get("_PID") == "1" and self.get("_TRANSPORT") in ("journal", "")

    def record(self, source: str, message: str | None = None) -> Record:
        """Where a fact drawn from this entry was read; `message` replaces the verbatim text (redaction)."""
        return Record(
            source=source,
            ref=self.cursor,
            boot_id=self.boot_id,
            monotonic_usec=self.monotonic_usec,
            realtime_usec=self.realtime_usec,
            pid=self.pid,
            message=self.message if message is None else message,
        )
