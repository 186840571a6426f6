"""Limits: how much of anything a client may send before it is looked at.

Owns: the numbers, which docs/api.md tells. Those that an owner may change are settings (`body_limit_mib`). Pure.
Rule: whatever a client chooses the size of is held against one of these first, so that a request costs no more than its size.
"""

from __future__ import annotations

NAME = 512
"""Characters of a profile's, model's or run's name."""
SHOWN = 64
"""Characters of a client's word that a message repeats."""


def shown(word: str) -> str:
    """A client's word, as much of it as a message can hold."""
    return word if len(word) <= SHOWN else f"{word[:SHOWN]}…"
