"""/v1/messages: the object, and the shortest legal sequence of events.

Owns: that shape. Must not know engines or sockets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from sparkdash.sim.answer import Answer, compact


def message_body(answer: Answer) -> bytes:
    """The whole answer."""
    content = [{"type": "text", "text": answer.text}]
    return compact({**_message(answer), "content": content, **_stop(answer), "usage": _usage(answer)})


async def message_stream(answer: Answer, _: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """message_start, one text block, message_delta with the usage, message_stop."""
    started = False
    async for piece in answer.pieces():
        if not started:
            start = {**_message(answer), "stop_reason": None, "stop_sequence": None}
            usage = {**_usage(answer), "output_tokens": 0}
            yield _event("message_start", message={**start, "usage": usage})
            yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            started = True
        if piece.text:
            yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece.text})
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta=_stop(answer), usage=_usage(answer))
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), compact({"type": kind, **fields}))


def _message(answer: Answer) -> dict[str, Any]:
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "content": [], "model": answer.model}


def _stop(answer: Answer) -> dict[str, Any]:
    if answer.stop_reason is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    return {"stop_reason": "max_tokens" if answer.finish == "length" else "end_turn", "stop_sequence": None}


def _usage(answer: Answer) -> dict[str, Any]:
    """Anthropic's input_tokens leave out what the cache held."""
    return {
        "input_tokens": answer.prompt - answer.cached,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": answer.completion,
    }
