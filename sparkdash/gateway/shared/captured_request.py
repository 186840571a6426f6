"""CapturedRequest: a client's request as the capture files have it, with the text of its answer.

Rule: body and answer are what people wrote; neither reaches a log, an error or an answer of the control API.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """Captured request `id`, from the time `at` (Unix seconds)."""

    id: str
    at: float
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: object = field(repr=False)
    """The JSON document; other text as text; None where only its length was kept."""
    answer: str | None = field(default=None, repr=False)
    """Text of the answer; None where it broke off, was too long, or came before answers were kept."""
