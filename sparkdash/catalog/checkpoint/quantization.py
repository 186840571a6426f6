"""How a checkpoint is quantized, as its configuration says.

Owns: the keys of quantization_config and hf_quant_config.json. Must not know: tensors, engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.catalog.checkpoint.architecture import integer, word


class Quantization(NamedTuple):
    """None throughout: nothing is quantized, or nothing says so."""

    name: str | None = None
    """nvfp4, mxfp4, fp8, gptq int4, …"""
    bits: int | None = None
    """Of a packed weight."""
    kv_dtype: str | None = None
    """fp8 where the checkpoint asks for an fp8 KV cache."""


_BITS = {"nvfp4": 4, "mxfp4": 4, "fp8": 8, "mxfp8": 8}


def quantization(config: Mapping[str, Any], sidecar: Mapping[str, Any]) -> Quantization:
    """From config.json, else from ModelOpt's hf_quant_config.json, which older exports have alone."""
    inside, beside = config.get("quantization_config"), sidecar.get("quantization")
    given = inside if isinstance(inside, dict) else beside if isinstance(beside, dict) else {}
    extra = beside if isinstance(beside, dict) else {}
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
    """The dtypes of its groups; of several, the one with the fewest bits comes first and tells how much is packed."""
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
    """ModelOpt's kv_cache_quant_algo; compressed-tensors' kv_cache_scheme."""
    algorithm, scheme = word(given.get("kv_cache_quant_algo")), given.get("kv_cache_scheme")
    if algorithm:
        return algorithm.lower()
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type") == "float" else "int8"
    return None
