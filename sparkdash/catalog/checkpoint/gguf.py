"""Facts of GGUF files by the metadata of their headers (gguf-py's keys). Every malformed header is a ProfileError."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkdash.catalog.checkpoint import model, on_disk
from sparkdash.catalog.checkpoint.model import MAX_LAYERS, integer, word
from sparkdash.catalog.checkpoint.on_disk import GgufHeader, MalformedHeaderError
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
    return WeightFacts(
        origin=origin,
        format="gguf",
        architecture=name or None,
        bytes=parts,
        parameters=model.count_parameters(tensors, None),
        layers=layers,
        hidden=hidden,
        kv=_kv(get, name, kv_heads, size) if layers else (),
        experts=integer(get, "expert_count"),
        active_experts=integer(get, "expert_used_count"),
        tied_head=not parts.head,
        context=integer(get, "context_length"),
        quantization=next(iter(model.by_dtype(tensors)), "").lower() or None,
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


def read_gguf_header(file: Path) -> tuple[Mapping[str, Any], list[Tensor]]:
    """Read metadata and tensors of one file. Raises ProfileError: unreadable, no GGUF, malformed or cut off."""
    try:
        with open_regular(file) as opened:
            header = on_disk.read_gguf(opened)
            return header.metadata, _tensors(header, opened.seek(0, 2))
    except OSError as error:
        raise unreadable_weights(f"{file} cannot be read: {error.strerror}") from None
    except MalformedHeaderError as error:
        raise unreadable_weights(f"{file} {error}", "Download the file again if it was broken off.") from None


def _tensors(header: GgufHeader, size: int) -> list[Tensor]:
    """Tensors with their sizes: the distances between offsets, padding included."""
    found, room = header.tensors, size - header.begin
    ends = [entry.offset for entry in found[1:]] + [room] * bool(found)
    if found and found[-1].offset > room:
        raise MalformedHeaderError
    return [
        Tensor(entry.name, on_disk.gguf_type(entry.kind), entry.shape, end - entry.offset)
        for entry, end in zip(found, ends, strict=True)
    ]
