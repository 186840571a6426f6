"""Sizes of each engine's allocations: weights, drafter and KV cache, or a share of the box.

Owns: the flags that decide the sizes. Must not know: overheads, declared figures, files.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

from sparkdash.domain.memory.need import Term
from sparkdash.domain.profile import ArgValue, EngineKind, Profile, placeholders
from sparkdash.domain.weights import Unread, WeightFacts
from sparkdash.engines.dialects.vllm_flags import parse_version
from sparkdash.engines.estimate.kv_width import kv_bits
from sparkdash.engines.launch.argv import fill_placeholders, lookup, parse_share, parse_size, parse_token_count
from sparkdash.engines.launch.nodes import ways
from sparkdash.units import GIB, gib, tokens

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
