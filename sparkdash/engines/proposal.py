"""First profile for a model that has none: flags for a GB10 (`EngineAdapter.propose`), each with its reason.

Nothing is guessed: facts that the headers lack are left to the engine, and the reason says so. Pure.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from sparkdash.domain.weights import BF16_BITS, WeightFacts
from sparkdash.engines.memory_terms import OVERHEAD_BYTES
from sparkdash.units import GIB, tokens

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

Path = tuple[str, ...]


class KnownImage(NamedTuple):
    """Image for a Spark, with the version of the engine in it, and why it is proposed."""

    name: str
    version: str | None
    why: str


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

    def size_reason(self, facts: WeightFacts) -> str:
        each = facts.kv_bytes_per_token(_bits(facts))
        per = f"{each / 1024:.0f} KiB a token" if each else "states alone"
        return f"{tokens(self.held)} tokens, {per}, and 15 % for padded blocks. The rest stays free for another engine."


@dataclass(slots=True)
class Proposal:
    """Proposed profile, with the reason of each value."""

    profile: dict[str, Any]
    reasons: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, name: str, engine: str, facts: WeightFacts) -> "Proposal":
        about = facts.architecture or "a model"
        if facts.quantization:
            about += f" in {facts.quantization}"
        return cls({"profile": name, "about": about, "engine": engine})

    def arg(self, name: str, value: Any, why: str) -> None:
        self.profile.setdefault("args", {})[name] = value
        self.reasons["args", name] = why

    def take_image(self, known: KnownImage | None, choices: OwnerChoices) -> None:
        """Set the image and the engine's version in it: the owner's, else the known one for a Spark."""
        if choices.image is not None:
            known = KnownImage(
                choices.image, None, "As you gave it. Its tag may name another image tomorrow: pin a digest."
            )
        if release := choices.engine_version or (known.version if known else None):
            self.profile["engine_version"] = release
            self.reasons["engine_version",] = "Flags are checked against it."
        if known is not None:
            self.profile["image"] = known.name
            self.reasons["image",] = known.why


def plan_cache(facts: WeightFacts, box: MemoryBudget, choices: OwnerChoices) -> KvCachePlan | None:
    """Choose the largest cache that fits: EACH per sequence or the full context, else less; None while unknown."""
    context = choices.context or facts.context
    if context is None or _cache(facts, context) is None:
        return None
    budget = box.total - box.reserve - facts.bytes.total - OVERHEAD_BYTES
    why = "As you gave it." if choices.context else "The model's own."
    for held in (max(context, SEQUENCES * min(context, EACH)), context):
        if _cache_bytes(facts, held) <= budget:
            return KvCachePlan(context, held, _cache_bytes(facts, held), why)
    if not choices.context and context > SHORTEST:
        context = _halved(facts, context, budget)
        why = f"The model's own is {tokens(facts.context)}, of which this is what fits."
    return KvCachePlan(context, context, _cache_bytes(facts, context), why)


def _halved(facts: WeightFacts, context: int, budget: int) -> int:
    while context > SHORTEST and _cache_bytes(facts, context) > budget:
        context //= 2
    return context


def _cache_bytes(facts: WeightFacts, held: int) -> int:
    return _cache(facts, held) or 0


def _cache(facts: WeightFacts, held: int) -> int | None:
    """Return the bytes for that many tokens with the margin, in whole GiB."""
    size = facts.kv_bytes(held, SEQUENCES, _bits(facts), step=STEP)
    return None if size is None else max(1, ceil(size * MARGIN / GIB)) * GIB


def _bits(facts: WeightFacts) -> float:
    return 8.0 if (facts.kv_dtype or "").startswith("fp8") else BF16_BITS
