"""Purpose of tensors by their names, and the number of weights they hold.

Owns: the naming habits of checkpoints on the hub. Must not know: files, config.json beyond the few facts passed in.
Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from math import prod

from sparkdash.catalog.checkpoint.safetensors import BITS, Tensor
from sparkdash.domain.weights import WeightBytes

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
    """Sum the bytes by purpose. Layers beyond the model's own are drafts (DeepSeek's and GLM's MTP layers)."""
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
    """Whether any tensor belongs to a vision tower."""
    return any(_EYES.search(tensor.name) for tensor in tensors)


def by_dtype(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Sum the bytes of each dtype, the largest first."""
    sums: Counter[str] = Counter()
    for tensor in tensors:
        sums[tensor.dtype] += tensor.bytes
    return dict(sums.most_common())


def count_parameters(tensors: Iterable[Tensor], bits: int | None) -> int:
    """Count the weights before quantization: packed ones singly, scales and zero points not at all.

    `bits` is the size of a packed weight. A `weight` of dtype U8 is packed too (ModelOpt's NVFP4).
    """
    return sum(_count(tensor, bits) for tensor in tensors if not _SCALES.search(tensor.name))


def _count(tensor: Tensor, bits: int | None) -> int:
    elements = prod(tensor.shape)
    packed = _PACKED.search(tensor.name) or (tensor.dtype == "U8" and tensor.name.endswith("weight"))
    return elements * BITS.get(tensor.dtype, 8) // bits if packed and bits else elements
