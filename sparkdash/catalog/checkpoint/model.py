"""Facts of a checkpoint's model: layers and their KV cache, quantization, and the purpose of each tensor. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from sparkdash.catalog.checkpoint.safetensors import BITS, Tensor
from sparkdash.domain.weights import Attention, KvLayers, WeightBytes

Config = Mapping[str, Any]

MAX_LAYERS = 10_000
MAX_WORD = 60

_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which multimodal models keep the language model's own configuration."""
_OTHER_CACHES = ("index_head_dim", "compress_ratios", "global_head_dim", "linear_attn_config", "attn_layer_period")
"""Keys of caches and layer schedules that are not understood: indexer, compressed caches, unequal heads."""
_NAMES = {
    "full_attention": Attention.FULL, "attention": Attention.FULL, "sliding_attention": Attention.SLIDING,
    "chunked_attention": Attention.SLIDING, "linear_attention": Attention.LINEAR, "mamba": Attention.LINEAR,
    "mlp": None, "moe": None,
}  # fmt: skip
_LETTERS = {"*": Attention.FULL, "M": Attention.LINEAR, "-": None, "E": None}
"""Letters of Nemotron-H's hybrid_override_pattern."""
_ALL_SLIDING = ("mistral", "mixtral", "phi3", "starcoder2")
"""Models whose `sliding_window` holds for every layer."""


def text_config(config: Config) -> Config:
    found: Config | None = config
    while found is not None:
        config = found
        found = next((inner for key in _INNER if isinstance(inner := config.get(key), dict)), None)
    return config


def word(value: object) -> str | None:
    """Return a name from a file; None for text unfit to be shown."""
    return value if isinstance(value, str) and len(value) <= MAX_WORD and value.isprintable() else None


def integer(config: Config, *keys: str) -> int | None:
    """Return the first of these keys with a positive integer."""
    return next((value for key in keys if type(value := config.get(key)) is int and value > 0), None)


