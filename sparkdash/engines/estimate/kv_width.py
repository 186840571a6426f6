"""Bits per element of a profile's KV cache.

Owns: the engines' names of KV cache types. Must not know the number of elements.
Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.weights import BF16_BITS, WeightFacts
from sparkdash.engines.launch.argv import lookup

GGML_BITS = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
    "iq4_nl": 4.5,
}
"""Cache types of llama.cpp, block scales included (ggml-common.h: q8_0 is 34 bytes for 32 elements)."""
SIXTEEN = ("bfloat16", "bf16", "float16", "half")


def kv_bits(profile: Profile, target: WeightFacts) -> tuple[float, float] | None:
    """Return the bits of a key's and of a value's element; None for a type of unknown size.

    `auto` is the checkpoint's own request (a calibrated fp8 cache), else the model's 16 bits. TurboQuant and other
    formats below 8 bits keep scales beside the elements and are unknown here.
    """
    if profile.engine is EngineKind.LLAMACPP:
        key, value = _ggml(profile, "cache-type-k", "ctk"), _ggml(profile, "cache-type-v", "ctv")
        return (key, value) if key and value else None
    name = str(lookup(profile.args, "kv-cache-dtype") or "auto").lower()
    if name == "auto":
        name = target.kv_dtype or SIXTEEN[0]
    if name.startswith("fp8"):
        return 8.0, 8.0
    return (BF16_BITS, BF16_BITS) if name in SIXTEEN else None


def _ggml(profile: Profile, *flags: str) -> float | None:
    return GGML_BITS.get(str(lookup(profile.args, *flags) or "f16").lower())
