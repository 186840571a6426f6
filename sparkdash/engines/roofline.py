"""Upper bound of decode speed: memory bandwidth divided by the bytes that a step reads.

Bytes come from the checkpoint's own headers and the KV dtype that the engine resolved: a model's name or its number of
parameters would overstate the ceiling up to twofold. A measured rate above the ceiling is flagged. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkdash.domain.base import Frozen
from sparkdash.domain.weights import BF16_BITS, Attention, Unread, WeightFacts
from sparkdash.engines.memory_terms import GGML_BITS, SIXTEEN

DRAFTLESS = ("ngram", "suffix")
"""Methods that draft from the text itself and read no weights."""
PEAK = 273e9
"""Bytes/s of the GB10's LPDDR5X by NVIDIA's data sheet of the DGX Spark."""


class DecodeStep(Frozen):
    """Bytes moved by one decode step: one forward pass over all sequences and speculated positions."""

    dense: int
    head: int
    experts: int
    """The routed experts that are hit, on average of a uniform router."""
    kv: int
    states: int
    """Bytes of linear layers' states, read and written."""
    draft: int
    """Bytes that drafting reads before the step."""

    @property
    def total(self) -> int:
        return self.dense + self.head + self.experts + self.kv + self.states + self.draft


class Roofline(Frozen):
    """The ceilings of one cell, in tokens per second of all sequences together."""

    step: DecodeStep
    sequences: int
    acceptance_length: float
    """Tokens per sequence and step; 1 without speculation."""
    nodes: int

    @property
    def peak_tok_s(self) -> float:
        return self.nodes * PEAK * self.acceptance_length * self.sequences / self.step.total

    def share(self, tok_s: float) -> float:
        """Measured / peak: 0.62 is 62 % of the roofline."""
        return tok_s / self.peak_tok_s

    def exceeded(self, tok_s: float) -> bool:
        return self.share(tok_s) > 1


def roofline(
    step: DecodeStep, sequences: int = 1, acceptance_length: float | None = 1.0, nodes: int = 1
) -> Roofline | None:
    """Return the ceilings; None for speculation without a known acceptance length. `nodes` share the bytes evenly."""
    if acceptance_length is None or not step.total:
        return None
    return Roofline(step=step, sequences=sequences, acceptance_length=acceptance_length, nodes=nodes)


def decode_step(
    facts: WeightFacts,
    *,
    context: int,
    sequences: int = 1,
    speculated: int = 0,
    key_bits: float = BF16_BITS,
    draft_bytes: int = 0,
) -> DecodeStep | None:
    """Bytes moved by a step when each of `sequences` has `context` tokens; None while a term is unknown.

    A step verifies 1 + `speculated` positions of every sequence, with dense weights read once for all of them, and
    `draft_bytes` for each speculated one.
    """
    cache = facts.kv_bytes(context * sequences, sequences, key_bits)
    hit = experts_hit(facts, sequences * (1 + speculated))
    if cache is None or hit is None:
        return None
    states = sum(
        layer.bytes(0, sequences, key_bits, key_bits) or 0 for layer in facts.kv if layer.kind is Attention.LINEAR
    )
    return DecodeStep(
        dense=facts.bytes.dense,
        head=facts.head_bytes,
        experts=round(facts.bytes.experts * hit),
        kv=cache - states,
        states=2 * states,
        draft=draft_bytes * speculated,
    )


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


def most_steps_s(facts: Mapping[str, WeightFacts | Unread], speculation: str | None, nodes: int = 1) -> float | None:
    """Return the most decode steps per second of one sequence, by weights alone; None while a term is unknown."""
    target, drafter = facts.get("target"), facts.get("drafter")
    if not isinstance(target, WeightFacts) or isinstance(drafter, Unread):
        return None
    method, speculated = parse_speculation(speculation)
    drafted = draft_bytes(method, target, drafter)
    if drafted is None or (method and speculated is None):
        return None
    step = decode_step(target, context=0, speculated=speculated or 0, draft_bytes=drafted)
    line = roofline(step, nodes=nodes) if step else None
    return line.peak_tok_s if line else None


def kv_bits(dtype: str | None) -> float | None:
    """Bits of one element of the KV cache by the dtype that the engine resolved; None for one that is not known."""
    name = (dtype or "").removeprefix("torch.").lower()
    if name.startswith(("fp8", "float8")):
        return 8.0
    return BF16_BITS if name in SIXTEEN else GGML_BITS.get(name)
