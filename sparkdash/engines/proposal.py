"""First profile for a model that has none: flags for a GB10, each with its reason.

Owns: the defaults and their reasons. Must not know: files, YAML, the network. Rule: nothing is guessed. Facts that the
headers lack are left to the engine, and the reason says so.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from sparkdash.domain.profile import EngineKind
from sparkdash.domain.weights import BF16_BITS, WeightFacts
from sparkdash.engines.estimate import OVERHEAD_BYTES
from sparkdash.engines.vllm.flags import parse_version
from sparkdash.units import GIB, gib, tokens

SEQUENCES = 4
"""Concurrent requests: NVIDIA's recipes and the vLLM blog of 2026-06-01 give a Spark 4, owners up to 16."""
EACH = 32768
"""Tokens of KV cache per concurrent request, where the box has cache."""
SHARE = 0.85
"""Largest share that owners report: vllm-project/recipes PR#632."""
STEP = 8192
"""Tokens computed at once: owners of a Spark give 4096 to 8192; 65536 kills the box (AEON-7/vllm-dflash#1)."""
MARGIN = 1.15
"""Factor over the computed size: engines pad the blocks of hybrid models."""
SHORTEST = 4096
FAST_LOADER = (0, 22)
"""vLLM version from which fastsafetensors is among its dependencies."""
FAST_LOADER_SHARE = 0.8
"""Share of the memory above which that loader runs out of it (eugr/spark-vllm-docker)."""

IMAGES = {
    EngineKind.VLLM: (
        "nvcr.io/nvidia/vllm:26.04-py3",
        "0.19.0",
        "NVIDIA's build for arm64 and SM121; it holds vLLM 0.19.0",
    ),
    EngineKind.SGLANG: (
        "nvcr.io/nvidia/sglang:26.02-py3",
        None,
        "NVIDIA's build, as in its playbook: dgx-spark-playbooks#68",
    ),
}
"""Image, version and reason, for engines with a known image for a Spark."""

Path = tuple[str, ...]


class OwnerChoices(NamedTuple):
    """Choices that the owner has made; None leaves one to the proposal."""

    context: int | None = None
    image: str | None = None
    engine_version: str | None = None


class MemoryBudget(NamedTuple):
    """Memory of the box in bytes."""

    total: int
    reserve: int


class KvCachePlan(NamedTuple):
    """Size of the proposed KV cache."""

    context: int
    held: int
    """Tokens in total."""
    bytes: int
    why: str


@dataclass(slots=True)
class Proposal:
    """Proposed profile, with the reason of each value."""

    profile: dict[str, Any]
    reasons: dict[Path, str] = field(default_factory=dict)

    def arg(self, name: str, value: Any, why: str) -> None:
        """Add one flag of the engine."""
        self.profile.setdefault("args", {})[name] = value
        self.reasons["args", name] = why


def propose(
    name: str, engine: EngineKind, model: dict[str, str], facts: WeightFacts, box: MemoryBudget, choices: OwnerChoices
) -> Proposal:
    """Propose the profile `name` for a model that `facts` describe; `engine` is one of PROPOSED."""
    about = facts.architecture or "a model"
    if facts.quantization:
        about += f" in {facts.quantization}"
    proposal = Proposal({"profile": name, "about": about, "engine": engine.value})
    _image(proposal, engine, choices)
    proposal.profile["models"] = {"target": model}
    _ENGINES[engine](proposal, facts, _plan_cache(facts, box, choices), box)
    return proposal


def _image(proposal: Proposal, engine: EngineKind, choices: OwnerChoices) -> None:
    image, release, why = IMAGES.get(engine, (None, None, ""))
    if choices.image is not None:
        image, release, why = (
            choices.image,
            None,
            "As you gave it. Its tag may name another image tomorrow: pin a digest.",
        )
    if release := choices.engine_version or release:
        proposal.profile["engine_version"] = release
        proposal.reasons["engine_version",] = "Flags are checked against it."
    if image is not None:
        proposal.profile["image"] = image
        proposal.reasons["image",] = why


def _vllm(proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget) -> None:
    if cache is None:
        if facts.context:
            proposal.arg("max-model-len", facts.context, "The model's own.")
        why = "vLLM takes this share whole: the configuration does not tell a token's KV size."
        proposal.arg(
            "gpu-memory-utilization", SHARE, f"{why} More is rarely free on a Spark (vllm-project/recipes PR#632)."
        )
    else:
        proposal.arg("max-model-len", cache.context, cache.why)
        proposal.arg("kv-cache-memory-bytes", f"{cache.bytes // GIB}G", _held(facts, cache))
        share = min(SHARE, ceil(100 * (facts.bytes.total + cache.bytes + OVERHEAD_BYTES) / box.total) / 100)
        why = "The same need as a share of the box: vLLM starts only while that much is free. It sizes nothing."
        proposal.arg("gpu-memory-utilization", share, why)
    why = (
        "NVIDIA's recipes for a Spark; a cache sized in bytes switches vLLM's own limits off, so keep it at 16 or less."
    )
    proposal.arg("max-num-seqs", SEQUENCES, why)
    why = "A prompt is computed in steps of so many tokens. Larger steps take memory that nobody has counted."
    proposal.arg("max-num-batched-tokens", STEP, why)
    _backend(proposal, facts)
    _loader(proposal, facts, box)
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


