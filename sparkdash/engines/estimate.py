"""Memory that a launch will need, estimated from the profile and the checkpoint before any measurement.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.profile import ArgValue, EngineKind, Profile, SimSpec, placeholders
from sparkdash.domain.weights import BF16_BITS, Unread, WeightFacts
from sparkdash.engines.argv import fill_placeholders, lookup, parse_share, parse_size, parse_token_count
from sparkdash.engines.nodes import ways
from sparkdash.engines.vllm.flags import parse_version
from sparkdash.units import GIB, gib, tokens


def fills_cache(profile: Profile) -> bool:
    """Whether the launch prefetches: vLLM's --safetensors-load-strategy=prefetch (weight_utils.py, 0.32)."""
    return profile.engine is EngineKind.VLLM and lookup(profile.args, "safetensors-load-strategy") == "prefetch"


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


Facts = Mapping[str, WeightFacts | Unread]

TARGET = "target"
NO_TARGET = Unread(reason="no weights were given for models.target")

VLLM_SHARES = ((0, 20), 0.92, 0.90)
"""Default of --gpu-memory-utilization: from that version on, and before (read in the wheels 0.16.0 to 0.33.0)."""
VLLM_BLOCK = 16
"""Tokens per KV block without --block-size: vLLM's default on CUDA."""
TRTLLM_SHARE = 0.9
"""Default of free_gpu_memory_fraction: TensorRT-LLM's KvCacheConfig."""

LLAMACPP_STEP = 512
"""Default of --ubatch-size (llama.cpp's common.h)."""


class Drafting(NamedTuple):
    """Speculation of a profile: the method, and the drafting model if it is a separate one."""

    method: str = ""
    model: str | None = None


