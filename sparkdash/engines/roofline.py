"""Upper bound of decode speed: memory bandwidth divided by the bytes of weights that a step reads.

Bytes come from the checkpoint's own headers: a model's name or its number of parameters would overstate the ceiling up
to twofold. Pure.
"""

import re
from collections.abc import Mapping

from sparkdash.domain.weights import Unread, WeightFacts

DRAFTLESS = ("ngram", "suffix")
"""Methods that draft from the text itself and read no weights."""
PEAK = 273e9
"""Bytes/s of the GB10's LPDDR5X by NVIDIA's data sheet of the DGX Spark."""


def most_steps_s(facts: Mapping[str, WeightFacts | Unread], speculation: str | None, nodes: int = 1) -> float | None:
    """Return the most decode steps per second of one sequence, by weights alone; None while a term is unknown."""
    target, drafter = facts.get("target"), facts.get("drafter")
    if not isinstance(target, WeightFacts) or isinstance(drafter, Unread):
        return None
    method, speculated = parse_speculation(speculation)
    drafted = draft_bytes(method, target, drafter)
    if drafted is None or (method and speculated is None):
        return None
    read = step_bytes(target, speculated or 0, drafted)
    return nodes * PEAK / read if read else None


def step_bytes(facts: WeightFacts, speculated: int = 0, drafted: int = 0) -> int | None:
    """Return the bytes that a step of one sequence moves, without its KV cache; None while a term is unknown.

    A step verifies 1 + `speculated` positions, with dense weights read once for all of them, and reads `drafted` bytes
    for each speculated one. States of linear layers are read and written.
    """
    states, hit = facts.kv_bytes(0), experts_hit(facts, 1 + speculated)
    if states is None or hit is None:
        return None
    weights = facts.bytes.dense + facts.head_bytes + round(facts.bytes.experts * hit)
    return weights + 2 * states + drafted * speculated


def experts_hit(facts: WeightFacts, positions: int) -> float | None:
    """The share of experts that `positions` tokens touch: 1 - (1 - k/E)^m for a uniform router; None while unknown."""
    if not facts.bytes.experts:
        return 0.0
    if not facts.experts or not facts.active_experts:
        return None
    chosen = min(facts.active_experts, facts.experts)
    return float(1 - (1 - chosen / facts.experts) ** positions)


def mtp_draft_bytes(facts: WeightFacts) -> int | None:
    """Return bytes read per token drafted by the model's own MTP layers, LM head included; None while unknown.

    An MTP layer is built as the body's layers are (DeepSeek-V3, Qwen3-Next), so the same share of it is active.
    """
    body, share = facts.bytes.dense + facts.bytes.experts, experts_hit(facts, 1)
    if not facts.mtp or share is None or not body:
        return None
    active = (facts.bytes.dense + facts.bytes.experts * share) / body
    return round(facts.bytes.draft * active) + facts.head_bytes


def model_draft_bytes(drafter: WeightFacts, target: WeightFacts) -> int | None:
    """Return bytes read per token drafted by another checkpoint; without a head it uses the target's."""
    active = drafter.active_bytes()
    if active is None:
        return None
    return active + (0 if drafter.head_bytes else target.head_bytes)


def parse_speculation(said: str | None) -> tuple[str, int | None]:
    """Parse `eagle3 k=1` or `mtp x 2` into (method, tokens ahead); ("", None) without speculation."""
    found = re.fullmatch(r"(.+?)\s*(?:x |k=)(\d+)", said or "")
    return (found[1].strip(), int(found[2])) if found else (said or "", None)


def draft_bytes(method: str, target: WeightFacts, drafter: WeightFacts | None) -> int | None:
    """Return the bytes read for one drafted token; None while unknown."""
    if not method or method in DRAFTLESS:
        return 0
    if drafter is not None:
        return model_draft_bytes(drafter, target)
    return mtp_draft_bytes(target) if "mtp" in method else None
