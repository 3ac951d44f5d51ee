"""Checks of the spec's own things before a start: interpreter, options, models, port.

A check is a function from the spec to what it found, None where there is nothing to check. It refuses only what it
knows; what it cannot see it lets pass.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

from service.command import command
from service.installed import DEADLINE_SECONDS, NoInterpreter, NoSglang, find
from service.listeners import holder, listeners, user
from service.pair import pair
from service.release import against
from service.row import Row, good, refused, unknown, warning
from service.spec import ServerSpec

__all__ = ["draft_model_path", "interpreter", "model_path", "models", "options", "port"]


def interpreter(spec: ServerSpec) -> Row:
    """The interpreter is there, runs, finds sglang, and that knows every option of the spec."""
    slug, python = "interpreter", Path(spec.python)
    if not python.exists():
        return refused(slug, f"{python} does not exist", "install SGLang's environment there or correct 'python'")
    if python.is_dir() or not os.access(python, os.X_OK):
        return refused(slug, f"{python} cannot be executed by {_me()}", f"check it with: ls -l {python}")
    try:
        installed = find(spec.python, command(spec).env)
    except NoInterpreter as error:
        return refused(slug, f"{python} {error}", f"try it by hand: {python} -c 'import sglang'")
    except NoSglang:
        return refused(slug, f"{python} has no package 'sglang'", f"install it: {python} -m pip install sglang")
    if installed is None:  # slow is not wrong: the first start after a boot reads from a cold disk
        return unknown(slug, f"{python} did not say within {DEADLINE_SECONDS} s what it has")
    return good(slug, f"{python} has {installed} and torch {installed.torch or '?'}")


def options(spec: ServerSpec) -> Row | None:
    """The installed SGLang takes the spec's options: it would refuse them only after its imports."""
    try:
        installed = find(spec.python, command(spec).env)
    except (NoInterpreter, NoSglang):
        return None  # the check of the interpreter says so
    if installed is None or not installed.options:
        return unknown("options", "which options the installed SGLang knows could not be read from its files")
    found = against(spec, installed)
    errors = [str(finding) for finding in found if finding.is_error]
    if errors:
        return refused("options", "; ".join(errors), "correct the spec, or install another release")
    notes = [str(finding) for finding in found]
    if notes:
        return warning("options", "; ".join(notes), "a start shows it")
    return good("options", f"{installed} knows all of them")


def model_path(spec: ServerSpec) -> Row | None:
    """A local model is there and is one."""
    return _model("model-path", spec.model_path, "model_path")


def draft_model_path(spec: ServerSpec) -> Row | None:
    """A local draft model is there and is one."""
    draft = spec.speculative.draft_model_path
    return _model("draft-model-path", draft, "speculative.draft_model_path") if draft else None


def _model(slug: str, text: str, key: str) -> Row | None:
    if not text.startswith("/"):
        return good(slug, f"{text} is for SGLang to find or fetch")
    path, correct = Path(text), f"correct '{key}' or put the model there"
    try:
        path.stat()
    except PermissionError:
        return refused(slug, f"{path} is not readable for {_me()}", f"check it with: namei -l {path}")
    except OSError as error:
        return refused(slug, f"{path}: {error.strerror}", correct)
    if path.is_file():
        if path.suffix == ".gguf":
            return good(slug, f"{path}")
        return refused(slug, f"{path} is a file, not a model's folder", correct)
    try:
        names = set(os.listdir(path))
    except OSError as error:
        return refused(slug, f"{path}: {error.strerror}", f"check it with: namei -l {path}")
    if not names:
        return refused(slug, f"{path} is an empty folder", correct + "; is it a mount point with nothing mounted?")
    if "params.json" in names:  # Mistral's own format
        return good(slug, f"{path}")
    if "config.json" not in names:
        return refused(slug, f"{path} holds no model: there is no config.json in it", correct)
    try:
        config = json.loads((path / "config.json").read_bytes())
    except OSError as error:
        return refused(slug, f"{path}/config.json: {error.strerror}", f"check it with: namei -l {path}/config.json")
    except ValueError as error:
        return refused(slug, f"{path}/config.json is not valid JSON: {error}", "copy the model again")
    if not isinstance(config, dict):
        return refused(slug, f"{path}/config.json is not a model's configuration", "copy the model again")
    return good(slug, f"{path}")


def models(spec: ServerSpec) -> Row | None:
    """The models' files are whole, and the draft is one for this target: SGLang finds out late, or never."""
    read = pair(spec)
    if read.target is None and read.draft is None and not read.findings:
        return None
    errors = [finding.message for finding in read.findings if finding.is_error]
    if errors:
        return refused("models", "; ".join(errors), "correct the spec or the files")
    if read.findings:
        words = "; ".join(finding.message for finding in read.findings)
        return warning("models", words, "compare the accept length in the log with that of a pair that fits")
    if read.draft is not None and read.target is not None:
        return good("models", "the draft fits the target")
    return good("models", "the weight files are whole")


def port(spec: ServerSpec) -> Row | None:
    """Nobody else has the port: SGLang would notice only after loading the model, then linger for minutes."""
    try:
        found = socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return refused("port", f"host {spec.host!r} has no address: {error.strerror}", "correct 'host'")
    failures = {_bind_failure(family, address) for family, _, _, _, address in found}
    if errno.EADDRINUSE in failures:
        who = _holder(spec.port)
        find = "" if who.startswith("pid ") else f" (find it as root: ss -ltnp sport = :{spec.port})"
        message = f"port {spec.port} of {spec.host} is taken by {who}"
        return refused("port", message, f"stop it{find} or change 'port'")
    if errno.EACCES in failures:
        message = f"port {spec.port} of {spec.host} is not allowed for {_me()}"
        return refused("port", message, "take a port from 1024 on")
    if failures == {errno.EADDRNOTAVAIL}:
        return refused("port", f"{spec.host} is not an address of this machine", "correct 'host'")
    return good("port", f"{spec.port} of {spec.host} is free")


def _bind_failure(family: int, address: Any) -> int | None:
    """The error of binding a socket to `address` as SGLang's server does, None when it could."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            trial.bind(address)
    except OSError as error:
        return error.errno
    return None


def _holder(number: int) -> str:
    found = listeners(number)
    return holder(found[0]) if found else "a socket that does not listen yet"


def _me() -> str:
    return f"user {user(os.geteuid())}"
