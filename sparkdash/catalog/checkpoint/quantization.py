"""Quantization of a checkpoint, from its configuration.

Owns: the keys of quantization_config and hf_quant_config.json. Must not know: tensors, engines.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.catalog.checkpoint.architecture import integer, word


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
