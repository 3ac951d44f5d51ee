"""A model as it lies on disk: its configuration and the names, shapes and sizes of its tensors. No weight is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BadModel", "Model", "Tensor", "located", "read"]

_TOO_LARGE_BYTES = 100 << 20
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")


class BadModel(Exception):
    """What is wrong with a model's files, in words that can stand behind its path."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """`dtype` as safetensors spells it (``BF16``); `size_bytes` is what it takes on disk."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Model:
    """`config` is that of the language model where the whole has several. `tensors` is empty without safetensors,
    then `weight_bytes` is the size of the files there are."""

    path: Path
    architecture: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    weight_bytes: int = 0

    def number(self, *keys: str) -> int | None:
        """The first of these keys of the configuration that holds a whole number."""
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    def tensor(self, *endings: str) -> Tensor | None:
        """The first tensor, in the order of the names, whose name ends so."""
        return next((self.tensors[name] for name in sorted(self.tensors) if name.endswith(endings)), None)


def located(reference: str, env: Mapping[str, str], revision: str | None = None) -> Path | None:
    """Where a model lies: its folder, or the Hugging Face hub's cache; None where SGLang would have to fetch it."""
    if reference.startswith("/"):
        return Path(reference)
    if reference.count("/") != 1 or "://" in reference:
        return None
    home = env.get("HF_HUB_CACHE") or f"{env.get('HF_HOME') or env.get('HOME', '') + '/.cache/huggingface'}/hub"
    folder = Path(home) / f"models--{reference.replace('/', '--')}"
    try:
        commit = (folder / "refs" / (revision or "main")).read_text().strip()
    except OSError:
        commit = revision or ""
    snapshot = folder / "snapshots" / commit
    try:
        return snapshot if commit and (snapshot / "config.json").exists() else None
    except OSError:
        return None


def read(path: Path) -> Model:
    """The model in the folder `path`. Raises ``BadModel``, or ``OSError`` where a file cannot be read."""
    whole = _json(path / "config.json")
    text: dict[str, Any] = next((whole[key] for key in _TEXT if isinstance(whole.get(key), dict)), {})
    architectures = whole.get("architectures") or []
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    files = _shards(path)
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors |= _header(file)
    sizes = [p.stat().st_size for p in (files or [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.gguf")])]
    weight_bytes = sum(t.size_bytes for t in tensors.values()) or sum(sizes)
    return Model(path, architecture, {**whole, **text}, tensors, weight_bytes)


def _json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _TOO_LARGE_BYTES:
        raise BadModel(f"{path.name} is too large to be what its name says")
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise BadModel(f"{path.name} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadModel(f"{path.name} is not a JSON object")
    return found


def _shards(path: Path) -> list[Path]:
    """The safetensors files of the model; raises ``BadModel`` where the index names one that is not there."""
    indexes = sorted(path.glob("*.safetensors.index.json"))
    if not indexes:
        return sorted(path.glob("*.safetensors"))
    names: set[str] = set()
    for index in indexes:
        weight_map = _json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise BadModel(f"{index.name} has no weight_map")
        names |= set(map(str, weight_map.values()))
    missing = sorted(name for name in names if not (path / name).exists())
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise BadModel(f"{len(missing)} of {len(names)} weight files are missing: {shown}")
    return [path / name for name in sorted(names)]


def _header(file: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file; raises ``BadModel`` where it is cut off or none."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(_TOO_LARGE_BYTES, size - 8):
            raise BadModel(f"{file.name} is not a safetensors file, or is cut off ({size} bytes)")
        raw = stream.read(length)
    try:
        entries = json.loads(raw)
        entries.pop("__metadata__", None)
        tensors = {
            name: Tensor(e["dtype"], tuple(e["shape"]), e["data_offsets"][1] - e["data_offsets"][0])
            for name, e in entries.items()
        }
        ends = [e["data_offsets"][1] for e in entries.values()]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise BadModel(f"{file.name} has no header that can be read") from None
    wanted = 8 + length + max(ends, default=0)
    if size < wanted:
        raise BadModel(f"{file.name} is cut off: {size} of {wanted} bytes (copy or download it again)")
    return tensors