def layers(config: Config) -> int | None:
    found = integer(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    return found if found and found <= MAX_LAYERS else None


def head_dim(config: Config) -> int | None:
    """Head size: declared, or hidden size / heads."""
    if given := integer(config, "head_dim", "attention_head_dim"):
        return given
    hidden, heads = integer(config, "hidden_size", "n_embd"), heads_of(config)
    return hidden // heads if hidden and heads else None


def heads_of(config: Config) -> int | None:
    return integer(config, "num_attention_heads", "n_head")


def kv_heads(config: Config) -> int | None:
    """Number of KV heads; the number of query heads when undeclared (no grouped queries)."""
    return integer(config, "num_key_value_heads", "n_head_kv") or heads_of(config)


def experts(config: Config) -> int | None:
    return integer(config, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def active_experts(config: Config) -> int | None:
    return integer(config, "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k", "moe_topk")


def kv_layers(config: Config) -> tuple[KvLayers, ...]:
    """Group the layers by KV geometry; empty when unknown."""
    kinds = _kinds(config)
    if kinds is None or any(config.get(key) for key in _OTHER_CACHES):
        return ()
    found = [_kept(config, kind, number) for kind, number in Counter(kinds).items()]
    known = [kept for kept in found if kept is not None]
    return tuple(known) if len(known) == len(found) else ()


def _kept(config: Config, kind: Attention, number: int) -> KvLayers | None:
    if kind is Attention.LINEAR:
        state = _state_bytes(config)
        return KvLayers(kind=kind, layers=number, state_bytes=state) if state else None
    window = integer(config, "sliding_window", "attention_chunk_size") if kind is Attention.SLIDING else None
    if kind is Attention.SLIDING and window is None:
        return None
    key, value = _elements(config)
    return KvLayers(kind=kind, layers=number, key_elements=key, value_elements=value, window=window) if key else None


def _elements(config: Config) -> tuple[int, int]:
    """Return the elements of a token's key and value in one layer.

    MLA keeps one latent of kv_lora_rank + qk_rope_head_dim for both (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    """
    rank, rope = integer(config, "kv_lora_rank"), integer(config, "qk_rope_head_dim")
    if rank:
        return (rank + rope, 0) if rope else (0, 0)
    heads, size = kv_heads(config), head_dim(config)
    if not heads or not size:
        return 0, 0
    return heads * size, heads * (integer(config, "v_head_dim") or size)


def _kinds(config: Config) -> list[Attention] | None:
    number = layers(config)
    if number is None:
        return None
    found = _listed(config, number)
    if found is None:
        return None
    shared = integer(config, "num_kv_shared_layers") or 0  # the last ones use the caches of those before (Gemma 3n)
    return [kind for kind in found[: max(0, number - shared)] if kind is not None]


def _listed(config: Config, number: int) -> list[Attention | None] | None:
    types = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(types, list):
        return _by_name(types[:number], _NAMES) if len(types) >= number else None
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return _by_name(list(pattern), _LETTERS) if len(pattern) == number else None
    if integer(config, "linear_num_value_heads"):
        return _every(integer(config, "full_attention_interval"), number, Attention.LINEAR)
    if any(key.startswith(("mamba_", "ssm_")) for key in config):
        return None
    return _windows(config, number)


def _by_name(names: list[Any], kinds: Mapping[str, Attention | None]) -> list[Attention | None] | None:
    known = all(isinstance(name, str) and name in kinds for name in names)
    return [kinds[name] for name in names] if known else None


def _windows(config: Config, number: int) -> list[Attention | None] | None:
    if not integer(config, "sliding_window") or config.get("use_sliding_window") is False:
        return [Attention.FULL] * number
    if config.get("model_type") in _ALL_SLIDING:
        return [Attention.SLIDING] * number
    return _every(integer(config, "sliding_window_pattern"), number, Attention.SLIDING)


def _every(interval: int | None, number: int, others: Attention) -> list[Attention | None] | None:
    """Schedule in which every interval-th layer is full: Qwen3-Next's full_attention_interval, Gemma 3's pattern."""
    if interval is None:
        return None
    return [others if (index + 1) % interval else Attention.FULL for index in range(number)]


def _state_bytes(config: Config) -> int | None:
    """Return the state bytes of one linear layer per sequence: the recurrent state and a convolution's last inputs.

    Shapes as in vLLM's MambaStateShapeCalculator (model_executor/layers/mamba/mamba_utils.py): Gated DeltaNet keeps
    value heads x value size x key size, Mamba2 heads x head size x state size. All have 16 bits, but for a recurrent
    state that the config wants in float32.
    """
    inner = _deltanet(config) or _mamba2(config)
    if inner is None:
        return None
    recurrent, width, kernel = inner
    single = "float32" in (config.get("mamba_ssm_dtype"), config.get("mamba_ssm_cache_dtype"))
    return recurrent * (4 if single else 2) + width * (kernel - 1) * 2


def _deltanet(config: Config) -> tuple[int, int, int] | None:
    """Return the elements of the recurrent state, the channels of the convolution, and its kernel."""
    names = ("num_value_heads", "value_head_dim", "num_key_heads", "key_head_dim", "conv_kernel_dim")
    found = [integer(config, f"linear_{name}") for name in names]
    values, value_size, keys, key_size, kernel = (item or 0 for item in found)
    if not all(found):
        return None
    return values * value_size * key_size, 2 * keys * key_size + values * value_size, kernel


def _mamba2(config: Config) -> tuple[int, int, int] | None:
    found = (
        integer(config, "mamba_num_heads", "mamba_n_heads"),
        integer(config, "mamba_head_dim", "mamba_d_head"),
        integer(config, "ssm_state_size", "mamba_d_state"),
        integer(config, "n_groups", "mamba_n_groups"),
        integer(config, "conv_kernel", "mamba_d_conv"),
    )
    heads, size, state, groups, kernel = (item or 0 for item in found)
    return (heads * size * state, heads * size + 2 * groups * state, kernel) if all(found) else None


class Quantization(NamedTuple):
    """Quantization of the weights and KV cache. All None: unquantized, or undeclared."""

    name: str | None = None
    """nvfp4, mxfp4, fp8, gptq int4, …"""
    bits: int | None = None
    """Bits of a packed weight."""
    kv_dtype: str | None = None
    """fp8 where the checkpoint requests an fp8 KV cache."""


_BITS = {"nvfp4": 4, "mxfp4": 4, "fp8": 8, "mxfp8": 8}


def quantization(config: Mapping[str, Any], sidecar: Mapping[str, Any]) -> Quantization:
    """Read the quantization from config.json, else from ModelOpt's hf_quant_config.json (older exports)."""
    inside, in_sidecar = config.get("quantization_config"), sidecar.get("quantization")
    given = inside if isinstance(inside, dict) else in_sidecar if isinstance(in_sidecar, dict) else {}
    extra = in_sidecar if isinstance(in_sidecar, dict) else {}
    method = (word(given.get("quant_method")) or ("modelopt" if given.get("quant_algo") else "")).lower()
    if not method:
        return Quantization()
    name, bits = _named(method, given, extra)
    return Quantization(name, bits, _kv_dtype(given) or _kv_dtype(extra))


def _named(method: str, given: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[str, int | None]:
    if method == "compressed-tensors":
        return _compressed(given)
    if method.startswith("modelopt"):
        name = (word(given.get("quant_algo")) or word(extra.get("quant_algo")) or method).lower()
        return name, next((bits for word, bits in _BITS.items() if word in name), None)
    if method in _BITS:
        return method, _BITS[method]
    bits = integer(given, "bits", "w_bit")
    return (f"{method} int{bits}", bits) if bits else (method, None)


def _compressed(given: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return name and bits of the groups; among several, the type with the fewest bits comes first."""
    groups = given.get("config_groups")
    found = [_group(group) for group in (groups.values() if isinstance(groups, dict) else ())]
    known = sorted({item for item in found if item is not None}, key=lambda item: (item[1], item[0]))
    return (" + ".join(name for name, _ in known), known[0][1]) if known else ("compressed-tensors", None)


def _group(group: object) -> tuple[str, int] | None:
    weights = group.get("weights") if isinstance(group, dict) else None
    bits = integer(weights, "num_bits") if isinstance(weights, dict) else None
    if not isinstance(weights, dict) or not bits:
        return None
    if weights.get("type") == "int":
        return f"int{bits}", bits
    if bits == 4:
        return ("mxfp4" if weights.get("group_size") == 32 else "nvfp4"), 4
    return f"fp{bits}", bits


def _kv_dtype(given: Mapping[str, Any]) -> str | None:
    """Return ModelOpt's kv_cache_quant_algo, or compressed-tensors' kv_cache_scheme."""
    algorithm, scheme = word(given.get("kv_cache_quant_algo")), given.get("kv_cache_scheme")
    if algorithm:
        return algorithm.lower()
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type") == "float" else "int8"
    return None


_SENSES = re.compile(
    r"(^|\.)(visual|vision\w*|audio\w*|multi_modal_projector|mm_projector|embed_(vision|audio)|sound\w*)\."
)
_EYES = re.compile(r"(^|\.)(visual|vision\w*|embed_vision)\.")
_DRAFT = re.compile(r"(^|\.)(mtp(_\w+)?|nextn)\.")
_LAYER = re.compile(r"(^|\.)(layers|blk)\.(\d{1,6})\.")
_EXPERTS = re.compile(r"(^|\.)experts\.|_exps\.")
_HEAD = re.compile(r"(^|\.)lm_head\.|^output\.weight$|^embed_out\.")
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings|embeddings|token_embd)\.")
_SCALES = re.compile(r"(scales?|scale_2|scale_inv|qzeros|zero_point|g_idx|weight_shape)$")
_PACKED = re.compile(r"(qweight|weight_packed|_blocks)$")
"""Names of packed tensors, whatever their dtype says (GPTQ and AWQ; compressed-tensors; MXFP4)."""


def bytes_by_purpose(tensors: Iterable[Tensor], layers: int | None) -> WeightBytes:
    sums: Counter[str] = Counter()
    for tensor in tensors:
        sums[purpose_of(tensor.name, layers)] += tensor.bytes
    return WeightBytes(**sums)


def purpose_of(name: str, layers: int | None) -> str:
    """Return the field of WeightBytes for a tensor's name."""
    if _SENSES.search(name):
        return "senses"
    layer = _LAYER.search(name)
    if _DRAFT.search(name) or (layers and layer and int(layer[3]) >= layers):
        return "draft"
    if _EXPERTS.search(name):
        return "experts"
    if _HEAD.search(name):
        return "head"
    return "embedding" if _EMBEDDING.search(name) else "dense"


def has_vision_tower(tensors: Iterable[Tensor]) -> bool:
    return any(_EYES.search(tensor.name) for tensor in tensors)


def by_dtype(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Sum the bytes of each dtype, the largest first."""
    sums: Counter[str] = Counter()
    for tensor in tensors:
        sums[tensor.dtype] += tensor.bytes
    return dict(sums.most_common())


def count_parameters(tensors: Iterable[Tensor], bits: int | None) -> int:
    """Count the weights before quantization: those packed in `bits` (a `weight` in U8, too) singly, scales not."""
    return sum(_count(tensor, bits) for tensor in tensors if not _SCALES.search(tensor.name))


def _count(tensor: Tensor, bits: int | None) -> int:
    elements = prod(tensor.shape)
    packed = _PACKED.search(tensor.name) or (tensor.dtype == "U8" and tensor.name.endswith("weight"))
    return elements * BITS.get(tensor.dtype, 8) // bits if packed and bits else elements
