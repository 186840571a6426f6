"""Write a tiny Llama model with random weights, its tokenizer and chat template: `tiny_gguf.py FILE`.

Needs nothing but Python. The answers are words in no order; a test may count tokens, never read them. Keys and layout are
those of GGUF version 3.
"""

import random
import struct
import sys
from array import array
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

WORDS = ("spark", "memory", "engine", "stream", "token", "cache", "profile", "swap")
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS, CONTEXT = 64, 2, 1, 128, 2, 8192
NORMAL, CONTROL = 1, 3
"""Kinds of tokens."""
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
"""Types of metadata values."""
ALIGNMENT = 32


def alphabet() -> list[str]:
    """One printable character for each byte, as byte-level BPE has them: those that print stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens (bytes, then each word with the space before it and all that it grows from, then the marks) and merges."""
    space = alphabet()[0x20]
    tokens, merges = alphabet(), []
    for word in WORDS:
        grown = space
        for letter in word:
            merge, grown = f"{grown} {letter}", grown + letter
            if grown not in tokens:
                tokens.append(grown)
                merges.append(merge)
    return [*tokens, *MARKS], merges


def layout(width: int, hidden: int, layers: int, tokens: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors, by name."""
    head = width // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (width, tokens), "output_norm.weight": (width,)}
    for layer in range(layers):
        name = f"blk.{layer}."
        shapes |= {
            f"{name}attn_norm.weight": (width,),
            f"{name}attn_q.weight": (width, width),
            f"{name}attn_k.weight": (width, head),
            f"{name}attn_v.weight": (width, head),
            f"{name}attn_output.weight": (width, width),
            f"{name}ffn_norm.weight": (width,),
            f"{name}ffn_gate.weight": (width, hidden),
            f"{name}ffn_up.weight": (width, hidden),
            f"{name}ffn_down.weight": (hidden, width),
        }
    return shapes | {"output.weight": (width, tokens)}


def values(shapes: Mapping[str, tuple[int, ...]], tokens: list[str]) -> list[list[float]]:
    """Weights of each tensor. Only whole words are ever said: all other rows of the head are zero."""
    chance = random.Random(11)
    made = [
        [chance.gauss(0, shape[0] ** -0.5) for _ in range(prod(shape))] if len(shape) > 1 else [1.0] * shape[0]
        for name, shape in shapes.items()
        if name != "output.weight"
    ]
    rows = [[chance.gauss(0, 1) for _ in range(WIDTH)] if token[1:] in WORDS else [0.0] * WIDTH for token in tokens]
    return [*made, [value for row in rows for value in row]]


def metadata(tokens: list[str], merges: list[str]) -> dict[str, tuple[int, Any]]:
    kinds = [CONTROL if token in MARKS else NORMAL for token in tokens]
    return {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "tiny"),
        "llama.context_length": (UINT32, CONTEXT),
        "llama.embedding_length": (UINT32, WIDTH),
        "llama.block_count": (UINT32, LAYERS),
        "llama.feed_forward_length": (UINT32, HIDDEN),
        "llama.attention.head_count": (UINT32, HEADS),
        "llama.attention.head_count_kv": (UINT32, KV_HEADS),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-5),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "gpt-2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (INT32, kinds)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges)),
        "tokenizer.ggml.eos_token_id": (UINT32, tokens.index("<|im_end|>")),
        "tokenizer.ggml.padding_token_id": (UINT32, tokens.index("<|endoftext|>")),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (STRING, CHAT_TEMPLATE),
    }


def text(value: str) -> bytes:
    said = value.encode()
    return struct.pack("<Q", len(said)) + said


def packed(kind: int, value: Any) -> bytes:
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(packed(inner, item) for item in items)
    if kind == STRING:
        return text(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def padded(size: int) -> int:
    return size + -size % ALIGNMENT


def header(facts: Mapping[str, tuple[int, Any]], shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """All that stands before the weights: 32-bit floats (type 0), each tensor padded."""
    infos, at = b"", 0
    for name, shape in shapes.items():
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        at += padded(4 * prod(shape))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(facts))
    head += b"".join(text(key) + struct.pack("<I", kind) + packed(kind, value) for key, (kind, value) in facts.items())
    return (head + infos).ljust(padded(len(head + infos)), b"\0")


def gguf() -> bytes:
    """The whole file."""
    tokens, merges = vocabulary()
    shapes = layout(WIDTH, HIDDEN, LAYERS, len(tokens))
    weights = (array("f", each).tobytes() for each in values(shapes, tokens))
    return header(metadata(tokens, merges), shapes) + b"".join(each.ljust(padded(len(each)), b"\0") for each in weights)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(gguf())
