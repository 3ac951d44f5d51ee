"""Models without weights: a config.json, and safetensors files that are a header and a hole."""

import json
import struct
from pathlib import Path

Shapes = dict[str, tuple[int, ...]]


def write(folder: Path, config: dict[str, object], shapes: Shapes, name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, offset = {}, 0
    for tensor, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[tensor] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    with (folder / name).open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + offset)
    return folder


def config(architecture: str = "LlamaForCausalLM", **keys: object) -> dict[str, object]:
    own = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    return {"architectures": [architecture], "head_dim": 16, "vocab_size": 1000, "torch_dtype": "bfloat16"} | own | keys


def llama(folder: Path, **keys: object) -> Path:
    """A whole model of `num_hidden_layers` layers."""
    made = config(**keys)
    width, vocabulary, layers = int(str(made["hidden_size"])), int(str(made["vocab_size"])), made["num_hidden_layers"]
    shapes: Shapes = {"model.embed_tokens.weight": (vocabulary, width), "lm_head.weight": (vocabulary, width)}
    for layer in range(int(str(layers))):
        shapes[f"model.layers.{layer}.self_attn.q_proj.weight"] = (width, width)
    return write(folder, made, shapes)


def eagle(folder: Path, *, width: int = 64, target_width: int = 64, **keys: object) -> Path:
    """An EAGLE draft: one layer that takes one state."""
    shapes = {"fc.weight": (width, width + target_width), "layers.0.self_attn.q_proj.weight": (64, width)}
    return write(folder, config("LlamaForCausalLMEagle", hidden_size=width, num_hidden_layers=1) | keys, shapes)


def eagle3(folder: Path, *, states: int = 3, target_width: int = 64, known: int = 1000, **keys: object) -> Path:
    """An EAGLE3 draft: one layer that takes the embedding and what `fc` makes of `states` states."""
    shapes: Shapes = {"fc.weight": (64, states * target_width), "midlayer.self_attn.q_proj.weight": (64, 128)}
    made = config("LlamaForCausalLMEagle3", num_hidden_layers=1, draft_vocab_size=known) | keys
    return write(folder, made, shapes | {"lm_head.weight": (known, 64)})
