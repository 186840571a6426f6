"""Write a Qwen3 of about 600 MiB with random weights in five shards: `big_qwen.py TINY FOLDER`, by the real engine's own Python.

All but the weights and their shapes is copied from the tiny model of tests/real/setup.sh. Its answers mean nothing, and
never end by themselves: sparkdash takes an engine whose answer to its first chat is empty for broken.
"""

import json
import shutil
import sys
from pathlib import Path

HIDDEN, INNER, LAYERS, VOCABULARY, SHARDS = 1024, 4096, 20, 1024, 5
HEADS, KV_HEADS, HEAD = 8, 2, 128


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        found |= {f"{name}{norm}_layernorm.weight": (HIDDEN,) for norm in ("input", "post_attention")}
        found |= {f"{name}self_attn.{norm}_norm.weight": (HEAD,) for norm in ("q", "k")}
        found |= {f"{name}mlp.{part}_proj.weight": (INNER, HIDDEN) for part in ("gate", "up")}
        found |= {f"{name}self_attn.{part}_proj.weight": (KV_HEADS * HEAD, HIDDEN) for part in ("k", "v")}
        found[f"{name}self_attn.q_proj.weight"] = (HEADS * HEAD, HIDDEN)
        found[f"{name}self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        found[f"{name}mlp.down_proj.weight"] = (HIDDEN, INNER)
    return found


def write(tiny: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    for file in tiny.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
    config = json.loads((tiny / "config.json").read_text()) | {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "vocab_size": VOCABULARY,
        "layer_types": ["full_attention"] * LAYERS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    weights = shapes()
    files = [f"model-{number:05d}-of-{SHARDS:05d}.safetensors" for number in range(1, SHARDS + 1)]
    placed = {name: files[number % SHARDS] for number, name in enumerate(sorted(weights))}
    for file in files:
        here = {name: (torch.randn(weights[name]) * 0.02).bfloat16() for name in weights if placed[name] == file}
        if "lm_head.weight" in here:
            here["lm_head.weight"][config["eos_token_id"]] = 0  # some of the other tokens always weighs more
        save_file(here, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
