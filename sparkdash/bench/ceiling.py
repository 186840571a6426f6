"""The roofline of a cell that was measured: from what its launch was and what its counters say. Pure.

Owns: which facts of a run make the roofline's terms. Must not know: the arithmetic (roofline.py), the weights' files.
Rule: one term that is not known, and there is no ceiling; a missing KV dtype is not guessed from a flag.
"""

from __future__ import annotations

from statistics import median

from sparkdash.bench.metrics import acceptance_lengths
from sparkdash.bench.results import CellKey, Provenance, Results
from sparkdash.bench.roofline import Roofline, kv_bits, model_draft_bytes, mtp_draft_bytes, roofline, step
from sparkdash.bench.stats import geomean


def ceiling(results: Results, arm: str, key: CellKey) -> Roofline | None:
    """Of one arm in one cell, halfway through its answers; in tok/s of all concurrent requests together."""
    told = [one.provenance for one in results.launches if one.arm == arm and one.provenance.weights is not None]
    lengths, samples = acceptance_lengths(results, arm, key), results.good(arm, key)
    if not told or not lengths or not samples:
        return None
    facts, bits = told[-1].weights, kv_bits(told[-1].kv_dtype)
    speculated = _speculated(results, arm, key)
    draft = _draft_bytes(told[-1]) if speculated else 0
    if facts is None or bits is None or draft is None:
        return None
    moved = step(
        facts,
        context=round(median((one.prompt_tokens or key.context) + (one.n or key.output) / 2 for one in samples)),
        sequences=key.concurrency,
        speculated=speculated,
        key_bits=bits,
        draft_bytes=draft,
    )
    if moved is None:
        return None
    return roofline(moved, key.concurrency, geomean(list(lengths.values())), told[-1].nodes)


def _speculated(results: Results, arm: str, key: CellKey) -> int:
    """Tokens drafted per step by the engine's counters, rounded; 0 without any."""
    cells = [one for one in results.cells if one.arm == arm and one.key == key and one.void is None and one.drafts]
    drafts = sum(one.drafts or 0 for one in cells)
    return round(sum(one.draft_tokens or 0 for one in cells) / drafts) if drafts else 0


def _draft_bytes(launch: Provenance) -> int | None:
    """Read per drafted token: of a drafter's own checkpoint, of the target's MTP layers, or nothing for n-grams."""
    method = (launch.speculation or "").lower()
    if launch.weights is None or not method:
        return None
    if launch.drafter is not None:
        return model_draft_bytes(launch.drafter, launch.weights)
    if "ngram" in method:
        return 0
    return mtp_draft_bytes(launch.weights) if "mtp" in method else None
