"""Memory of vLLM: what its flags make it allocate, and the flags of a first profile. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from sparkdash.domain.memory import Term
from sparkdash.domain.profile import Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.argv import lookup, parse_object, parse_share, parse_size, parse_token_count, version_pair
from sparkdash.engines.memory_terms import (
    OVERHEAD_BYTES,
    TARGET,
    Drafting,
    Facts,
    cache_term,
    loaded_terms,
    overhead_term,
    share_term,
)
from sparkdash.engines.proposal import SEQUENCES, SHARE, STEP, KvCachePlan, MemoryBudget, Proposal, cache_reason
from sparkdash.units import GIB, gib

SHARES = ((0, 20), 0.92, 0.90)
"""Default of --gpu-memory-utilization: from that version on, and before (read in the wheels 0.16.0 to 0.33.0)."""
MEMORY_VARIABLES = {
    "LMCACHE_MAX_LOCAL_CPU_SIZE": GIB,
    "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": 1,
    "VLLM_MM_INPUT_CACHE_GIB": 2 * GIB,  # once in the API server, once in the engine
}
"""Variables that allocate memory beside the share (vLLM's envs.py, 0.9 to 0.32; LMCache's configuration)."""
BLOCK = 16
"""Tokens per KV block without --block-size: vLLM's default on CUDA."""
HOST_BYTES = int(5.6 * GIB)
"""Memory beyond the share that vLLM counts: its host side and CUDA graphs on a GB10
(GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118).
"""
LOADER_BYTES = int(4.4 * GIB)
"""Memory that the instanttensor loader keeps: 15.0 against 10.6 GiB of KV cache
(GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204).
"""
FAST_LOADER = (0, 22)
"""Version from which fastsafetensors is among its dependencies."""
READ = "Read, since a Spark copies slowly out of mapped files (vcruz305/vllm-exl3 PR#28)."
"""Reason for the eager strategy."""
FAST_LOADER_SHARE = 0.8
"""Share of the memory above which that loader runs out of it (eugr/spark-vllm-docker)."""


def memory_terms(profile: Profile, facts: Facts, box: int | None) -> Iterator[Term]:
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
        yield _share(profile, box)
        return
    yield from loaded_terms(profile, facts, _drafting(profile))
    yield kv


def _share(profile: Profile, box: int | None) -> Term:
    flag = "gpu-memory-utilization"
    if (given := lookup(profile.args, flag)) is not None:
        return share_term(flag, parse_share(given), box)
    found, (since, new, old) = version_pair(profile.engine_version), SHARES
    if found is None:
        return Term(name="utilization", source=f"--{flag} is not given, and its default depends on the version of vLLM")
    return share_term(f"{flag}'s default", new if found >= since else old, box)


def _blocks(profile: Profile, facts: Facts, blocks: int) -> Term:
    target = facts.get(TARGET)
    if isinstance(target, WeightFacts) and (target.hybrid or not all(layers.value_elements for layers in target.kv)):
        return Term(name="kv", source="vLLM sizes the blocks of hybrid and MLA models by rules of its own")
    size = parse_token_count(lookup(profile.args, "block-size")) or BLOCK
    return cache_term(profile, facts, blocks * size, f"num-gpu-blocks-override {blocks} x {size}")


def _cpu_cache(profile: Profile) -> Term:
    text = profile.env.get("VLLM_CPU_KVCACHE_SPACE", "")
    if text.isdecimal():
        return Term(name="kv", bytes=int(text) * GIB, source="VLLM_CPU_KVCACHE_SPACE, in GiB")
    return Term(name="kv", source="VLLM_CPU_KVCACHE_SPACE is not given")


def _drafting(profile: Profile) -> Drafting:
    config = parse_object(lookup(profile.args, "speculative-config")) or {}
    model = config.get("model") or lookup(profile.args, "spec-model")
    return Drafting(
        str(config.get("method") or lookup(profile.args, "spec-method") or ""), str(model) if model else None
    )


def loader_terms(profile: Profile) -> Iterator[Term]:
    if lookup(profile.args, "load-format") == "instanttensor":
        source = "load-format instanttensor: 4.4 GiB on a GB10 (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204)"
        yield Term(name="loader", bytes=LOADER_BYTES, source=source)