def _held(facts: WeightFacts, cache: KvCachePlan) -> str:
    each = facts.kv_bytes_per_token(_bits(facts))
    per = f"{each / 1024:.0f} KiB a token" if each else "states alone"
    return f"{tokens(cache.held)} tokens, {per}, and 15 % for padded blocks. The rest stays free for another engine."


def _backend(proposal: Proposal, facts: WeightFacts) -> None:
    if facts.architecture == "gpt_oss":
        why = "gpt-oss has attention sinks, which FLASH_ATTN lacks on a GB10 (vLLM 0.33.0, fa_utils.py)."
        proposal.arg("attention-backend", "TRITON_ATTN", why)
    elif (facts.kv_dtype or "").startswith("fp8"):
        why = "The checkpoint asks for an fp8 KV cache, which FLASH_ATTN lacks on a GB10 (vLLM 0.33.0, fa_utils.py)."
        proposal.arg("attention-backend", "FLASHINFER", why)


def _loader(proposal: Proposal, facts: WeightFacts, box: MemoryBudget) -> None:
    left = f"{facts.quantization}, as the checkpoint itself says" if facts.quantization else "none"
    note = f"No `quantization` is given: vLLM finds it out ({left})."
    found = parse_version(proposal.profile.get("engine_version"))
    if facts.bytes.total <= FAST_LOADER_SHARE * box.total:
        why = "2 minutes instead of 9 for 122B in int4 (NVIDIA forum t/361819 post 29)."
        if found and found >= FAST_LOADER:
            proposal.arg("load-format", "fastsafetensors", why)
        else:
            note += f" Where the image has the fastsafetensors package, add `load-format: fastsafetensors`: {why}"
    proposal.reasons["args",] = note


def _sglang(proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget) -> None:
    if cache is None:
        why = "SGLang takes this share for weights and cache: the configuration does not tell a token's KV size."
        proposal.arg("mem-fraction-static", SHARE - 0.05, why)
    else:
        proposal.arg("context-length", cache.context, cache.why)
        proposal.arg("max-total-tokens", cache.held, _held(facts, cache))
        share = min(SHARE, ceil(100 * (facts.bytes.total + cache.bytes) / max(1, box.total - box.reserve)) / 100)
        why = "Weights and that cache as a share of what is free at the start, from which SGLang counts."
        proposal.arg("mem-fraction-static", share, why)
    proposal.arg("max-running-requests", SEQUENCES, "As NVIDIA's recipes for a Spark.")


def _llamacpp(proposal: Proposal, _facts: WeightFacts, cache: KvCachePlan | None, _box: MemoryBudget) -> None:
    proposal.arg("n-gpu-layers", 999, "All of them: the memory is one pool, and the GPU reads it faster.")
    if cache is not None:
        proposal.arg("ctx-size", cache.held, f"{cache.why} llama.cpp counts the tokens of all slots together.")
        proposal.arg("parallel", SEQUENCES, "Slots: requests at once.")
        proposal.arg("kv-unified", True, "Slots share the cache, so that one of them may use the whole context.")


_ENGINES: dict[EngineKind, Callable[[Proposal, WeightFacts, KvCachePlan | None, MemoryBudget], None]] = {
    EngineKind.VLLM: _vllm,
    EngineKind.SGLANG: _sglang,
    EngineKind.LLAMACPP: _llamacpp,
}
PROPOSED = tuple(_ENGINES)


def _plan_cache(facts: WeightFacts, box: MemoryBudget, choices: OwnerChoices) -> KvCachePlan | None:
    """Choose the largest wanted cache that fits: EACH per sequence or the full context, else less context.

    None where the bytes per token, or the context, are unknown.
    """
    context = choices.context or facts.context
    if context is None or _cache(facts, context) is None:
        return None
    budget = box.total - box.reserve - facts.bytes.total - OVERHEAD_BYTES
    why = "As you gave it." if choices.context else "The model's own."
    for held in (max(context, SEQUENCES * EACH), context):
        if _cache_bytes(facts, held) <= budget:
            return KvCachePlan(context, held, _cache_bytes(facts, held), why)
    if not choices.context and context > SHORTEST:
        context = _halved(facts, context, budget)
        why = f"The model's own is {tokens(facts.context)}, of which this is what fits."
    return KvCachePlan(context, context, _cache_bytes(facts, context), why)


def _halved(facts: WeightFacts, context: int, budget: int) -> int:
    """Halve the context until its cache fits, down to SHORTEST."""
    while context > SHORTEST and _cache_bytes(facts, context) > budget:
        context //= 2
    return context


def _cache_bytes(facts: WeightFacts, held: int) -> int:
    return _cache(facts, held) or 0


def _cache(facts: WeightFacts, held: int) -> int | None:
    """Return the bytes for that many tokens with the margin, in whole GiB."""
    bits = _bits(facts)
    size = facts.kv_bytes(held, SEQUENCES, bits, step=STEP)
    return None if size is None else max(1, ceil(size * MARGIN / GIB)) * GIB


def _bits(facts: WeightFacts) -> float:
    return 8.0 if (facts.kv_dtype or "").startswith("fp8") else BF16_BITS
