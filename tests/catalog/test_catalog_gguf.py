"""GGUF headers, written by hand after the format's description."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog.checkpoint import weights
from sparkdash.domain.weights import Attention
from sparkdash.errors import ProfileError

F32, Q8_0 = 0, 8
ELEMENT = {F32: 4.0, Q8_0: 34 / 32}

QWEN36_27B = {
    "general.architecture": "qwen35", "qwen35.block_count": 65, "qwen35.nextn_predict_layers": 1, "qwen35.context_length": 262144,
    "qwen35.embedding_length": 5120, "qwen35.attention.head_count": 24, "qwen35.attention.head_count_kv": 4,
    "qwen35.attention.key_length": 256, "qwen35.attention.value_length": 256, "qwen35.full_attention_interval": 4,
    "qwen35.ssm.state_size": 128, "qwen35.ssm.inner_size": 6144, "qwen35.ssm.group_count": 16, "qwen35.ssm.conv_kernel": 4,
    "tokenizer.ggml.tokens": ["x"] * 5000, "tokenizer.ggml.scores": [0.5] * 5000, "general.quantized": True,
}  # fmt: skip
TENSORS = {
    "token_embd.weight": (Q8_0, (64, 100)),
    "blk.0.ffn_gate_exps.weight": (Q8_0, (64, 32, 4)),
    "blk.0.attn_norm.weight": (F32, (64,)),
    "blk.64.nextn.eh_proj.weight": (Q8_0, (128, 64)),
    "output.weight": (Q8_0, (64, 100)),
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def value(given: Any) -> bytes:
    match given:
        case bool():
            return struct.pack("<I?", 7, given)
        case int():
            return struct.pack("<II", 4, given)
        case float():
            return struct.pack("<If", 6, given)
        case str():
            return struct.pack("<I", 8) + text(given)
        case list():
            kind = value(given[0])[:4]
            return (
                struct.pack("<I", 9) + kind + struct.pack("<Q", len(given)) + b"".join(value(one)[4:] for one in given)
            )
    raise TypeError(given)


def gguf(metadata: dict[str, Any], tensors: dict[str, tuple[int, tuple[int, ...]]] | None = None) -> bytes:
    """A whole file; the weights are zeros."""
    infos, at = b"", 0
    for name, (kind, shape) in (tensors or {}).items():
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
        size = int(ELEMENT[kind])
        for side in shape:
            size = size * side
        at += -(-int(size * (ELEMENT[kind] / max(1, int(ELEMENT[kind])))) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors or {}), len(metadata))
    head += b"".join(text(key) + value(given) for key, given in metadata.items()) + infos
    return head + bytes(-len(head) % 32 + at)


def test_a_gguf_file_tells_its_shape_and_its_parts(tmp_path: Path) -> None:
    """Weights by what they are for, by type, and counted; the MTP layer is none of the model's own."""
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(QWEN36_27B, TENSORS))
    found = weights.read_weight_facts(file)
    assert (found.format, found.architecture, found.layers, found.context) == ("gguf", "qwen35", 64, 262144)
    assert found.bytes.model_dump() == {
        "embedding": 6816, "experts": 8704, "dense": 256, "draft": 8704, "head": 6816, "senses": 0,
    }  # fmt: skip
    assert (found.mtp, found.quantization, found.parameters) == (True, "q8_0", 6400 + 8192 + 64 + 8192 + 6400)
    assert found.bytes_by_dtype == {"Q8_0": 31040, "F32": 256}


def test_the_cache_of_qwen36_27b_is_what_llamacpp_logged(tmp_path: Path) -> None:
    """16384 MiB for 262144 cells in 16 layers and 598.5 MiB of float32 states for 4 slots."""
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(QWEN36_27B))
    found = weights.read_weight_facts(file)
    assert found.kv_bytes(262144, 4) == int((16384 + 598.5) * 2**20)


