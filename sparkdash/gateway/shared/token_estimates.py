"""TokenEstimates: tokens of one profile's requests before the engine has counted them.

Owns: two ratios, learned from ended requests: tokens per event of an answer, and bytes per token of a body. Must not
know answers or bodies. An estimate is never shown without "~".

Pure.
"""

from __future__ import annotations

FIRST_BYTES = 4.0
"""Bytes of a body per prompt token before anything was learned."""
FIRST_EVENTS = 1.0
"""Tokens per event before anything was learned: engines without speculation send one for each."""
LEARNS = 0.3
"""Weight of the newest request beside earlier ones."""
LEAST_TOKENS = 16
"""Tokens that a request must have to be learned from."""
ENCODED = b";base64,"
"""Sign of a picture or a sound in a body, whose bytes say nothing of tokens."""


class TokenEstimates:
    """Ratios of one profile."""

    __slots__ = ("_bytes_per_token", "_tokens_per_event")

    def __init__(self) -> None:
        self._tokens_per_event: float | None = None
        self._bytes_per_token: float | None = None

    def output_tokens(self, events: int) -> int:
        """Estimate the tokens of so many events with text."""
        return round(events * (self._tokens_per_event or FIRST_EVENTS))

    def prompt_tokens(self, body: bytes) -> int | None:
        """Estimate the prompt tokens of a body; None for an empty one, and one with pictures or sound."""
        if not body or ENCODED in body:
            return None
        return max(1, round(len(body) / (self._bytes_per_token or FIRST_BYTES)))

    def learn_output(self, events: int, tokens: int | None) -> None:
        """Learn from an ended answer."""
        if tokens is not None and tokens >= LEAST_TOKENS and events > 0:
            self._tokens_per_event = _learned(self._tokens_per_event, tokens / events)

    def learn_prompt(self, body_bytes: int, tokens: int | None) -> None:
        """Learn from a body whose prompt was counted. `body_bytes` is 0 for one that is not estimated."""
        if tokens is not None and tokens >= LEAST_TOKENS and body_bytes:
            self._bytes_per_token = _learned(self._bytes_per_token, body_bytes / tokens)


def _learned(before: float | None, seen: float) -> float:
    return seen if before is None else before + LEARNS * (seen - before)
