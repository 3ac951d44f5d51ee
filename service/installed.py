"""The SGLang that an interpreter would run: its version, the options that it knows, and the CUDA of its torch.

Its own files are asked, as source text: importing them would import torch, which takes half a minute and may touch a
GPU. Where they say nothing, nothing is known, and nothing is held against a spec.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Installed", "NoInterpreter", "NoSglang", "Version", "find", "options_in", "parse_version"]

DEADLINE_SECONDS = 20
# What is no Python repeats the whole program that it was given.
_LONGEST_WORDS = 120
# Finds the packages without importing them.
_PROBE = """
import importlib.util, json
def where(name):
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations or [])[:1] if spec else []
print(json.dumps({name: where(name) for name in ("sglang", "torch")}))
"""

Version = tuple[int, int, int]


class NoInterpreter(Exception):
    """The interpreter does not run; the message says why."""


class NoSglang(Exception):
    """The interpreter runs and finds no SGLang."""


@dataclass(frozen=True, slots=True)
class Installed:
    """`options` maps each option to the values it takes, none where it takes any; empty where it is not known.

    `cuda` is that of torch, such as (12, 8); None for a build without, or where torch's files do not say.
    """

    version: Version | None
    options: Mapping[str, tuple[str, ...]]
    torch: str = ""
    cuda: tuple[int, int] | None = None

    def knows(self, option: str) -> bool:
        """As argparse decides: the option itself, the only one that begins so, or a switch's opposite (``--no-x``)."""
        name = option.split("=", 1)[0]
        if name.startswith("--no-") and f"--{name[5:]}" in self.options:
            return True
        return not self.options or name in self.options or sum(o.startswith(name) for o in self.options) == 1

    def __str__(self) -> str:
        return "SGLang" if self.version is None else f"SGLang {'.'.join(map(str, self.version))}"


def find(python: str, env: Mapping[str, str]) -> Installed | None:
    """What `python` would run with the variables `env`; None where it takes too long to say.

    Raises ``NoInterpreter`` or ``NoSglang``.
    """
    return _find(python, tuple(sorted(env.items())))


@functools.cache
def _find(python: str, env: tuple[tuple[str, str], ...]) -> Installed | None:
    try:
        probe = subprocess.run(
            [python, "-c", _PROBE],
            env={**os.environ, **dict(env)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise NoInterpreter(f"cannot be executed: {error.strerror}") from None
    if probe.returncode != 0:
        words = probe.stderr.strip().splitlines()[-1:] or [f"exit status {probe.returncode}"]
        raise NoInterpreter(f"does not run: {words[0][:_LONGEST_WORDS]}")
    try:
        found = json.loads(probe.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return None
    if not found["sglang"]:
        raise NoSglang
    package = Path(found["sglang"][0])
    torch = _assigned(Path(found["torch"][0]) / "version.py") if found["torch"] else {}
    cuda = re.fullmatch(r"(\d+)\.(\d+).*", torch.get("cuda", ""))
    return Installed(
        version=_version(package),
        options=options_in(package),
        torch=torch.get("__version__", ""),
        cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
    )


def parse_version(text: str) -> Version | None:
    """``0.5.10.post1`` → (0, 5, 10)."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _version(package: Path) -> Version | None:
    for folder in package.parent.glob("sglang-*.dist-info"):
        return parse_version(folder.name.removeprefix("sglang-"))
    for name in ("_version.py", "version.py"):
        if text := _assigned(package / name).get("__version__"):
            return parse_version(text)
    return None


def _assigned(path: Path) -> dict[str, str]:
    """The texts that a file assigns to names at its top level."""
    found: dict[str, str] = {}
    for node in _tree(path).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return found


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def options_in(package: Path) -> dict[str, tuple[str, ...]]:
    """Every option of ``sglang.launch_server`` and the values it takes, from the files of the package.

    Releases to 0.5.15 add each to a parser by hand; later ones derive them from annotated fields,
    ``name: A[type, "help"]`` or ``A[type, Arg(…)]``, in ``server_args.py`` or ``arg_groups/fields``.
    """
    folder = package / "srt"
    fields = sorted((folder / "arg_groups/fields").glob("*.py"))
    lists = _lists(_tree(folder / "arg_groups/choices.py"))
    found: dict[str, tuple[str, ...]] = {}
    for path in (folder / "server_args.py", *fields):
        tree = _tree(path)
        known = lists | _lists(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign):
                found |= _of_field(node, known)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                found |= _of_call(node, known)
    return found


def _lists(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The lists of texts at a file's top level, by name; one that is put together otherwise is left out."""
    found: dict[str, tuple[str, ...]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts = _texts(node.value, found)
            if texts:
                found[node.targets[0].id] = texts
    return found


def _texts(node: ast.expr | None, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The texts of a literal list, or of a name for one; empty where it holds anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id, ())
    if not isinstance(node, ast.List | ast.Tuple):
        return ()
    values = [element.value for element in node.elts if isinstance(element, ast.Constant)]
    return tuple(map(str, values)) if len(values) == len(node.elts) else ()


def _of_call(node: ast.Call, known: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """``parser.add_argument("--name", "--alias", …)``."""
    names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    choices = next((_texts(k.value, known) for k in node.keywords if k.arg == "choices"), ())
    return {name: choices for name in names if name.startswith("-")}


def _of_field(node: ast.AnnAssign, known: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """``name: A[type, meta]``."""
    note = node.annotation
    if not (isinstance(note, ast.Subscript) and getattr(note.value, "id", "") in {"A", "Annotated"}):
        return {}
    if not (isinstance(note.slice, ast.Tuple) and isinstance(node.target, ast.Name)):
        return {}
    kind, *metas = note.slice.elts
    arg = next((m for m in metas if isinstance(m, ast.Call) and getattr(m.func, "id", "") == "Arg"), None)
    given = {k.arg: k.value for k in arg.keywords} if arg else {}
    texts = any(isinstance(m, ast.Constant | ast.JoinedStr | ast.BinOp) for m in metas)
    if (arg is None and not texts) or _is_true(given.get("no_cli")):
        return {}
    name = given.get("cli_name")
    first = name.value if isinstance(name, ast.Constant) else "--" + node.target.id.replace("_", "-")
    choices = _texts(given.get("choices"), known) or tuple(_literals(kind))
    return {str(option): choices for option in (first, *_texts(given.get("aliases"), known))}


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _literals(kind: ast.expr) -> Iterator[str]:
    for node in ast.walk(kind):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            yield from (str(e.value) for e in elements if isinstance(e, ast.Constant))
