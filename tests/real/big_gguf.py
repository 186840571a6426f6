"""Write a Llama model of a given size with random weights: `big_gguf.py FILE MIB`. For tests of loading; its answers mean nothing.

Keys and layout are those of tiny_gguf; each tensor repeats one block of random numbers, so that hundreds of MiB take a second.
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from pathlib import Path

import tiny_gguf

WIDTH, HIDDEN = 1024, 4096
MIB = 1 << 20


def layout(layers: int, tokens: int) -> dict[str, tuple[int, ...]]:
    head = WIDTH // tiny_gguf.HEADS * tiny_gguf.KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (WIDTH, tokens), "output_norm.weight": (WIDTH,)}
    for layer in range(layers):
        name = f"blk.{layer}."
        shapes |= {
            f"{name}attn_norm.weight": (WIDTH,),
            f"{name}attn_q.weight": (WIDTH, WIDTH),
            f"{name}attn_k.weight": (WIDTH, head),
            f"{name}attn_v.weight": (WIDTH, head),
            f"{name}attn_output.weight": (WIDTH, WIDTH),
            f"{name}ffn_norm.weight": (WIDTH,),
            f"{name}ffn_gate.weight": (WIDTH, HIDDEN),
            f"{name}ffn_up.weight": (WIDTH, HIDDEN),
            f"{name}ffn_down.weight": (HIDDEN, WIDTH),
        }
    return shapes | {"output.weight": (WIDTH, tokens)}


def write(file: Path, mib: int) -> None:
    """Write about `mib` MiB: as many layers as that takes, 60 MiB each."""
    tokens, merges = tiny_gguf.vocabulary()
    layers = max(1, mib // 60)
    facts = tiny_gguf.metadata(tokens, merges) | {
        "llama.embedding_length": (tiny_gguf.UINT32, WIDTH),
        "llama.block_count": (tiny_gguf.UINT32, layers),
        "llama.feed_forward_length": (tiny_gguf.UINT32, HIDDEN),
    }
    chance = random.Random(11)
    block = array("f", (chance.gauss(0, 0.02) for _ in range(MIB // 4))).tobytes()
    infos, at, sizes = b"", 0, []
    for name, shape in layout(layers, len(tokens)).items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        infos += tiny_gguf.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        sizes.append(size)
        at += size + -size % tiny_gguf.ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(sizes), len(facts))
    for key, (kind, value) in facts.items():
        head += tiny_gguf.text(key) + struct.pack("<I", kind) + tiny_gguf.packed(kind, value)
    head += infos
    with file.open("wb") as out:
        out.write(head + bytes(-len(head) % tiny_gguf.ALIGNMENT))
        for size in sizes:
            whole, rest = divmod(size, len(block))
            for _ in range(whole):
                out.write(block)
            out.write(block[:rest] + bytes(-size % tiny_gguf.ALIGNMENT))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
