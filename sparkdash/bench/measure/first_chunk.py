"""Tokens of an answer's first moment, where the server does not count them chunk by chunk.

Owns: what `usage` and the number of chunks say of them, and the estimate where they say nothing. Must not know: HTTP.
The decode rate is (n - k1) / time, so k1 = 16 taken for 1 makes 32 tokens 94 % too fast.
Pure.
"""

from __future__ import annotations

from dataclasses import replace

from sparkdash.bench.measure.stream_answer import StreamedAnswer

NEGLIGIBLE = 0.005
"""Largest relative error of a decode rate that leaves k1 known: half of what the bench claims against other clients."""


def is_known(answer: StreamedAnswer) -> bool:
    """Whether k1 is certain enough: counted by the server, or bounded by usage and the number of chunks.

    Every chunk has at least one token. So `n` tokens in `n` chunks are one each, and a difference of d leaves at most
    d more tokens in the first.
    """
    if answer.k1_told or answer.n is None or answer.error:
        return True
    spare = answer.n - answer.chunks
    return spare <= 0 or spare <= NEGLIGIBLE * max(1, answer.n - answer.first_chunks)


def counted(answer: StreamedAnswer, tokens: int) -> StreamedAnswer:
    """Set k1 to the engine's own count of the first moment's text, within what the chunks allow."""
    return replace(answer, k1=_within_bounds(answer, tokens), k1_told=True)


def estimated(answer: StreamedAnswer) -> StreamedAnswer:
    """Set k1 by the share of characters that came at the first moment, and mark it as assumed."""
    whole = len(answer.text) + len(answer.thought)
    share = len(answer.first_text) / whole if whole else 0.0
    return replace(answer, k1=_within_bounds(answer, round((answer.n or 0) * share)), k1_assumed=True)


def _within_bounds(answer: StreamedAnswer, tokens: int) -> int:
    least = max(1, answer.first_chunks)
    return max(least, min(tokens, (answer.n or least) - (answer.chunks - answer.first_chunks)))
