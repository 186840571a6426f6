"""Write a Llama model of a given size with random weights: `big_gguf.py FILE MIB`. For tests of loading; its answers mean nothing.

Keys and layout are those of tiny_gguf; each tensor repeats one block of random numbers, so that hundreds of MiB take a second.
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

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


def padded(size: int) -> int:
    return size + -size % tiny_gguf.ALIGNMENT


def header(facts: Mapping[str, tuple[int, Any]], shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """All that stands before the weights: 32-bit floats (type 0), each tensor padded."""
    infos, at = b"", 0
    for name, shape in shapes.items():
        infos += tiny_gguf.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        at += padded(4 * prod(shape))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(facts))
    for key, (kind, value) in facts.items():
        head += tiny_gguf.text(key) + struct.pack("<I", kind) + tiny_gguf.packed(kind, value)
    return (head + infos).ljust(padded(len(head + infos)), b"\0")


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
    shapes = layout(layers, len(tokens))
    with file.open("wb") as out:
        out.write(header(facts, shapes))
        for shape in shapes.values():
            size = 4 * prod(shape)
            whole, rest = divmod(size, len(block))
            for _ in range(whole):
                out.write(block)
            out.write(block[:rest] + bytes(padded(size) - size))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
