"""/v1/chat/completions and /v1/completions: vLLM 0.32's bodies and chunks.

Owns: those two shapes, whole and streamed, with usage where it was asked for. Must not know engines or sockets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from sparkdash.sim.api.answer import GeneratedAnswer, compact
from sparkdash.sim.engine.generation import AnswerPiece

FINGERPRINT = "sparkdash-sim"


def usage(answer: GeneratedAnswer, *, final: bool = True) -> dict[str, Any]:
    """Build vLLM's usage; cached and reasoning tokens are reported only at the end."""
    counts: dict[str, Any] = {
        "prompt_tokens": answer.prompt,
        "total_tokens": answer.prompt + answer.completion,
        "completion_tokens": answer.completion,
    }
    if not final:
        return counts
    if answer.reasoning:
        counts["completion_tokens_details"] = {"reasoning_tokens": answer.reasoning}
    return {**counts, "prompt_tokens_details": {"cached_tokens": answer.cached}}


def chat_body(answer: GeneratedAnswer) -> bytes:
    """Build the body of a whole chat answer."""
    said: dict[str, Any] = {"content": answer.text}
    if answer.call:
        function = {"name": answer.call.name, "arguments": answer.text}
        said = {"content": None, "tool_calls": [{"id": _call_id(answer), "type": "function", "function": function}]}
    message = {"role": "assistant", **said, "refusal": None, "reasoning": answer.thought or None}
    return _whole(answer, "chat.completion", {"message": message})


def completion_body(answer: GeneratedAnswer) -> bytes:
    """Build the body of a whole completion."""
    return _whole(answer, "text_completion", {"text": answer.text})


async def chat_stream(answer: GeneratedAnswer, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield chat chunks: the role, the text or a call's name and arguments, usage if requested, [DONE]."""
    first, thinks = True, answer.thinks
    async for piece in answer.pieces():
        if first:
            yield _chunk(answer, body, _choice(delta={"role": "assistant", "content": ""}), spoken=0)
            if answer.call:
                begun = {"id": _call_id(answer), "type": "function"}
                delta = _call_delta(begun, name=answer.call.name, arguments="")
                yield _chunk(answer, body, _choice(delta=delta), spoken=0)
            first = False
        if piece.text or piece.finish:
            delta = {"reasoning" if thinks else "content": piece.text}
            if answer.call:
                delta = _call_delta({}, arguments=piece.text)
            yield _chunk(answer, body, _choice(delta=delta, **_end(answer, piece)))
        thinks = answer.thinks
    async for event in _closing(answer, body, "chat.completion.chunk"):
        yield event


async def completion_stream(answer: GeneratedAnswer, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield completion chunks."""
    async for piece in answer.pieces():
        if piece.text or piece.finish:
            yield _chunk(answer, body, _choice(text=piece.text, **_end(answer, piece)), kind="text_completion")
    async for event in _closing(answer, body, "text_completion"):
        yield event


def _choice(**parts: Any) -> dict[str, Any]:
    return {"index": 0, **parts, "logprobs": None, "finish_reason": parts.get("finish_reason")}


def _call_id(answer: GeneratedAnswer) -> str:
    return f"chatcmpl-tool-{answer.id}"


def _call_delta(begun: Mapping[str, Any], **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, **begun, "function": function}]}


def _end(answer: GeneratedAnswer, piece: AnswerPiece) -> dict[str, Any]:
    return {"finish_reason": _reason(answer), "stop_reason": piece.stop_reason} if piece.finish else {}


def _reason(answer: GeneratedAnswer) -> str | None:
    return "tool_calls" if answer.call and answer.finish == "stop" else answer.finish


def _whole(answer: GeneratedAnswer, kind: str, content: Mapping[str, Any]) -> bytes:
    choice = _choice(**content, finish_reason=_reason(answer), stop_reason=answer.stop_reason)
    return compact(
        {**_base(answer, kind), "choices": [choice], "system_fingerprint": FINGERPRINT, "usage": usage(answer)}
    )


def _base(answer: GeneratedAnswer, kind: str) -> dict[str, Any]:
    prefix = "cmpl" if kind == "text_completion" else "chatcmpl"
    return {"id": f"{prefix}-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def _chunk(
    answer: GeneratedAnswer,
    body: Mapping[str, Any],
    choice: Mapping[str, Any],
    *,
    kind: str = "chat.completion.chunk",
    spoken: int | None = None,
) -> bytes:
    chunk: dict[str, Any] = {**_base(answer, kind), "choices": [choice]}
    if _option(body, "continuous_usage_stats"):
        chunk["usage"] = usage(answer, final=False)
        if spoken is not None:
            chunk["usage"] |= {"completion_tokens": spoken, "total_tokens": answer.prompt + spoken}
    return b"data: " + compact(chunk) + b"\n\n"


async def _closing(answer: GeneratedAnswer, body: Mapping[str, Any], kind: str) -> AsyncIterator[bytes]:
    if _option(body, "include_usage"):
        last = {**_base(answer, kind), "choices": [], "usage": usage(answer), "system_fingerprint": FINGERPRINT}
        yield b"data: " + compact(last) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _option(body: Mapping[str, Any], name: str) -> bool:
    options = body.get("stream_options")
    return bool(isinstance(options, Mapping) and options.get(name))