def allocation_terms(profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
    """Yield weights, drafter and kv, or utilization alone, as the engine allocates them; none for engines without
    memory.
    """
    if profile.engine in _ENGINES:
        yield from _ENGINES[profile.engine](profile, facts, box_bytes)


def sizes_by_free_memory(profile: Profile) -> bool:
    """Whether the engine sizes itself by free memory while it loads, and so mistakes others' memory for its own.

    vLLM subtracts the fall of free memory between its start and its profiling from its KV cache, unless
    --kv-cache-memory-bytes sets the cache's size (v1/worker/gpu_worker.py, `determine_available_memory`). It aborts
    when free memory grew. SGLang and TensorRT-LLM size their pools by what the weights leave free.
    """
    match profile.engine:
        case EngineKind.VLLM:
            return profile.gpu and parse_size(lookup(profile.args, "kv-cache-memory-bytes")) is None
        case EngineKind.SGLANG | EngineKind.TRTLLM:
            return True
    return False


def _vllm(profile: Profile, facts: Facts, box: int | None) -> Iterator[Term]:
    """Terms of vLLM: ceil(total x share) (`request_memory` in v1/worker/utils.py).

    --kv-cache-memory-bytes sizes the cache by itself.
    """
    size = parse_size(lookup(profile.args, "kv-cache-memory-bytes"))
    blocks = parse_token_count(lookup(profile.args, "num-gpu-blocks-override"))
    if size is not None:
        kv = Term(name="kv", bytes=size, source="--kv-cache-memory-bytes")
    elif blocks is not None:
        kv = _blocks(profile, facts, blocks)
    elif not profile.gpu:
        kv = _cpu_cache(profile)
    else:
        yield _vllm_share(profile, box)
        return
    yield from _loaded(profile, facts, _vllm_drafting(profile))
    yield kv


def _vllm_share(profile: Profile, box: int | None) -> Term:
    flag = "gpu-memory-utilization"
    if (given := lookup(profile.args, flag)) is not None:
        return _share(flag, parse_share(given), box)
    found, (since, new, old) = parse_version(profile.engine_version), VLLM_SHARES
    if found is None:
        return Term(name="utilization", source=f"--{flag} is not given, and its default depends on the version of vLLM")
    return _share(f"{flag}'s default", new if found >= since else old, box)


def _share(flag: str, part: float | None, box: int | None) -> Term:
    if part is None or box is None:
        missing = f"--{flag} is no share of 0 to 1" if part is None else "how much memory the box has is not known"
        return Term(name="utilization", source=missing)
    return Term(name="utilization", bytes=ceil(box * part), source=f"--{flag} {part:g} of {gib(box)}, taken whole")


def _blocks(profile: Profile, facts: Facts, blocks: int) -> Term:
    target = facts.get(TARGET)
    if isinstance(target, WeightFacts) and (target.hybrid or not all(layers.value_elements for layers in target.kv)):
        return Term(name="kv", source="vLLM sizes the blocks of hybrid and MLA models by rules of its own")
    size = parse_token_count(lookup(profile.args, "block-size")) or VLLM_BLOCK
    return _cache(profile, facts, blocks * size, f"num-gpu-blocks-override {blocks} x {size}")


def _cpu_cache(profile: Profile) -> Term:
    text = profile.env.get("VLLM_CPU_KVCACHE_SPACE", "")
    if text.isdecimal():
        return Term(name="kv", bytes=int(text) * GIB, source="VLLM_CPU_KVCACHE_SPACE, in GiB")
    return Term(name="kv", source="VLLM_CPU_KVCACHE_SPACE is not given")


def _vllm_drafting(profile: Profile) -> Drafting:
    config = _mapping(lookup(profile.args, "speculative-config"))
    model = config.get("model") or lookup(profile.args, "spec-model")
    return Drafting(
        str(config.get("method") or lookup(profile.args, "spec-method") or ""), str(model) if model else None
    )


def _sglang(profile: Profile, facts: Facts, box: int | None) -> Iterator[Term]:
    """Terms of SGLang: mem_fraction_static holds weights and KV pool; max_total_tokens caps the pool (server_args.py).

    SGLang takes the share of what is free when it starts: the share of the whole box is the upper bound.
    """
    held = parse_token_count(lookup(profile.args, "max-total-tokens"))
    if held is not None:
        yield from _loaded(profile, facts, _sglang_drafting(profile))
        yield _cache(profile, facts, held, "max-total-tokens")
        return
    flag = "mem-fraction-static"
    given = lookup(profile.args, flag)
    if given is None:
        yield Term(name="utilization", source=f"--{flag} is not given, and SGLang then chooses it by itself")
    else:
        yield _share(flag, parse_share(given), box)


def _sglang_drafting(profile: Profile) -> Drafting:
    """Drafting of SGLang. Without a draft model, NEXTN and EAGLE draft with the target's own MTP layers."""
    method = str(lookup(profile.args, "speculative-algorithm") or "").lower()
    model = lookup(profile.args, "speculative-draft-model-path", "speculative-draft-model")
    own = method in ("nextn", "eagle") and not model
    return Drafting("mtp" if own else method, str(model) if model else None)


def _trtllm(profile: Profile, facts: Facts, box: int | None) -> Iterator[Term]:
    """Terms of TensorRT-LLM: the KV cache takes a share of what the weights leave free (free_gpu_memory_fraction)."""
    weights = _weights(profile, facts, mtp=True)
    yield weights
    flag = "kv-cache-free-gpu-memory-fraction"
    given = lookup(profile.args, flag)
    part = TRTLLM_SHARE if given is None else parse_share(given)
    if lookup(profile.args, "extra-llm-api-options", "config") is not None:
        yield Term(name="kv", source="decided in the file of further options, which is not read")
    elif part is None or box is None or weights.bytes is None:
        yield Term(name="kv", source=f"{flag} is a share of what the weights leave, and that is not known")
    else:
        size = ceil(max(0, box - weights.bytes) * part)
        yield Term(name="kv", bytes=size, source=f"{flag} {part:g} of what the weights leave, at most")


def _llamacpp(profile: Profile, facts: Facts, _box: int | None) -> Iterator[Term]:
    """Terms of llama.cpp: the cache holds --ctx-size tokens in all, shared by --parallel slots.

    0 or none means the model's own context.
    """
    model = lookup(profile.args, "spec-draft-model", "model-draft", "md")
    yield from _loaded(profile, facts, Drafting("mtp", str(model) if model else None))
    target = facts.get(TARGET, NO_TARGET)
    held, why = parse_token_count(lookup(profile.args, "ctx-size", "c")), "ctx-size"
    if not held and isinstance(target, WeightFacts):
        held, why = target.context, "ctx-size is not given: the model's own context"
    if held:
        yield _cache(profile, facts, held, why)
    else:
        yield Term(name="kv", source="ctx-size is not given, and the model's own context is not known")


def _generic(profile: Profile, facts: Facts, box: int | None) -> Iterator[Term]:  # noqa: ARG001 - as the others
    """Terms of a described server: its weights, where it has some; what else it takes, only its owner can say."""
    if "target" in profile.models:
        yield _weights(profile, facts, mtp=False)
    yield Term(name="kv", source="what the server takes beside its weights is not known; declare memory.kv_gib")


_ENGINES: dict[EngineKind, Callable[[Profile, Facts, int | None], Iterator[Term]]] = {
    EngineKind.VLLM: _vllm,
    EngineKind.SGLANG: _sglang,
    EngineKind.TRTLLM: _trtllm,
    EngineKind.LLAMACPP: _llamacpp,
    EngineKind.GENERIC: _generic,
}


def _loaded(profile: Profile, facts: Facts, drafting: Drafting) -> Iterator[Term]:
    yield _weights(profile, facts, mtp="mtp" in drafting.method)
    if drafting.model is not None:
        yield _drafter(profile, facts, drafting.model)


def _weights(profile: Profile, facts: Facts, *, mtp: bool) -> Term:
    target = facts.get(TARGET, NO_TARGET)
    if isinstance(target, Unread):
        return Term(name="weights", source=target.reason)
    size, why = target.bytes.total, f"{target.format} headers of {target.origin}"
    if target.mtp and not mtp:
        size, why = size - target.bytes.draft, f"{why}, less the MTP layers, which nothing drafts with"
    if profile.nodes == 1:
        return Term(name="weights", bytes=size, source=why)
    if ways(profile) < profile.nodes:
        return Term(name="weights", source=f"how the weights are spread over {profile.nodes} boxes is not told")
    return Term(name="weights", bytes=ceil(size / profile.nodes), source=f"{why}, over {profile.nodes} boxes")


def _drafter(profile: Profile, facts: Facts, model: str) -> Term:
    filled = fill_placeholders(model, profile.models)
    roles = placeholders(model) | {role for role, ref in profile.models.items() if ref.ref == filled}
    found = next((facts[role] for role in sorted(roles) if role in facts), None)
    if isinstance(found, WeightFacts):
        source = f"{found.format} headers of {found.origin}"
        return Term(name="drafter", bytes=found.bytes.total, source=source)
    return Term(name="drafter", source=found.reason if found else f"{filled} is not among the profile's models")


def _cache(profile: Profile, facts: Facts, held: int, why: str) -> Term:
    """Term of the KV cache for `held` tokens in all."""
    target = facts.get(TARGET, NO_TARGET)
    if isinstance(target, Unread):
        return Term(name="kv", source=f"{why}, but the bytes of a token are not known: {target.reason}")
    width = kv_bits(profile, target)
    if width is None:
        return Term(name="kv", source=f"{why}, but not how many bits an element of this KV cache's dtype has")
    sequences = parse_token_count(lookup(profile.args, "max-num-seqs", "max-running-requests", "parallel", "np")) or 1
    size = target.kv_bytes(held, sequences, *width, step=_step(profile))
    if size is None:
        return Term(name="kv", source=f"{why}, but not what the layers of {target.architecture} keep of a token")
    boxes = f" over {profile.nodes} boxes" if profile.nodes > 1 else ""
    kinds = " + ".join(f"{layers.layers} {layers.kind.value}" for layers in target.kv)
    widths = "/".join(f"{one:g}" for one in dict.fromkeys(width))
    source = f"{why}: {tokens(held)} tokens, {widths} bits, {kinds} layers{boxes}"
    return Term(name="kv", bytes=ceil(size / profile.nodes), source=source)


def _step(profile: Profile) -> int:
    """Tokens that the engine computes at once."""
    if profile.engine is EngineKind.LLAMACPP:
        return parse_token_count(lookup(profile.args, "ubatch-size", "ub")) or LLAMACPP_STEP
    return parse_token_count(lookup(profile.args, "max-num-batched-tokens", "chunked-prefill-size")) or 0


def _mapping(value: ArgValue) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


OVERHEAD_BYTES = 7 * GIB
"""Memory beyond weights and KV cache: 5.4 to 6.7 GiB of vLLM 0.28 on a GB10 (llamastash#80, #81), rounded up."""
HOST_BYTES = int(5.6 * GIB)
"""Memory beyond the share that vLLM counts: its host side and CUDA graphs on a GB10
(GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118).
"""
LOADER_BYTES = int(4.4 * GIB)
"""Memory that the instanttensor loader keeps: 15.0 against 10.6 GiB of KV cache
(GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204).
"""

_ORDER = ("weights", "drafter", "kv", "utilization", "loader", "overhead")


def estimate_launch(profile: Profile, facts: Mapping[str, WeightFacts | Unread], box_bytes: int | None) -> Need:
    """Estimate the need of one launch on one box, term by term.

    `facts` are those of the profile's models by role (`target`, `drafter`, …); an absent role counts as unread.
    `box_bytes` is MemTotal; None is unknown. A declared figure (`memory:`) precedes the computed one. Terms: weights +
    drafter + kv + overhead. Where the engine takes a fixed share of the box: utilization + overhead. No peak: the peak
    of a load has to be measured.
    """
    declared = _declared(profile)
    if profile.engine in (EngineKind.OPENAI, EngineKind.REMOTE):
        source = f"runs at {profile.url} by its own means; sparkdash starts nothing"
        return Need(basis=Basis.DECLARED, terms=(Term(name="steady", bytes=0, source=source),))
    if profile.engine is EngineKind.SIM and profile.memory.total_bytes is None:
        size = int((profile.sim or SimSpec()).memory_gib * GIB)
        return Need(basis=Basis.DECLARED, terms=(Term(name="steady", bytes=size, source="sim.memory_gib: simulated"),))
    computed = {term.name: term for term in allocation_terms(profile, facts, box_bytes)}
    terms = _merged(profile, computed, declared)
    return Need(basis=_basis(terms, declared), terms=terms)


def _merged(profile: Profile, computed: dict[str, Term], declared: dict[str, Term]) -> tuple[Term, ...]:
    body = dict(computed)
    if declared.keys() >= {"weights", "kv"}:  # what it really takes, not the share that it may take
        body.pop("utilization", None)
    # A part of a share is no summand beside it.
    parts = ("weights", "kv") if "utilization" in body else ()
    body |= {name: term for name, term in declared.items() if name not in parts}
    if profile.engine is EngineKind.VLLM and "utilization" not in body:
        body |= {term.name: term for term in _loader(profile)}
    body.setdefault("overhead", _overhead(profile, shared="utilization" in body))
    return tuple(body[name] for name in _ORDER if name in body)


def _declared(profile: Profile) -> dict[str, Term]:
    """Return the profile's own figures by term."""
    memory = profile.memory
    sizes = {"weights": memory.weights_gib, "kv": memory.kv_gib, "overhead": memory.overhead_gib}
    why = f"in the profile: {memory.source or 'no source given'}"
    return {
        name: Term(name=name, bytes=int(size * GIB), source=f"memory.{name}_gib {why}")
        for name, size in sizes.items()
        if size is not None
    }


def _loader(profile: Profile) -> list[Term]:
    if lookup(profile.args, "load-format") != "instanttensor":
        return []
    source = "load-format instanttensor: 4.4 GiB on a GB10 (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204)"
    return [Term(name="loader", bytes=LOADER_BYTES, source=source)]


def _overhead(profile: Profile, *, shared: bool) -> Term:
    if not profile.gpu:
        return Term(name="overhead", source="not measured for engines on the CPU; declare memory.overhead_gib")
    if shared and profile.engine is EngineKind.VLLM:
        source = "host side and CUDA graphs, not in the share: GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118"
        return Term(name="overhead", bytes=HOST_BYTES, source=source)
    source = "5.4 to 6.7 GiB on a GB10, rounded up: llamastash#80, #81"
    if profile.engine is not EngineKind.VLLM:
        source += f"; that was vLLM, {profile.engine.value} is taken for no more"
    return Term(name="overhead", bytes=OVERHEAD_BYTES, source=source)


def _basis(terms: tuple[Term, ...], declared: Mapping[str, Term]) -> Basis:
    if not terms or any(term.bytes is None for term in terms):
        return Basis.UNKNOWN
    return Basis.DECLARED if all(declared.get(term.name) == term for term in terms) else Basis.ESTIMATED
