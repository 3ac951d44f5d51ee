"""Checks before a start: what certainly cannot work is refused in a sentence, before a model is loaded in vain.

Run by ``ExecStartPre=`` as the server's user. A check refuses only what it knows; what it cannot see it lets pass.
``CHECKS`` lists them in order: a check is a function from the spec to a problem or None.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.command import command
from service.exit_status import PREFLIGHT_REFUSED
from service.listeners import holder, listeners, user
from service.load import SpecError, digest_of, parse, read, spec_path
from service.notify import status
from service.pairs import notes
from service.spec import ServerSpec

__all__ = ["CHECKS", "Refusal", "main", "preflight"]

INTERPRETER_DEADLINE_SECONDS = 20
# Looks for the package without importing it: importing sglang imports torch, which takes half a minute.
_PROBE = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('sglang') else 3)"
_NO_SGLANG = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a start cannot work, and what to do about it: one sentence each. `check` is a stable slug."""

    check: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"inquest: preflight refused: {self.check}: {self.message}; {self.advice}"


def interpreter(spec: ServerSpec) -> Refusal | None:
    """The interpreter is there, runs, and finds sglang."""
    slug, python = "interpreter", Path(spec.python)
    if not python.exists():
        return Refusal(slug, f"{python} does not exist", "install SGLang's environment there or correct 'python'")
    if python.is_dir() or not os.access(python, os.X_OK):
        return Refusal(slug, f"{python} cannot be executed by {_me()}", f"check it with: ls -l {python}")
    try:
        probe = subprocess.run(
            [spec.python, "-c", _PROBE],
            env={**os.environ, **command(spec).env},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INTERPRETER_DEADLINE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None  # slow is not wrong: the first start after a boot reads from a cold disk
    except OSError as error:
        return Refusal(slug, f"{python} cannot be executed: {error.strerror}", "correct 'python'")
    if probe.returncode == _NO_SGLANG:
        return Refusal(slug, f"{python} has no package 'sglang'", f"install it: {python} -m pip install sglang")
    if probe.returncode != 0:
        words = probe.stderr.strip().splitlines()[-1:] or [f"exit status {probe.returncode}"]
        return Refusal(slug, f"{python} does not run: {words[0]}", f"try it by hand: {python} -c 'import sglang'")
    return None


def model_path(spec: ServerSpec) -> Refusal | None:
    """A local model is there and is one."""
    return _model("model-path", spec.model_path, "model_path")


def draft_model_path(spec: ServerSpec) -> Refusal | None:
    """A local draft model is there and is one."""
    draft = spec.speculative.draft_model_path
    return _model("draft-model-path", draft, "speculative.draft_model_path") if draft else None


def _model(slug: str, text: str, key: str) -> Refusal | None:
    if not text.startswith("/"):
        return None  # a repository id or a URL: SGLang fetches it
    path, correct = Path(text), f"correct '{key}' or put the model there"
    try:
        path.stat()
    except PermissionError:
        return Refusal(slug, f"{path} is not readable for {_me()}", f"check it with: namei -l {path}")
    except OSError as error:
        return Refusal(slug, f"{path}: {error.strerror}", correct)
    if path.is_file():
        if path.suffix == ".gguf":
            return None
        return Refusal(slug, f"{path} is a file, not a model's folder", correct)
    try:
        names = set(os.listdir(path))
    except OSError as error:
        return Refusal(slug, f"{path}: {error.strerror}", f"check it with: namei -l {path}")
    if not names:
        return Refusal(slug, f"{path} is an empty folder", correct + "; is it a mount point with nothing mounted?")
    if "params.json" in names:  # Mistral's own format
        return None
    if "config.json" not in names:
        return Refusal(slug, f"{path} holds no model: there is no config.json in it", correct)
    try:
        config = json.loads((path / "config.json").read_bytes())
    except OSError as error:
        return Refusal(slug, f"{path}/config.json: {error.strerror}", f"check it with: namei -l {path}/config.json")
    except ValueError as error:
        return Refusal(slug, f"{path}/config.json is not valid JSON: {error}", "copy the model again")
    if not isinstance(config, dict):
        return Refusal(slug, f"{path}/config.json is not a model's configuration", "copy the model again")
    return None


def port(spec: ServerSpec) -> Refusal | None:
    """Nobody else has the port: SGLang would notice only after loading the model, then linger for minutes."""
    try:
        found = socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return Refusal("port", f"host {spec.host!r} has no address: {error.strerror}", "correct 'host'")
    failures = {_bind_failure(family, address) for family, _, _, _, address in found}
    if errno.EADDRINUSE in failures:
        message = f"port {spec.port} of {spec.host} is taken by {_holder(spec.port)}"
        find = f"find it as root: ss -ltnp sport = :{spec.port}"
        return Refusal("port", message, f"stop it ({find}) or change 'port'")
    if errno.EACCES in failures:
        message = f"port {spec.port} of {spec.host} is not allowed for {_me()}"
        return Refusal("port", message, "take a port from 1024 on")
    if failures == {errno.EADDRNOTAVAIL}:
        return Refusal("port", f"{spec.host} is not an address of this machine", "correct 'host'")
    return None


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


Check = Callable[[ServerSpec], Refusal | None]
CHECKS: tuple[Check, ...] = (interpreter, model_path, draft_model_path, port)


def preflight(spec: ServerSpec) -> tuple[Refusal, ...]:
    """Every check's problem, in order; empty when nothing speaks against a start."""
    problems: list[Refusal] = []
    for check in CHECKS:
        try:
            problem = check(spec)
        except Exception as error:  # a check that breaks must not keep a server from starting
            print(f"inquest: preflight: {check.__name__} could not check: {error!r}", file=sys.stderr)
            continue
        if problem is not None:
            problems.append(problem)
    return tuple(problems)


def main(server: str, digest: str | None = None) -> int:
    """Check the server named `server`. `digest` is that of the spec which the unit was generated from.

    Another digest means that the spec was edited since: the unit starts what it says, which cannot be checked by
    the edited file. Then, as where the file is unreadable for the server's user, nothing is refused.
    """
    # A stop that comes meanwhile is no failure of the unit.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    path = spec_path(server)
    try:
        raw = read(path)
        changed = digest is not None and digest_of(raw) != digest
        spec = None if changed else parse(raw, path)
    except SpecError as error:
        _say(f"<4>inquest: preflight: not checked: {error}")
        return 0
    if spec is None:
        _say(f"<4>inquest: preflight: not checked: {path} has changed since; systemctl daemon-reload makes it count")
        return 0
    for note in notes(spec):
        _say(f"<5>inquest: preflight: note: {note}")
    refusals = preflight(spec)
    for refusal in refusals:
        _say(f"<3>{refusal}")
    if refusals:
        status(f"preflight refused: {'; '.join(refusal.message for refusal in refusals)}")
        return PREFLIGHT_REFUSED
    return 0


def _say(line: str) -> None:
    """To the journal, with the priority in front that journald takes off; without it to a terminal."""
    print(line if "JOURNAL_STREAM" in os.environ else line[3:], file=sys.stderr)
