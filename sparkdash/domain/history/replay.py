"""Replay: a captured request sent again to another profile, and how both answers compare.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen
from sparkdash.domain.lease import Request
from sparkdash.domain.swap import Plan


class AnswerMatch(Frozen):
    """Comparison of two answers' texts: reasoning, text and tool calls, in this order, by character."""

    identical: bool
    before: int
    """Characters of the captured answer."""
    after: int
    """Characters of the replay's answer."""
    differs_at: int | None = None
    """First character that differs, 1 is the first; None where the answers are identical."""


class Replay(Frozen):
    """Replay of one captured request, planned or carried out. It holds no text of request or answer."""

    request: str
    """Id of the captured request."""
    route: str
    stream: bool
    """Whether the answer is a stream. Without one neither TTFT nor decode rate is measured."""
    redacted: bool = False
    """Whether the captured body lacks what looked like a secret, so that the replay differs from the request."""
    profile: str
    """Profile that answers the replay."""
    plan: Plan
    """Effects of the replay on the engines, as of `use`."""
    original: Request | None = None
    """Row of the captured request; None where it is no longer recorded."""
    answer: Request | None = None
    """Row of the replay; None while it is only planned."""
    match: AnswerMatch | None = None
    """Comparison of both answers; None while the replay is only planned, or where either answer is not whole."""


def match_answers(before: str, after: str) -> AnswerMatch:
    """Compare two answers by character."""
    if before == after:
        return AnswerMatch(identical=True, before=len(before), after=len(after))
    pairs = enumerate(zip(before, after, strict=False))
    first = next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))
    return AnswerMatch(identical=False, before=len(before), after=len(after), differs_at=first + 1)
