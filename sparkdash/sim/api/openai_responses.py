"""/v1/responses: the whole response, and the shortest legal sequence of events.

Owns: that shape. Must not know engines or sockets. Like vLLM, an answer cut at its limit ends with
`response.completed` and the status "incomplete".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any

from sparkdash.sim.api.answer import GeneratedAnswer, compact


def response_body(answer: GeneratedAnswer) -> bytes:
    """Build the body of a whole answer."""
    return compact(_response(answer, done=True))


async def response_stream(answer: GeneratedAnswer, _: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield numbered events: created, in_progress, one item (message or tool call), completed.

    As with vLLM the first two come before the engine has the request, the others with its first token and after.
    """
    numbers = count()
    async for kind, fields in _events(answer):
        yield b"event: %b\ndata: %b\n\n" % (
            kind.encode(),
            compact({"type": kind, "sequence_number": next(numbers), **fields}),
        )


async def _events(answer: GeneratedAnswer) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    for state in ("created", "in_progress"):
        yield f"response.{state}", {"response": _response(answer, done=False)}
    item = _item(answer, "in_progress")
    place = {"item_id": item["id"], "output_index": 0}
    begun = False
    async for piece in answer.pieces():
        if not begun:
            yield "response.output_item.added", {"output_index": 0, "item": item}
            if not answer.call:
                yield "response.content_part.added", {**place, "content_index": 0, "part": _part("")}
            begun = True
        if piece.text and answer.call:
            yield "response.function_call_arguments.delta", {**place, "delta": piece.text}
        elif piece.text:
            yield "response.output_text.delta", {**place, "content_index": 0, "delta": piece.text, "logprobs": []}
    if answer.call:
        yield "response.function_call_arguments.done", {**place, "name": answer.call.name, "arguments": answer.text}
    else:
        place["content_index"] = 0
        yield "response.output_text.done", {**place, "text": answer.text, "logprobs": []}
        yield "response.content_part.done", {**place, "part": _part(answer.text)}
    yield "response.output_item.done", {"output_index": 0, "item": _item(answer, "completed")}
    yield "response.completed", {"response": _response(answer, done=True)}


def _response(answer: GeneratedAnswer, *, done: bool) -> dict[str, Any]:
    cut = done and answer.finish == "length"
    status = ("incomplete" if cut else "completed") if done else "in_progress"
    return {
        "id": f"resp_{answer.id}", "object": "response", "created_at": answer.created, "model": answer.model,
        "status": status, "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "error": None,
        "instructions": None, "metadata": None, "output": [_item(answer, "completed")] if done else [],
        "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": [],
        "usage": _usage(answer) if done else None,
    }  # fmt: skip


def _usage(answer: GeneratedAnswer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt,
        "input_tokens_details": {"cached_tokens": answer.cached},
        "output_tokens": answer.completion,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning},
        "total_tokens": answer.prompt + answer.completion,
    }


def _item(answer: GeneratedAnswer, status: str) -> dict[str, Any]:
    if answer.call:
        call = {"call_id": f"call_{answer.id}", "name": answer.call.name, "arguments": answer.text}
        return {"id": f"fc_{answer.id}", "type": "function_call", "status": status, **call}
    content = [_part(answer.text)] if status == "completed" else []
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
