"""/v1/messages: the whole message, and the shortest legal sequence of events.

Owns: that shape. Must not know engines or sockets.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sparkdash.sim.api.answer import GeneratedAnswer, compact


def message_body(answer: GeneratedAnswer) -> bytes:
    """Build the body of a whole answer."""
    content = [_block(answer, answer.text)]
    return compact({**_message(answer), "content": content, **_stop(answer), "usage": _usage(answer)})


async def message_stream(answer: GeneratedAnswer, _: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield message_start, one block of text or of a call's arguments, message_delta with usage, message_stop."""
    started = False
    kind, part = ("input_json_delta", "partial_json") if answer.call else ("text_delta", "text")
    async for piece in answer.pieces():
        if not started:
            start = {**_message(answer), "stop_reason": None, "stop_sequence": None}
            usage = {**_usage(answer), "output_tokens": 0}
            yield _event("message_start", message={**start, "usage": usage})
            yield _event("content_block_start", index=0, content_block=_block(answer, ""))
            started = True
        if piece.text:
            yield _event("content_block_delta", index=0, delta={"type": kind, part: piece.text})
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta=_stop(answer), usage=_usage(answer))
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), compact({"type": kind, **fields}))


def _message(answer: GeneratedAnswer) -> dict[str, Any]:
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "content": [], "model": answer.model}


def _block(answer: GeneratedAnswer, text: str) -> dict[str, Any]:
    if answer.call is None:
        return {"type": "text", "text": text}
    arguments = json.loads(text) if text and answer.finish != "length" else {}
    return {"type": "tool_use", "id": f"toolu_{answer.id}", "name": answer.call.name, "input": arguments}


def _stop(answer: GeneratedAnswer) -> dict[str, Any]:
    if answer.stop_reason is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    end = "tool_use" if answer.call else "end_turn"
    return {"stop_reason": "max_tokens" if answer.finish == "length" else end, "stop_sequence": None}


def _usage(answer: GeneratedAnswer) -> dict[str, Any]:
    """Build the usage; Anthropic's input_tokens exclude cached tokens."""
    return {
        "input_tokens": answer.prompt - answer.cached,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": answer.completion,
    }