def test_kv_heads_may_differ_by_layer_and_windows_alternate(tmp_path: Path) -> None:
    """A list of heads, a list of windowed layers, and gpt-oss's fixed alternation."""
    base: dict[str, Any] = {
        "general.architecture": "a", "a.block_count": 4, "a.attention.head_count": 8, "a.embedding_length": 512,
        "a.attention.head_count_kv": [8, 2, 2, 8], "a.attention.sliding_window": 128,
    }  # fmt: skip
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(base | {"a.attention.sliding_window_pattern": [True, False, True, False]}))
    kept = {(layers.kind, layers.key_elements): layers.layers for layers in weights.read_weight_facts(file).kv}
    assert kept == {
        (Attention.SLIDING, 512): 1, (Attention.FULL, 128): 1, (Attention.SLIDING, 128): 1, (Attention.FULL, 512): 1,
    }  # fmt: skip
    renamed = {key.replace("a.", "gpt-oss.", 1) if key.startswith("a.") else key: one for key, one in base.items()}
    file.write_bytes(gguf(renamed | {"general.architecture": "gpt-oss", "gpt-oss.attention.head_count_kv": 2}))
    assert {layers.kind: layers.layers for layers in weights.read_weight_facts(file).kv} == {
        Attention.SLIDING: 2,
        Attention.FULL: 2,
    }


def test_a_split_model_is_read_whole_and_never_in_part(tmp_path: Path) -> None:
    """Any of its files names it; a missing one is told, and so are two models in one folder."""
    first, second = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    first.write_bytes(gguf(QWEN36_27B, {"output.weight": TENSORS["output.weight"]}))
    second.write_bytes(gguf({"split.no": 1}, {"token_embd.weight": TENSORS["token_embd.weight"]}))
    (tmp_path / "mmproj-m.gguf").write_bytes(b"a vision tower")
    for place in (tmp_path, first, second):
        assert weights.read_weight_facts(place).bytes.total == 2 * 6816
    second.unlink()
    with pytest.raises(ProfileError, match="m-00002-of-00002"):
        weights.read_weight_facts(first)
    (tmp_path / "other.gguf").write_bytes(gguf(QWEN36_27B))
    with pytest.raises(ProfileError, match="holds 2 GGUF models: m, other"):
        weights.read_weight_facts(tmp_path)


def test_safetensors_go_before_gguf_files_in_one_folder(tmp_path: Path) -> None:
    """A folder that holds both is meant for engines that read folders."""
    (tmp_path / "m.gguf").write_bytes(gguf(QWEN36_27B))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert weights.read_weight_facts(tmp_path).format == "safetensors"
    assert weights.read_weight_facts(tmp_path / "m.gguf").format == "gguf"


@pytest.mark.parametrize("content", [
    b"", b"GGUF", b"GGML" + bytes(40), b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63),
    gguf({"a": "b"}).replace(b"\x08\x00\x00\x00", b"\x63\x00\x00\x00"), gguf({"general.alignment": 0}),
    gguf({}, TENSORS)[:300], gguf({"a": [[[[[1]]]]]}),
], ids=lambda content: str(content[:30]))  # fmt: skip
def test_a_malformed_file_is_an_error_that_names_it(content: bytes, tmp_path: Path) -> None:
    """Cut off, lying about its lengths, or no GGUF at all."""
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ProfileError, match=r"m\.gguf"):
        weights.read_weight_facts(tmp_path / "m.gguf")


def test_mangled_headers_never_crash(tmp_path: Path) -> None:
    """400 files with a few bytes changed: facts or a clear error."""
    small = {key: one for key, one in QWEN36_27B.items() if not key.startswith("tokenizer")}
    good, chance, file = gguf(small, TENSORS), random.Random(1), tmp_path / "m.gguf"
    outcomes = set()
    for _ in range(400):
        mangled = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            mangled[chance.randrange(1200)] = chance.choice((0, 1, 9, 127, 255))
        file.write_bytes(mangled)
        weights._read.cache_clear()
        try:
            outcomes.add(type(weights.read_weight_facts(file)).__name__)
        except ProfileError as error:
            outcomes.add(error.code)
    assert outcomes == {"WeightFacts", "weights_unreadable"}
