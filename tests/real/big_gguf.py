"""A Llama model of a given size with random weights, for tests of loading; its answers mean nothing.

Keys and layout are those of tiny_gguf; each tensor repeats one block of random numbers, so that hundreds of MiB take a second.
"""

import random
from array import array
from math import prod
from pathlib import Path

import tiny_gguf

WIDTH, HIDDEN = 1024, 4096
MIB = 1 << 20


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
    shapes = tiny_gguf.layout(WIDTH, HIDDEN, layers, len(tokens))
    with file.open("wb") as out:
        out.write(tiny_gguf.header(facts, shapes))
        for shape in shapes.values():
            size = 4 * prod(shape)
            whole, rest = divmod(size, len(block))
            for _ in range(whole):
                out.write(block)
            out.write(block[:rest] + bytes(tiny_gguf.padded(size) - size))
