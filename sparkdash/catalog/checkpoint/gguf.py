"""GGUF files (ggml's docs/gguf.md, 2 and 3): the header, and the facts that its metadata (gguf-py's keys) tell.

No weight is read; every malformed header is a ProfileError; long arrays are skipped.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from sparkdash.catalog.checkpoint import model
from sparkdash.catalog.checkpoint.model import MAX_LAYERS, integer, word
from sparkdash.catalog.checkpoint.safetensors import Tensor, unreadable_weights
from sparkdash.domain.weights import Attention, KvLayers, WeightFacts
from sparkdash.paths import open_regular

_PERIODS = {"gpt-oss": 2, "gemma3": 6, "gemma2": 2}
"""Interval of full layers where the metadata gives only a window: set_swa_pattern in llama.cpp's llama-model.cpp."""


def gguf_weight_facts(metadata: Mapping[str, Any], tensors: Sequence[Tensor], origin: str) -> WeightFacts:
    """Assemble the facts. Layers of an unknown kind leave `kv` empty."""
    name = word(metadata.get("general.architecture")) or ""
    get = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    layers = _layers(get)
    heads, kv_heads = _most(get.get("attention.head_count")), _per_layer(get.get("attention.head_count_kv"), layers)
    hidden = integer(get, "embedding_length")
    size = integer(get, "attention.key_length") or (hidden // heads if hidden and heads else None)
    parts = model.bytes_by_purpose(tensors, layers)
    dtypes = model.by_dtype(tensors)
    return WeightFacts(
        origin=origin,
        format="gguf",
        architecture=name or None,
        bytes=parts,
        bytes_by_dtype=dtypes,
        parameters=model.count_parameters(tensors, None),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=max(kv_heads, default=None),
        head_dim=size,
        kv=_kv(get, name, kv_heads, size) if layers else (),
        experts=integer(get, "expert_count"),
        active_experts=integer(get, "expert_used_count"),
        tied_head=not parts.head,
        context=integer(get, "context_length"),
        quantization=next(iter(dtypes), "").lower() or None,
    )


def _kv(get: Mapping[str, Any], name: str, kv_heads: Sequence[int], size: int | None) -> tuple[KvLayers, ...]:
    if not kv_heads or not size or integer(get, "attention.indexer.key_length"):
        return ()
    linear = [_is_linear(get, index, heads) for index, heads in enumerate(kv_heads)]
    window, period = integer(get, "attention.sliding_window"), _PERIODS.get(name)
    pattern = get.get("attention.sliding_window_pattern")
    counts: Counter[tuple[Attention, int]] = Counter()
    for index, heads in enumerate(kv_heads):
        if linear[index]:
            counts[Attention.LINEAR, 0] += 1
        elif heads:
            slides = bool(window) and _slides(index, pattern, period)
            counts[Attention.SLIDING if slides else Attention.FULL, heads] += 1
    return _groups(get, counts, size, window)


def _groups(
    get: Mapping[str, Any], counts: Counter[tuple[Attention, int]], size: int, window: int | None
) -> tuple[KvLayers, ...]:
    latent, rope = integer(get, "attention.kv_lora_rank"), integer(get, "rope.dimension_count") or 0
    value_size = integer(get, "attention.value_length") or size
    found = []
    for (kind, heads), number in counts.items():
        if kind is Attention.LINEAR:
            state = _state_bytes(get)
            if state is None:
                return ()
            found.append(KvLayers(kind=kind, layers=number, state_bytes=state))
            continue
        key, value = (latent + rope, 0) if latent else (heads * size, heads * value_size)
        width = window if kind is Attention.SLIDING else None
        found.append(KvLayers(kind=kind, layers=number, key_elements=key, value_elements=value, window=width))
    return tuple(found)


def _layers(get: Mapping[str, Any]) -> int | None:
    """Number of layers without the drafting ones; None while unknown."""
    return max(0, (integer(get, "block_count") or 0) - (integer(get, "nextn_predict_layers") or 0)) or None


def _is_linear(get: Mapping[str, Any], index: int, heads: int) -> bool:
    """Whether a layer is linear: by Qwen3-Next's full_attention_interval, else without KV heads but with a state."""
    interval = integer(get, "full_attention_interval")
    if interval:
        return bool((index + 1) % interval)
    return heads == 0 and integer(get, "ssm.state_size") is not None


def _slides(index: int, pattern: object, period: int | None) -> bool:
    if isinstance(pattern, list):
        return index < len(pattern) and bool(pattern[index])
    every = pattern if type(pattern) is int and pattern > 0 else period
    return bool((index + 1) % every) if every else False


def _state_bytes(get: Mapping[str, Any]) -> int | None:
    """State bytes in float32: d_state x d_inner, and d_inner + 2 x groups x d_state channels of (kernel - 1) inputs.

    n_embd_s and n_embd_r of llama-hparams.cpp; Qwen3.6-27B's log agrees: 598.5 MiB for 4 slots of 48 layers.
    """
    found = [integer(get, f"ssm.{key}") for key in ("state_size", "inner_size", "conv_kernel")]
    state, inner, kernel = (item or 0 for item in found)
    groups = integer(get, "ssm.group_count") or 0
    return 4 * (state * inner + (kernel - 1) * (inner + 2 * groups * state)) if all(found) else None


def _per_layer(value: object, layers: int | None) -> list[int]:
    if type(value) is int and layers and layers <= MAX_LAYERS:
        return [value] * layers
    if isinstance(value, list) and layers and len(value) >= layers:
        return [item if type(item) is int and item > 0 else 0 for item in value[:layers]]
    return []


def _most(value: object) -> int | None:
    found = value if isinstance(value, list) else [value]
    return max((item for item in found if type(item) is int and item > 0), default=None)


MAX_ENTRIES = 100_000
"""Limit of metadata entries or tensors; real files have thousands."""
KEPT_ITEMS = 4096
"""Longest array that is kept: arrays with one item per layer are shorter, vocabularies are longer."""
MAX_STRINGS = 4_000_000
"""Limit of the strings of all arrays together: a vocabulary and its merges have 700,000."""
MAX_STRING = 64 * 2**20
MAX_DEPTH = 4
ALIGNMENT = 32

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    30: "BF16", 39: "MXFP4",
}  # fmt: skip
"""Names of ggml_type; an unknown one is shown by its number. Sizes come from the tensors' offsets."""


