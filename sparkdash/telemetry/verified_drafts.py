"""Verified drafts of Atlas: one counter by its draft's length and by how much of it was accepted.

Owns: what the labels mean. `k` is the number of drafted tokens and one more; `outcome` is `reject`, `accept` (the one
token of k = 2) or `accept-J` (the first J tokens). Source: Avarok-Cybersecurity/atlas, crates/spark-server, 2026; read,
never run. Rule: one sample whose labels say something else leaves all of it unknown.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.telemetry.exposition import ParsedSample

_ACCEPTED = re.compile(r"accept(?:-(\d{1,3}))?")


class VerifiedDrafts(NamedTuple):
    """Counts over all drafts so far."""

    drafts: float
    draft_tokens: float
    accepted: float
    accepted_at: dict[int, float]
    """Accepted tokens by draft position, from 0."""


def verified_drafts(samples: Sequence[ParsedSample]) -> VerifiedDrafts | None:
    """Add up the counter's samples; None without any, and where one cannot be read."""
    if not samples:
        return None
    drafts = draft_tokens = 0.0
    accepted_at: dict[int, float] = {}
    for sample in samples:
        count = sample.value
        drafted, accepted = _drafted(sample.labels.get("k", "")), _accepted(sample.labels.get("outcome", ""))
        if drafted is None or accepted is None or accepted > drafted:
            return None
        drafts += count
        draft_tokens += drafted * count
        for position in range(drafted):
            accepted_at[position] = accepted_at.get(position, 0.0) + (count if position < accepted else 0.0)
    return VerifiedDrafts(drafts, draft_tokens, sum(accepted_at.values()), accepted_at)


def _drafted(k: str) -> int | None:
    return int(k) - 1 if re.fullmatch(r"\d{1,3}", k) and int(k) > 1 else None


def _accepted(outcome: str) -> int | None:
    if outcome == "reject":
        return 0
    found = _ACCEPTED.fullmatch(outcome)
    return int(found[1] or 1) if found else None
