"""inquest(1), read off the command line itself: its commands, arguments, options and their defaults."""

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from forensics.cli import COMMANDS, EPILOG, build
from forensics.cli.manual.roff import Page
from forensics.cli.since import SINCE_HELP
from forensics.explanations import EXPLANATIONS

SUMMARY = "who killed the server? verdicts on the deaths of SGLang servers"


def write(page: Page) -> None:
    """Everything behind the name."""
    page.head("Synopsis")
    page.text("`inquest` [`--version`] [`--help`] COMMAND [ARGUMENTS]")
    page.head("Description")
    page.text(
        "Inquest runs SGLang servers with speculative decoding under systemd, and gives each death one verdict with its"
        " evidence. The daemon `inquestd.service`(8) judges; this command asks it, over its unix socket where the user"
        " may write to it, else over TCP."
    )
    page.text(
        "On a terminal answers are tables and colours. Piped, they are plain text in aligned columns with a head, never"
        " cut to a width. `--format json` prints what the API answers, for programs. Times are in UTC."
    )
    page.head("Commands")
    for name, function in commands():
        _command(page, name, function)
    page.head("Times")
    page.text(f"`--since` takes times as `systemd.time`(7) writes them: {SINCE_HELP.removesuffix(' …')}.")
    page.text("A time without a zone is local.")
    page.head("Causes")
    page.text("`inquest explain` CAUSE tells how each is recognised and what to do.")
    for one in EXPLANATIONS.values():
        page.item(one.cause, one.title)
    page.head("Exit status")
    page.text(EPILOG.removeprefix("Exit status: "))
    page.head("Environment")
    page.item("INQUEST_API", "The API's address, such as http://127.0.0.1:8642, in place of what the settings say.")
    page.item("NO_COLOR", "Where it is set, terminals get no colours.")
    page.head("Files")
    page.item("/etc/inquest/servers/NAME.toml", "A server's spec; see `inquest-server.toml`(5).")
    page.item("/etc/inquest/inquestd.toml", "The daemon's settings; see `inquestd.toml`(5).")
    page.item("/run/inquestd/api.sock", "Where the daemon answers.")
    page.head("See also")
    page.text("`inquestd.service`(8), `inquestd.toml`(5), `inquest-server.toml`(5), `journalctl`(1), `systemd.time`(7)")


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command with its whole name, those of `inquest units` one by one; in the order of `inquest --help`."""
    for one in COMMANDS:
        app = build(one.name)
        yield from ((one.name, info.callback) for info in app.registered_commands if info.callback)
        for group in app.registered_groups:
            for info in group.typer_instance.registered_commands if group.typer_instance else ():
                if info.callback is not None:
                    yield f"{one.name} {info.name or info.callback.__name__}", info.callback


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument (`spelled` is its name) or an option (its names and what follows them)."""

    spelled: str
    is_option: bool
    words: str


def parameters(function: Callable[..., Any]) -> Iterator[Parameter]:
    """A command's arguments and options, in the order of its function's."""
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, *rest = typing.get_args(parameter.annotation)
        info = next(one for one in rest if isinstance(one, ArgumentInfo | OptionInfo))
        words = (info.help or "").rstrip()
        if isinstance(info, OptionInfo):
            yield Parameter(_option(name, kind, info), is_option=True, words=words + _default(parameter.default))
        else:
            optional = parameter.default is not inspect.Parameter.empty
            spelled = info.metavar or name.upper() + (" ..." if _is_list(kind) else "")
            spelled = f"[{spelled}]" if optional and not spelled.startswith("[") else spelled
            yield Parameter(spelled, is_option=False, words=words)


def _option(name: str, kind: Any, info: OptionInfo) -> str:
    # typer takes the first name for the default until it has seen where it stands.
    given = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str) and one.startswith("-")]
    names = ", ".join(given or [f"--{name.replace('_', '-')}"]).replace("/", ", ")
    plain = next((one for one in typing.get_args(kind) if one is not type(None)), kind)
    if plain is bool:
        return names
    if isinstance(plain, type) and issubclass(plain, Enum):
        return f"{names} {'|'.join(one.value for one in plain)}"
    return f"{names} {info.metavar or name.upper()}"


def _is_list(kind: Any) -> bool:
    return any(typing.get_origin(one) is list for one in (kind, *typing.get_args(kind)))


def _default(value: Any) -> str:
    if value is None or value is inspect.Parameter.empty or isinstance(value, bool):
        return ""
    return f" Default: {value.value if isinstance(value, Enum) else value}."


def _command(page: Page, name: str, function: Callable[..., Any]) -> None:
    page.sub(f"inquest {name}")
    found = list(parameters(function))
    words = [f"[{one.spelled}]" if one.is_option else one.spelled for one in found]
    page.text(" ".join([f"`inquest {name}`", *words]))
    for paragraph in inspect.cleandoc(function.__doc__ or "").split("\n\n"):
        page.text(paragraph)
    for one in found:
        page.item(one.spelled, one.words)