class GgufHeader(NamedTuple):
    """Content of one file's header."""

    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]


def read_gguf_header(file: Path) -> GgufHeader:
    """Read metadata and tensors of one file. Raises ProfileError: unreadable, no GGUF, malformed or cut off."""
    try:
        with open_regular(file) as opened:
            if opened.seek(0, 2) < 24:
                raise unreadable_weights(f"{file} is no GGUF file: it is too short")
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _Reader(view, file).header()
    except OSError as error:
        raise unreadable_weights(f"{file} cannot be read: {error.strerror}") from None
    except (struct.error, UnicodeDecodeError, _MalformedError):
        raise unreadable_weights(
            f"{file} has a malformed GGUF header, or is cut off", "Download the file again if it was broken off."
        ) from None


class _MalformedError(Exception):
    pass


class _Reader:
    """Sequential reader of one header."""

    def __init__(self, view: mmap.mmap, file: Path) -> None:
        self.view, self.file, self.at = view, file, 0
        self._strings = 0

    def header(self) -> GgufHeader:
        if self.view[:4] != b"GGUF":
            raise unreadable_weights(f"{self.file} is no GGUF file")
        self.at = 4
        (release,) = self.unpack("I")
        if release not in (2, 3):
            raise unreadable_weights(f"{self.file} has GGUF version {release}; 2 and 3 are known")
        tensors, entries = self.unpack("QQ")
        if max(tensors, entries) > MAX_ENTRIES:
            raise _MalformedError
        metadata = {}
        for _ in range(entries):
            key = self.string()
            metadata[key] = self.value(self.unpack("I")[0], MAX_DEPTH)
        return GgufHeader(metadata, self.tensors(tensors, metadata))

    def tensors(self, number: int, metadata: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Read the tensors. Sizes are the distances between offsets, padding included."""
        found = sorted((self.entry() for _ in range(number)), key=lambda entry: entry[0])
        padding = metadata.get("general.alignment", ALIGNMENT)
        if type(padding) is not int or not 0 < padding <= 2**20:
            raise _MalformedError
        room = len(self.view) - -(-self.at // padding) * padding
        ends = [entry[0] for entry in found[1:]] + [room] * bool(found)
        if found and (found[-1][0] > room or any(prod(entry[3]) > 2**60 for entry in found)):
            raise _MalformedError
        return tuple(
            Tensor(name, _TYPES.get(kind, f"type {kind}"), shape, end - offset)
            for (offset, name, kind, shape), end in zip(found, ends, strict=True)
        )

    def entry(self) -> tuple[int, str, int, tuple[int, ...]]:
        name = self.string()
        (dimensions,) = self.unpack("I")
        if dimensions > 8:
            raise _MalformedError
        shape = self.unpack(f"{dimensions}Q")
        kind, offset = self.unpack("IQ")
        return offset, name, kind, shape

    def value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == 0:
            raise _MalformedError
        inner, length = self.unpack("IQ")
        return self.array(inner, length, depth)

    def array(self, inner: int, length: int, depth: int) -> list[Any] | None:
        """Read an array; None for a long one, which is skipped."""
        if length > len(self.view):
            raise _MalformedError
        if length <= KEPT_ITEMS:
            return [self.value(inner, depth - 1) for _ in range(length)]
        if inner in _SCALARS:
            self.skip(struct.calcsize(f"<{_SCALARS[inner]}") * length)
        elif inner == _STRING:
            self._strings += length
            if self._strings > MAX_STRINGS:
                raise _MalformedError
            for _ in range(length):
                self.skip(self.unpack("Q")[0])
        else:
            raise _MalformedError
        return None

    def string(self) -> str:
        (length,) = self.unpack("Q")
        if length > MAX_STRING:
            raise _MalformedError
        begin = self.at
        self.skip(length)
        return self.view[begin : self.at].decode()

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.view):
            raise _MalformedError

    def unpack(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.view, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found
