"""Published models by their configurations and shapes, and folders as they are found on a disk."""

import json
import random
import struct
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog.checkpoint import weights
from sparkdash.catalog.checkpoint.safetensors import BITS, Tensor
from sparkdash.domain.profile import EngineKind, ModelRef, Mount, Profile
from sparkdash.domain.weights import Attention, Unread, WeightFacts
from sparkdash.errors import ProfileError
from sparkdash.units import GIB

F32, Q8_0 = 0, 8
ELEMENT = {F32: 4.0, Q8_0: 34 / 32}

GGUF_QWEN36_27B = {
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
    infos, at = b"", 0
    for name, (kind, shape) in (tensors or {}).items():
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
        at += -(-int(prod(shape) * ELEMENT[kind]) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors or {}), len(metadata))
    head += b"".join(text(key) + value(given) for key, given in metadata.items()) + infos
    return head + bytes(-len(head) % 32 + at)


def test_a_gguf_file_tells_its_shape_and_its_parts(tmp_path: Path) -> None:
    """Weights by what they are for, by type, and counted; the MTP layer is none of the model's own. llama.cpp logged the
    cache of Qwen3.6-27B: 16384 MiB for 262144 cells in 16 layers and 598.5 MiB of float32 states for 4 slots."""
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(GGUF_QWEN36_27B, TENSORS))
    found = weights.read_weight_facts(file)
    assert (found.format, found.architecture, found.layers, found.context) == ("gguf", "qwen35", 64, 262144)
    assert found.bytes.model_dump() == {
        "embedding": 6816, "experts": 8704, "dense": 256, "draft": 8704, "head": 6816, "senses": 0,
    }  # fmt: skip
    assert (found.mtp, found.quantization, found.parameters) == (True, "q8_0", 6400 + 8192 + 64 + 8192 + 6400)
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
    first.write_bytes(gguf(GGUF_QWEN36_27B, {"output.weight": TENSORS["output.weight"]}))
    second.write_bytes(gguf({"split.no": 1}, {"token_embd.weight": TENSORS["token_embd.weight"]}))
    (tmp_path / "mmproj-m.gguf").write_bytes(b"a vision tower")
    for place in (tmp_path, first, second):
        assert weights.read_weight_facts(place).bytes.total == 2 * 6816
    second.unlink()
    with pytest.raises(ProfileError, match="m-00002-of-00002"):
        weights.read_weight_facts(first)
    (tmp_path / "other.gguf").write_bytes(gguf(GGUF_QWEN36_27B))
    with pytest.raises(ProfileError, match="holds 2 GGUF models: m, other"):
        weights.read_weight_facts(tmp_path)


def test_safetensors_go_before_gguf_files_in_one_folder(tmp_path: Path) -> None:
    """A folder that holds both is meant for engines that read folders."""
    (tmp_path / "m.gguf").write_bytes(gguf(GGUF_QWEN36_27B))
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
    small = {key: one for key, one in GGUF_QWEN36_27B.items() if not key.startswith("tokenizer")}
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


Checkpoint = Callable[..., Path]