def overhead(profile: Profile, *, is_shared: bool) -> Term:
    """Term beyond weights and cache: less where vLLM counts a share, which holds part of it."""
    if is_shared and profile.gpu:
        source = "host side and CUDA graphs, not in the share: GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118"
        return Term(name="overhead", bytes=HOST_BYTES, source=source)
    return overhead_term(profile, measured=True)


def sizes_by_free_memory(profile: Profile) -> bool:
    """Whether vLLM sizes its cache by free memory.

    It subtracts the fall of free memory between its start and its profiling from its KV cache, unless
    --kv-cache-memory-bytes sets the cache's size (v1/worker/gpu_worker.py, `determine_available_memory`). It aborts
    when free memory grew.
    """
    return profile.gpu and parse_size(lookup(profile.args, "kv-cache-memory-bytes")) is None


def propose(proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget) -> None:
    _propose_memory(proposal, facts, cache, box)
    why = (
        "NVIDIA's recipes for a Spark; a cache sized in bytes switches vLLM's own limits off, so keep it at 16 or less."
    )
    proposal.arg("max-num-seqs", SEQUENCES, why)
    why = "A prompt is computed in steps of so many tokens. Larger steps take memory that nobody has counted."
    proposal.arg("max-num-batched-tokens", STEP, why)
    _propose_backend(proposal, facts)
    _propose_loader(proposal, facts, box)
    if facts.mtp:
        proposal.profile["variants"] = {
            "mtp": {
                "about": f"{proposal.profile['about']}, drafting with its own MTP layers",
                "args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}},
            }
        }
        proposal.reasons["variants",] = (
            f"The headers show an MTP head ({gib(facts.bytes.draft)}). Measure it against the base: "
            "where a token reads few experts, drafting may cost more than it gains."
        )


def _propose_memory(proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget) -> None:
    if cache is None:
        if facts.context:
            proposal.arg("max-model-len", facts.context, "The model's own.")
        why = "vLLM takes this share whole: the configuration does not tell a token's KV size."
        proposal.arg(
            "gpu-memory-utilization", SHARE, f"{why} More is rarely free on a Spark (vllm-project/recipes PR#632)."
        )
        return
    proposal.arg("max-model-len", cache.context, cache.why)
    proposal.arg("kv-cache-memory-bytes", f"{cache.bytes // GIB}G", cache_reason(facts, cache))
    share = min(SHARE, ceil(100 * (facts.bytes.total + cache.bytes + OVERHEAD_BYTES) / box.total) / 100)
    why = "The same need as a share of the box: vLLM starts only while that much is free. It sizes nothing."
    proposal.arg("gpu-memory-utilization", share, why)


def _propose_backend(proposal: Proposal, facts: WeightFacts) -> None:
    if facts.architecture == "gpt_oss":
        why = "gpt-oss has attention sinks, which FLASH_ATTN lacks on a GB10 (vLLM 0.33.0, fa_utils.py)."
        proposal.arg("attention-backend", "TRITON_ATTN", why)
    elif (facts.kv_dtype or "").startswith("fp8"):
        why = "The checkpoint asks for an fp8 KV cache, which FLASH_ATTN lacks on a GB10 (vLLM 0.33.0, fa_utils.py)."
        proposal.arg("attention-backend", "FLASHINFER", why)


def _propose_loader(proposal: Proposal, facts: WeightFacts, box: MemoryBudget) -> None:
    left = f"{facts.quantization}, as the checkpoint itself says" if facts.quantization else "none"
    note = f"No `quantization` is given: vLLM finds it out ({left})."
    found = version_pair(proposal.profile.get("engine_version"))
    why = "2 minutes instead of 9 for 122B in int4 (NVIDIA forum t/361819 post 29)."
    fits = facts.bytes.total <= FAST_LOADER_SHARE * box.total
    if fits and found and found >= FAST_LOADER:
        proposal.arg("load-format", "fastsafetensors", why)
    else:
        proposal.arg("safetensors-load-strategy", "eager", READ)
        if fits:
            note += f" Where the image has the fastsafetensors package, write `load-format: fastsafetensors`: {why}"
    proposal.reasons["args",] = note
