"""What can go wrong on purpose. Nothing else is raised deliberately.

InquestError
├── SettingsError      a setting is wrong: said at start, naming file and key
├── SourceError        an evidence source could not be read: becomes a gap
├── StoreError         the store cannot be opened, read or written
└── InputError         a saved file cannot be read, or is nothing that is known
"""


class InquestError(Exception):
    """A problem for people: a stable kebab-case `code`, what is wrong, and what to do about it."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class SettingsError(InquestError):
    """A setting is wrong. `message` names the file and the key."""


class SourceError(InquestError):
    """A source could not be read. `source` is its module's name in `forensics/sources`."""

    def __init__(self, source: str, code: str, message: str, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.source = source


class StoreError(InquestError):
    """The store cannot be opened, read or written."""


class InputError(InquestError):
    """A saved file cannot be read, or nothing in it is known. `message` names the file."""