# The configurations below hold what was read in copies of the published config.json files, and no more.
GPT_OSS_120B: dict[str, Any] = {
    "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "sliding_window": 128, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "vocab_size": 201088, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
QWEN36_27B: dict[str, Any] = {
    "model_type": "qwen3_5",
    "text_config": {
        "dtype": "bfloat16", "head_dim": 256, "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 24,
        "num_key_value_heads": 4, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
        "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
    },
}  # fmt: skip
NEMOTRON_3_NANO: dict[str, Any] = {
    "model_type": "nemotron_h", "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "mamba_num_heads": 64,
    "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "mamba_ssm_cache_dtype": "float32",
    "hidden_size": 2688, "sliding_window": None,
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip

TINY = {
    "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip
TINY_TENSORS = {
    "model.embed_tokens.weight": ("BF16", [1000, 64]),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [64, 64]),
    "model.layers.1.self_attn.q_proj.weight": ("BF16", [64, 64]),
    "model.norm.weight": ("F32", [64]),
}


def tensor(name: str, dtype: str, *shape: int) -> Tensor:
    return Tensor(name, dtype, shape, prod(shape) * BITS[dtype] // 8)


def facts(config: dict[str, Any], *tensors: Tensor) -> WeightFacts:
    return weights.assemble_weight_facts("published", config, {}, tensors)


def gpt_oss() -> Iterator[Tensor]:
    """The tensors of openai/gpt-oss-120b: attention, router and embeddings in BF16, experts in MXFP4 blocks."""
    yield tensor("model.embed_tokens.weight", "BF16", 201088, 2880)
    yield tensor("lm_head.weight", "BF16", 201088, 2880)
    yield tensor("model.norm.weight", "BF16", 2880)
    for number in range(36):
        at = f"model.layers.{number}"
        for name, rows in (("q", 4096), ("k", 512), ("v", 512)):
            yield tensor(f"{at}.self_attn.{name}_proj.weight", "BF16", rows, 2880)
            yield tensor(f"{at}.self_attn.{name}_proj.bias", "BF16", rows)
        yield tensor(f"{at}.self_attn.o_proj.weight", "BF16", 2880, 4096)
        yield tensor(f"{at}.self_attn.o_proj.bias", "BF16", 2880)
        yield tensor(f"{at}.self_attn.sinks", "BF16", 64)
        yield tensor(f"{at}.mlp.router.weight", "BF16", 128, 2880)
        yield tensor(f"{at}.mlp.router.bias", "BF16", 128)
        for name in ("input", "post_attention"):
            yield tensor(f"{at}.{name}_layernorm.weight", "BF16", 2880)
        for name, rows in (("gate_up", 5760), ("down", 2880)):
            yield tensor(f"{at}.mlp.experts.{name}_proj_blocks", "U8", 128, rows, 90, 16)
            yield tensor(f"{at}.mlp.experts.{name}_proj_scales", "U8", 128, rows, 90)
            yield tensor(f"{at}.mlp.experts.{name}_proj_bias", "BF16", 128, rows)


def test_gpt_oss_120b_is_as_its_model_card_says() -> None:
    """116.83 B parameters, a checkpoint of 60.8 GiB; 5.00 GB a token with attention and head in BF16."""
    found = facts(GPT_OSS_120B, *gpt_oss())
    assert found.parameters is not None
    assert round(found.parameters / 1e9, 2) == 116.83
    assert round(found.bytes.total / GIB, 1) == 60.8
    assert (found.quantization, found.experts, found.active_experts) == ("mxfp4", 128, 4)
    active = found.active_bytes()
    assert active is not None
    assert round(active / 1e9, 2) == 5.00


def test_gpt_oss_120b_keeps_half_of_its_layers_windowed() -> None:
    """18 layers of 2 x 8 x 64 elements each; beyond 128 tokens only the other 18 grow."""
    found = facts(GPT_OSS_120B)
    assert {layers.kind: (layers.layers, layers.window) for layers in found.kv} == {
        Attention.SLIDING: (18, 128), Attention.FULL: (18, None),
    }  # fmt: skip
    assert found.kv_bytes_per_token(8) == 18 * 1024
    assert found.kv_bytes(131072, 1, 8) == 18 * 1024 * (131072 + 128)


def test_the_gated_deltanet_of_qwen36_27b_is_what_llamacpp_logged() -> None:
    """16384 MiB for 262144 cells of 16 layers; 3 MiB and the convolution's inputs for each of the other 48."""
    found = facts(QWEN36_27B)
    full, linear = sorted(found.kv, key=lambda layers: layers.layers)
    assert (full.kind, full.layers, linear.kind, linear.layers) == (Attention.FULL, 16, Attention.LINEAR, 48)
    assert full.bytes(262144, 1, 16, 16) == 16384 * 2**20
    assert linear.state_bytes == 3 * 2**20 + 10240 * 3 * 2
    assert found.hybrid


def test_nemotron_3_nano_keeps_six_layers_and_23_states() -> None:
    """By the letters of its pattern; the experts' layers keep nothing."""
    found = facts(NEMOTRON_3_NANO)
    assert {layers.kind: layers.layers for layers in found.kv} == {Attention.LINEAR: 23, Attention.FULL: 6}
    assert found.kv_bytes_per_token() == 6 * 2 * 2 * 128 * 2
    states = next(layers.state_bytes for layers in found.kv if layers.kind is Attention.LINEAR)
    assert states == 64 * 64 * 128 * 4 + (4096 + 2 * 8 * 128) * 3 * 2


def test_mla_keeps_one_latent() -> None:
    """DeepSeek-V3: 61 layers of 576 elements, 70272 bytes a token; layer 61 drafts and is none of them."""
    found = facts(
        DEEPSEEK_V3,
        tensor("model.layers.60.mlp.shared_experts.up_proj.weight", "BF16", 8, 8),
        tensor("model.layers.61.mlp.experts.0.up_proj.weight", "BF16", 8, 8),
    )
    assert found.kv_bytes_per_token() == 70272
    assert (found.bytes.draft, found.bytes.dense, found.mtp) == (128, 128, True)


@pytest.mark.parametrize(("change", "why"), [
    ({"layer_types": ["full_attention", "lightning"]}, "a kind of layer that is not known"),
    ({"layer_types": ["full_attention"]}, "too few layers"),
    ({"sliding_window": 128, "model_type": "odd"}, "which layers slide is not told"),
    ({"index_head_dim": 128}, "an indexer keeps more"),
    ({"mamba_d_state": 16}, "which layers are Mamba is not told"),
    ({"num_hidden_layers": None}, "no layers"),
    ({"num_hidden_layers": True}, "no number"),
    ({"num_key_value_heads": -1, "num_attention_heads": "8"}, "no heads"),
], ids=lambda item: item if isinstance(item, str) else "")  # fmt: skip
def test_what_is_not_understood_leaves_the_cache_unknown(change: dict[str, Any], why: str) -> None:
    found = facts(TINY | change)
    assert (found.kv, found.kv_bytes(1000), found.kv_bytes_per_token()) == ((), None, None)


def test_windows_hold_where_the_configuration_says_so() -> None:
    """Mistral's everywhere, Gemma 3's in five of six, Qwen2's not at all while it is switched off; Gemma 3n's last layers share."""
    window = {"sliding_window": 128}
    for change, full, sliding in (
        (window | {"model_type": "mistral"}, 0, 2),
        (window | {"use_sliding_window": False}, 2, 0),
        (window | {"num_hidden_layers": 12, "sliding_window_pattern": 6}, 2, 10),
        ({"num_kv_shared_layers": 1}, 1, 0),
    ):
        kept = {layers.kind: layers.layers for layers in facts(TINY | change).kv}
        assert kept == {
            kind: number for kind, number in ((Attention.FULL, full), (Attention.SLIDING, sliding)) if number
        }


def test_a_window_holds_the_tokens_of_a_step_beside_its_own() -> None:
    """vLLM 0.32 told 91.72 requests of 32768 tokens in 1 GiB for these layers, with steps of 2048 tokens."""
    gemma = {
        "num_hidden_layers": 12, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
    }  # fmt: skip
    one = facts(TINY | gemma).kv_bytes(32768, 1, step=2048)
    assert one is not None
    assert 2**30 / one == pytest.approx(91.72, rel=0.005)


def test_a_hybrid_needs_little_more_in_a_real_engine() -> None:
    """vLLM 0.32 told 61.13 requests of 32768 tokens in 1 GiB: it pads states to the size of a block (4 % in all)."""
    hybrid = {
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_num_key_heads": 4,
        "linear_num_value_heads": 8, "linear_value_head_dim": 32,
    }  # fmt: skip
    one = facts({"text_config": TINY | hybrid}).kv_bytes(32768, 1)
    assert one is not None
    assert 1 < 2**30 / one / 61.13 < 1.05


@pytest.mark.parametrize(("given", "sidecar", "expected"), [
    ({"quant_method": "mxfp4"}, {}, ("mxfp4", None)),
    ({"quant_method": "gptq", "bits": 4}, {}, ("gptq int4", None)),
    ({"quant_method": "fp8"}, {}, ("fp8", None)),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {}, ("nvfp4", "fp8")),
    (None, {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, ("nvfp4", "fp8")),
    ({"quant_method": "compressed-tensors", "config_groups": {
        "a": {"weights": {"num_bits": 8, "type": "float"}}, "b": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }}, {}, ("nvfp4 + fp8", None)),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": 1}}, {}, ("compressed-tensors", None)),
    (None, {}, (None, None)),
    ("nonsense", {"quantization": []}, (None, None)),
], ids=str)  # fmt: skip
def test_quantization_is_read_wherever_it_stands(
    given: object, sidecar: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    """In config.json, or beside it as ModelOpt's older exports have it."""
    found = weights.assemble_weight_facts("x", TINY | {"quantization_config": given}, sidecar, [])
    assert (found.quantization, found.kv_dtype) == expected


def test_packed_weights_count_singly() -> None:
    """Eight int4 in an I32, two in a U8; scales are no weights."""
    packed = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    found = facts(
        TINY | packed,
        tensor("model.layers.0.q.qweight", "I32", 8, 64),
        tensor("model.layers.0.q.scales", "BF16", 4, 64),
        tensor("model.layers.0.q.qzeros", "I32", 4, 8),
    )
    assert found.parameters == 64 * 64
    nvfp4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    assert facts(TINY | nvfp4, tensor("model.layers.0.q.weight", "U8", 64, 32)).parameters == 64 * 64


def test_parts_are_told_by_their_names() -> None:
    """Vision towers, MTP layers, experts and the head, under the prefixes that multimodal models give them."""
    found = facts(
        TINY,
        tensor("model.visual.blocks.0.attn.qkv.weight", "BF16", 1, 1),
        tensor("mtp.layers.0.mlp.experts.0.up_proj.weight", "BF16", 2, 1),
        tensor("model.language_model.layers.0.mlp.experts.3.up_proj.weight", "BF16", 4, 1),
        tensor("model.language_model.layers.0.mlp.shared_expert.up_proj.weight", "BF16", 8, 1),
        tensor("model.language_model.embed_tokens.weight", "BF16", 16, 1),
        tensor("lm_head.weight", "BF16", 32, 1),
    )
    assert found.bytes.model_dump() == {
        "senses": 2, "draft": 4, "experts": 8, "dense": 16, "embedding": 32, "head": 64,
    }  # fmt: skip
    assert found.sees
    assert not facts(TINY, tensor("audio_tower.conv1.weight", "BF16", 2, 1)).sees
    assert found.active_bytes() is None, "which share of the experts a token uses is not told"


def test_a_folder_is_read_from_its_headers_alone(checkpoint: Checkpoint) -> None:
    """A tied embedding is read whole as the head; nothing beyond the header is there to be read."""
    found = weights.read_weight_facts(checkpoint(TINY_TENSORS, TINY))
    assert found.bytes.model_dump() == {
        "dense": 2 * 64 * 64 * 2 + 64 * 4, "embedding": 128000, "experts": 0, "head": 0, "draft": 0, "senses": 0,
    }  # fmt: skip
    assert found.active_bytes() == found.bytes.total
    assert (found.parameters, found.dtype, found.context) == (64000 + 8192 + 64, "bfloat16", 2048)
    assert found.kv_bytes_per_token() == 2 * 2 * 2 * 16 * 2


def test_a_changed_folder_is_read_again(checkpoint: Checkpoint) -> None:
    """The same files give the same value, others a new one."""
    folder = checkpoint(TINY_TENSORS, TINY)
    first = weights.read_weight_facts(folder)
    assert weights.read_weight_facts(folder) is first
    checkpoint(TINY_TENSORS | {"lm_head.weight": ("BF16", [1000, 64])}, TINY)
    assert weights.read_weight_facts(folder).bytes.head == 128000


def test_shards_are_those_of_the_index(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Another copy beside them does not count; a missing one is told."""
    folder = checkpoint(TINY_TENSORS, TINY)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    more = checkpoint({"lm_head.weight": ("BF16", [1000, 64])}, TINY, tmp_path / "more") / "model.safetensors"
    more.rename(folder / "model-00002-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "consolidated.safetensors").write_bytes(b"another copy")
    assert weights.read_weight_facts(folder).bytes.head == 128000
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        ProfileError, match=r"incomplete: 1 of 2 files are not there, model-00002-of-00002\.safetensors"
    ):
        weights.read_weight_facts(folder)


def entry(**changes: Any) -> bytes:
    fields = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]} | changes
    return json.dumps({"w": fields}).encode()


@pytest.mark.parametrize("content", [
    b"", b"short", (10**9).to_bytes(8, "little") + b"{}", (2**64 - 1).to_bytes(8, "little") + b"{}",
    (2).to_bytes(8, "little") + b"[]", (2).to_bytes(8, "little") + b"{x", (1).to_bytes(8, "little") + b"\xff",
    *((len(text)).to_bytes(8, "little") + text + bytes(8) for text in (
        b"[" * 100_000, b'{"w": 1}', b'{"w": {}}', entry(dtype=5), entry(shape=[-1, 4]), entry(shape=[True, 4]),
        entry(shape="ab"), entry(data_offsets=[0]), entry(data_offsets=[8, 0]), entry(data_offsets=[0, 9]),
        entry(data_offsets=[0, 6]), entry(data_offsets=[0, 1e400]), entry(shape=[10**30]), b'{"w": ' + b"9" * 5000 + b"}",
    )),
], ids=lambda content: str(content[:40]))  # fmt: skip
def test_a_malformed_header_is_an_error_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    """Cut off, lying about its length, no JSON, or contradicting itself."""
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ProfileError, match=r"model\.safetensors") as error:
        weights.read_weight_facts(tmp_path)
    assert error.value.code == "weights_unreadable"


@pytest.mark.parametrize(("files", "told"), [
    ({}, "config.json cannot be read"),
    ({"config.json": "[]"}, "holds no JSON object"),
    ({"config.json": "{"}, "does not hold valid JSON"),
    ({"config.json": "{}"}, "holds no safetensors files"),
    ({"config.json": "{}", "model.safetensors.index.json": "{}"}, "no weight_map"),
    ({"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"w": "../x"}}'}, "no plain file name"),
], ids=str)  # fmt: skip
def test_a_folder_that_is_no_model_says_what_it_lacks(files: dict[str, str], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(ProfileError, match=told):
        weights.read_weight_facts(folder)


def snapshot(home: Path, repository: str, commit: str = "c0ffee") -> Path:
    """A place in the hub's cache, with `main` naming the commit."""
    folder = home / "hub" / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    return folder / "snapshots" / commit


def test_a_model_is_found_in_the_cache_or_behind_a_mount(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """By its id and revision; a path of the container through the profile's mounts; what is not here is Unread."""
    cached = checkpoint(TINY_TENSORS, TINY, snapshot(tmp_path / "hf", "org/tiny"))
    here = checkpoint(TINY_TENSORS, TINY, tmp_path / "models" / "tiny")
    profile = Profile(
        name="p", engine=EngineKind.VLLM, mounts=(Mount(source=str(tmp_path / "models"), target="/models"),),
        models={
            "target": ModelRef(path="/models/tiny"), "cached": ModelRef(hf="org/tiny"),
            "pinned": ModelRef(hf="org/tiny", revision="c0ffee"), "old": ModelRef(hf="org/tiny", revision="gone"),
            "absent": ModelRef(path="/nowhere/x"), "odd": ModelRef(hf="../../etc"),
        },
    )  # fmt: skip
    found = weights.read_profile_weights(profile, tmp_path / "hf")
    assert [one.origin for one in found.values() if isinstance(one, WeightFacts)] == [
        str(here), str(cached), str(cached),
    ]  # fmt: skip
    assert [one.reason for one in found.values() if isinstance(one, Unread)] == [
        f"org/tiny at gone is not in the cache at {tmp_path / 'hf'}. `sparkdash pull` fetches it.",
        "/nowhere/x is not on this box.",
        f"../../etc is not in the cache at {tmp_path / 'hf'}. `sparkdash pull` fetches it.",
    ]


ODD: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 3, 10**30, 1.5, "", "x", "\ud800\x1b[31m", [], {}, ["full_attention"], [1, None],
    {"text_config": {}}, {"weights": {"num_bits": 4}}, {"a": {"weights": 1}}, {"quant_method": ["gptq"], "bits": -4},
)  # fmt: skip


def test_odd_configurations_never_crash_and_can_always_be_shown() -> None:
    """2000 published configurations with a few values replaced by others of any type."""
    chance = random.Random(7)
    extra = ["quantization_config", "layers_block_type", "kv_cache_scheme", "quant_method", "config_groups", "dtype"]
    for _ in range(2000):
        base = chance.choice([GPT_OSS_120B, QWEN36_27B, NEMOTRON_3_NANO, DEEPSEEK_V3])
        config = json.loads(json.dumps(base))
        inner = config.get("text_config", config)
        for key in chance.sample([*inner, *extra], 3):
            chance.choice((inner, config))[key] = chance.choice(ODD)
        sidecar = {"quantization": chance.choice(ODD)}
        found = weights.assemble_weight_facts("x", config, sidecar, [tensor(f"layers.{'9' * 5000}.w", "BF16", 2, 2)])
        assert WeightFacts.model_validate_json(found.model_dump_json()) == found
        size = found.kv_bytes(1000, 2)
        assert size is None or size >= 0
