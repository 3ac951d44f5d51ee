"""Make the tiny models: a random Llama with its tokenizer, and drafts for speculative decoding.

    make_models.py FOLDER

writes FOLDER/tiny (2 layers, 205,120 parameters, 0.4 MB) and its drafts tiny-draft (STANDALONE),
tiny-eagle and tiny-eagle3.  Nothing is downloaded and the same bytes of weights come out each time.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 1024, 64, 128, 4, 2, 16
SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
CORPUS = [
    line.format(i)
    for line in (
        "the quick brown fox jumps over the lazy dog {}",
        "speculative decoding verifies draft tokens in parallel, request {} finished",
    )
    for i in range(400)
]


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on two sentences; it can encode any text."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, **SPECIAL)
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    return fast


def save_llama(folder: Path, layers: int, seed: int) -> None:
    """A whole random model: weights, config and tokenizer."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def save_eagle(folder: Path, target: Path, *, version: int) -> None:
    """An EAGLE or EAGLE3 draft head of one layer for the target model."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * 0.02).to(torch.bfloat16)

    def ones() -> torch.Tensor:
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    # EAGLE3 concatenates three hidden states and feeds its layer embedding and state side by side.
    layer, query_in = ("layers.0.", HIDDEN) if version == 1 else ("midlayer.", 2 * HIDDEN)
    weights = {
        "fc.weight": random(HIDDEN, (2 if version == 1 else 3) * HIDDEN),
        f"{layer}self_attn.q_proj.weight": random(HEADS * HEAD_DIM, query_in),
        f"{layer}self_attn.k_proj.weight": random(KV_HEADS * HEAD_DIM, query_in),
        f"{layer}self_attn.v_proj.weight": random(KV_HEADS * HEAD_DIM, query_in),
        f"{layer}self_attn.o_proj.weight": random(HIDDEN, HEADS * HEAD_DIM),
        f"{layer}mlp.gate_proj.weight": random(INTERMEDIATE, HIDDEN),
        f"{layer}mlp.up_proj.weight": random(INTERMEDIATE, HIDDEN),
        f"{layer}mlp.down_proj.weight": random(HIDDEN, INTERMEDIATE),
        f"{layer}post_attention_layernorm.weight": ones(),
    }
    config = json.loads((target / "config.json").read_text())
    config |= {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    if version == 3:
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": VOCABULARY}
        weights |= {
            "midlayer.hidden_norm.weight": ones(),
            "midlayer.input_layernorm.weight": ones(),
            "norm.weight": ones(),
            "lm_head.weight": random(VOCABULARY, HIDDEN),
        }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    for file in target.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    save_llama(folder / "tiny", layers=2, seed=0)
    save_llama(folder / "tiny-draft", layers=1, seed=1)
    save_eagle(folder / "tiny-eagle", folder / "tiny", version=1)
    save_eagle(folder / "tiny-eagle3", folder / "tiny", version=3)
    for file in folder.glob("*/*"):
        # safetensors writes 0600, and the server does not run as root.
        file.chmod(0o644)


if __name__ == "__main__":
    main()
