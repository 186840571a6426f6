"""Rules about the unified memory: vLLM's share, KV cache types, the size of the box.

Owns: the box's size. Must not know: what is free at the moment.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.argv import lookup, parse_size
from sparkdash.rules.rule import Hit, Rule, Severity, flag_path
from sparkdash.units import GIB

BOX_BYTES = 127_600_748 * 1024
"""MemTotal of a DGX Spark, 121.69 GiB (XuehaiPan/nvitop PR#208); other units report up to 2 GiB less."""

_VLLM = (EngineKind.VLLM,)


def _utilization(profile: Profile) -> Iterator[Hit]:
    if profile.gpu and flag_path(profile, "gpu-memory-utilization") is None:
        text = "gpu-memory-utilization is missing, and vLLM's default is more than a Spark has free"
        yield Hit(("args",), text, "Write `gpu-memory-utilization: 0.80` under args.")


def _high(profile: Profile) -> Iterator[Hit]:
    value = lookup(profile.args, "gpu-memory-utilization")
    if isinstance(value, int | float) and value > 0.90:
        path = flag_path(profile, "gpu-memory-utilization") or ()
        yield Hit(path, f"{value} is more than a Spark has free", "Write 0.85 or less.")


def _share(profile: Profile) -> Iterator[Hit]:
    for name in ("mem-fraction-static", "kv-cache-free-gpu-memory-fraction", "free-gpu-memory-fraction"):
        value = lookup(profile.args, name)
        if isinstance(value, int | float) and not 0 < value <= 1:
            yield Hit(
                flag_path(profile, name) or (), f"{value} is no share of the memory", "Write a number such as 0.8."
            )


def _kv(profile: Profile) -> Iterator[Hit]:
    size = parse_size(lookup(profile.args, "kv-cache-memory-bytes"))
    if size is not None and size > BOX_BYTES:
        path = flag_path(profile, "kv-cache-memory-bytes") or ()
        yield Hit(
            path, f"{size / GIB:.0f} GiB of KV cache, and a box has {BOX_BYTES / GIB:.1f}", "Write `10G` for 10 GiB."
        )


def _total(profile: Profile) -> Iterator[Hit]:
    need = profile.memory
    known = [part for part in (need.weights_gib, need.kv_gib, need.overhead_gib) if part is not None]
    if sum(known) * GIB > BOX_BYTES * profile.nodes:
        boxes = "the box has" if profile.nodes == 1 else f"{profile.nodes} boxes have"
        text = f"adds up to {sum(known):.0f} GiB, and {boxes} {BOX_BYTES * profile.nodes / GIB:.1f}"
        yield Hit(("memory",), text, "Use a smaller checkpoint or KV cache; for two boxes give `nodes: 2`.")


def _small_unit(profile: Profile) -> Iterator[Hit]:
    value = lookup(profile.args, "kv-cache-memory-bytes")
    if isinstance(value, str) and value[-1:] in ("k", "m", "g", "t") and parse_size(value):
        text = f"{value!r} counts in thousands: {(parse_size(value) or 0) / GIB:.2f} GiB"
        yield Hit(
            flag_path(profile, "kv-cache-memory-bytes") or (), text, f"Write `{_binary(value)}`, which counts in 1024s."
        )


def _binary(value: str) -> str:
    """Return the same size in 1024s without the fraction that vLLM would refuse: "1.5g" becomes "1536M"."""
    number, unit = float(value[:-1]), value[-1].upper()
    if number.is_integer():
        return f"{int(number)}{unit}"
    return str(round(number * 1024)) + {"K": "", "M": "K", "G": "M", "T": "G"}[unit]


def _fp8(profile: Profile) -> Iterator[Hit]:
    backend = lookup(profile.args, "attention-backend")
    dtype = str(lookup(profile.args, "kv-cache-dtype") or "")
    if str(backend).upper() != "FLASH_ATTN":
        return
    path = flag_path(profile, "attention-backend") or ()
    if dtype.startswith("fp8"):
        yield Hit(path, "FLASH_ATTN has no fp8 KV cache on a GB10", "Write FLASHINFER or TRITON_ATTN.")
    elif any("gpt-oss" in ref.ref.lower() for ref in profile.models.values()):
        yield Hit(path, "FLASH_ATTN has no attention sinks on a GB10, which gpt-oss needs", "Write TRITON_ATTN.")


def _turboquant(profile: Profile) -> Iterator[Hit]:
    dtype = str(lookup(profile.args, "kv-cache-dtype") or "")
    if dtype.startswith("turboquant"):
        path = flag_path(profile, "kv-cache-dtype") or ()
        yield Hit(path, f"vLLM {profile.engine_version} has no {dtype}", "Write fp8, or use 0.20 or newer.")


RULES = (
    Rule(
        "no-gpu-memory-utilization",
        Severity.ERROR,
        "vLLM's default share of memory cannot start on a Spark",
        "default 0.90, from 0.20 on 0.92; 0.85 at most is met: vllm-project/recipes PR#632",
        _utilization,
        _VLLM,
    ),
    Rule(
        "high-gpu-memory-utilization",
        Severity.WARNING,
        "a share of memory that owners do not get",
        "0.85 to 0.87, never above 0.90: published measurements, vLLM 0.19.0, May 2026",
        _high,
        _VLLM,
    ),
    Rule(
        "no-share-of-memory",
        Severity.ERROR,
        "a share of memory that is not above 0 and at most 1",
        "a fraction by its help text: SGLang 0.5.23, server_args.py; TensorRT-LLM 1.3.0, commands/serve.py",
        _share,
        (EngineKind.SGLANG, EngineKind.TRTLLM),
    ),
    Rule(
        "kv-more-than-box",
        Severity.ERROR,
        "a KV cache larger than the memory",
        "MemTotal 121.69 GiB: nvitop PR#208",
        _kv,
        _VLLM,
    ),
    Rule(
        "more-than-box", Severity.ERROR, "a need larger than the memory", "MemTotal 121.69 GiB: nvitop PR#208", _total
    ),
    Rule(
        "kv-small-unit",
        Severity.WARNING,
        "10g is 10^10 bytes, 10G is 10 GiB",
        "human_readable_int in vLLM 0.32.0, utils/argparse_utils.py: k m g t are powers of 1000, K M G T of 1024",
        _small_unit,
        _VLLM,
    ),
    Rule(
        "fp8-kv-backend",
        Severity.ERROR,
        "an attention backend without fp8 KV or sinks on SM121",
        "vLLM 0.33.0, fa_utils.py: fp8 KV on sm90 and sm100 only, sinks with FA3 and FA4 only",
        _fp8,
        _VLLM,
    ),
    Rule(
        "turboquant-too-new",
        Severity.ERROR,
        "a TurboQuant KV cache before 0.20",
        "kv-cache-dtype's choices in vLLM 0.19.0 and 0.20.0",
        _turboquant,
        _VLLM,
        before=(0, 20),
    ),
)
