"""Content and moments of one streamed answer, parsed from its timed pieces once it has ended.

Rule: tokens are counted by the engine; chunks are never counted as tokens. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkdash.sse import Frames

WORDS = 300


@dataclass(slots=True)
class StreamedAnswer:
    """Parsed stream. Times by `perf_counter_ns`; None: the event never came, or was not reported."""

    t0_ns: int
    token_ns: int | None = None
    visible_ns: int | None = None
    last_ns: int | None = None
    itl_p99_ns: int | None = None
    n: int | None = None
    k1: int = 1
    """Tokens that came at the first token's moment."""
    k1_told: bool = False
    k1_assumed: bool = False
    """Whether `k1` is an estimate on which the decode rate hangs."""
    first_text: str = ""
    visible: int | None = None
    chunks: int = 0
    first_chunks: int = 0
    """Events with tokens at the first token's moment. With several, it is the moment of the last."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    thought: str = ""
    error: str | None = None
    lag_ms: float = 0.0
    late_ns: tuple[int, ...] = ()
    """Delay of each read after its arrival; empty where the kernel reports none."""


def read_stream(t0_ns: int, notes: Sequence[tuple[int, bytes]]) -> StreamedAnswer:
    reader, frames = _Reader(t0_ns), Frames()
    for at, piece in notes:
        for frame in frames.feed(piece):
            if frame.data != "[DONE]":
                reader.take(at, frame.data)
    return reader.answer()


class _Reader:
    def __init__(self, t0_ns: int) -> None:
        self._answer = StreamedAnswer(t0_ns)
        self._count = 0
        """Tokens so far, as far as chunks tell."""
        self._thoughts = 0
        self._gaps: list[int] = []
        """Nanoseconds between the moments at which tokens came."""
        self._told = False
        self._usage: Mapping[str, Any] = {}
        self._text: list[str] = []
        self._thought: list[str] = []

    def take(self, at: int, data: str) -> None:
        answer, event = self._answer, _parsed(data)
        if event is None:
            answer.error = answer.error or f"an event is no JSON object: {data[:WORDS]}"
            return
        if event.get("error"):
            answer.error = answer.error or refusal_text(data.encode())
            return
        usage = _within(event, "usage")
        if usage:
            self._usage = {**self._usage, **usage}
        for choice in _choices(event):
            self._choice(at, choice, usage)

    def _choice(self, at: int, choice: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        answer, delta = self._answer, _within(choice, "delta")
        content = _text(delta, "content")
        thought = _text(delta, "reasoning") or _text(delta, "reasoning_content")
        answer.finish_reason = _text(choice, "finish_reason") or answer.finish_reason
        before = self._count
        self._count_tokens(choice, usage)
        if not (content or thought or delta.get("tool_calls") or self._count > before):
            return
        self._note_moment(at, thought + content)
        if thought:
            self._thoughts += self._count - before
            self._thought.append(thought)
        if content:
            self._text.append(content)
            if answer.visible_ns is None:
                answer.visible_ns = at

    def _count_tokens(self, choice: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        if (count := _count(usage, "completion_tokens")) is not None:
            self._count, self._told = count, True
        elif isinstance(ids := choice.get("token_ids"), list):
            self._count, self._told = self._count + len(ids), True

    def _note_moment(self, at: int, text: str) -> None:
        answer = self._answer
        answer.chunks += 1
        if answer.last_ns is not None and at > answer.last_ns:
            self._gaps.append(at - answer.last_ns)
        answer.last_ns = at
        if answer.token_ns is None:
            answer.token_ns = at
        if at == answer.token_ns:
            answer.first_chunks += 1
            answer.first_text += text
            answer.k1_told = self._told and self._count > 0
            answer.k1 = self._count if answer.k1_told else answer.first_chunks

    def answer(self) -> StreamedAnswer:
        answer = self._answer
        answer.n = _count(self._usage, "completion_tokens")
        answer.itl_p99_ns = sorted(self._gaps)[int(0.99 * len(self._gaps))] if self._gaps else None
        answer.visible = self._seen(answer.n)
        answer.prompt_tokens = _count(self._usage, "prompt_tokens")
        answer.cached_tokens = _count(_within(self._usage, "prompt_tokens_details"), "cached_tokens")
        answer.text, answer.thought = "".join(self._text), "".join(self._thought)
        return answer

    def _seen(self, n: int | None) -> int | None:
        """Return tokens outside the reasoning: by `usage`, else by the chunks."""
        if n is None or not self._thought:
            return n
        told = _count(_within(self._usage, "completion_tokens_details"), "reasoning_tokens")
        hidden = told if told is not None else self._thoughts if self._told else None
        return None if hidden is None else max(0, n - hidden)


# What a stranger's server sends may be of any shape: what is not what it should be was not told.


def _parsed(data: str) -> dict[str, Any] | None:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _within(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _choices(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = event.get("choices")
    return [choice for choice in found if isinstance(choice, Mapping)] if isinstance(found, list) else []


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _count(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def refusal_text(body: bytes) -> str:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace").strip()
    for key in ("error", "message", "detail"):
        value = (value.get(key) or value) if isinstance(value, dict) else value
    return (value if isinstance(value, str) else json.dumps(value))[:WORDS] or "nothing"


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
