"""State of one answer while it is generated, independent of any protocol."""

import base64
import json
import struct
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from sparkdash.sim import prompt, prose
from sparkdash.sim.engine import AnswerPiece, RefusedError, SimulatedEngine, SimulatedRequest
from sparkdash.sim.prompt import OrderedCall
from sparkdash.sim.speed import tokenize


class GeneratedAnswer:
    """Answer that grows while `pieces` is read. Counts are the engine's own."""

    def __init__(
        self,
        engine: SimulatedEngine,
        run: SimulatedRequest,
        model: str,
        *,
        reasoning_tokens: int = 0,
        call: OrderedCall | None = None,
    ) -> None:
        self.model = model
        self.call = call
        """Tool to call. The text is then its arguments, and there is no reasoning."""
        self.id = uuid.uuid4().hex[:16]
        self.created = int(time.time())
        self.text = ""
        self.thought = ""
        """Reasoning, which precedes the text."""
        self.completion = 0
        self.finish: str | None = None
        self.stop_reason: str | None = None
        self._engine = engine
        self._run = run
        self._reasoning_tokens = 0 if call else reasoning_tokens

    async def pieces(self) -> AsyncIterator[AnswerPiece]:
        async for piece in self._engine.stream(self._run):
            if self.thinks:
                self.thought += piece.text
            else:
                self.text += piece.text
            self.completion += piece.tokens
            self.finish, self.stop_reason = piece.finish, piece.stop_reason
            yield piece

    @property
    def thinks(self) -> bool:
        """Whether the next piece is reasoning."""
        return self.completion < self._reasoning_tokens

    @property
    def reasoning(self) -> int:
        return min(self.completion, self._reasoning_tokens)

    async def whole(self) -> None:
        async for _ in self.pieces():
            pass

    def drop(self) -> None:
        """Abort the request; a no-op once it has ended."""
        self._engine.abort(self._run)

    @property
    def prompt(self) -> int:
        return self._run.prompt

    @property
    def cached(self) -> int:
        """Prompt tokens from the prefix cache; known once the first piece is there."""
        return self._run.cached


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


SIZE = 256
LARGEST = 8192


def embed(body: Mapping[str, Any]) -> dict[str, Any]:
    texts, size = _texts(body), _dimensions(body)
    plain = body.get("encoding_format") != "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _embedding(text, size, plain=plain)}
        for index, text in enumerate(texts)
    ]
    spent = sum(len(tokenize(text)) for text in texts)
    usage = {"prompt_tokens": spent, "total_tokens": spent}
    return {"object": "list", "model": body["model"], "data": data, "usage": usage}


def _texts(body: Mapping[str, Any]) -> list[str]:
    source = body.get("input")
    given = source if isinstance(source, list) else [source]
    texts = [text for text in given if isinstance(text, str)]
    if not texts or len(texts) < len(given):
        raise RefusedError("input: the simulated engine takes a string or a list of strings", param="input")
    return texts


def _dimensions(body: Mapping[str, Any]) -> int:
    size = body.get("dimensions") or SIZE
    if not isinstance(size, int) or not 0 < size <= LARGEST:
        raise RefusedError(f"dimensions: a number from 1 to {LARGEST}", param="dimensions")
    return size


def _embedding(text: str, size: int, *, plain: bool) -> list[float] | str:
    rng = prose.seeded_random(text)
    raw = [rng.gauss(0.0, 1.0) for _ in range(size)]
    length = sum(value * value for value in raw) ** 0.5
    values = [value / length for value in raw]
    return values if plain else base64.b64encode(struct.pack(f"<{size}f", *values)).decode()


def message_body(answer: GeneratedAnswer) -> bytes:
    content = [_block(answer, answer.text)]
    return compact({**_message(answer), "content": content, **_stop(answer), "usage": _anthropic_usage(answer)})


async def message_stream(answer: GeneratedAnswer, _: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield message_start, one block of text or of a call's arguments, message_delta with usage, message_stop."""
    started = False
    kind, part = ("input_json_delta", "partial_json") if answer.call else ("text_delta", "text")
    async for piece in answer.pieces():
        if not started:
            start = {**_message(answer), "stop_reason": None, "stop_sequence": None}
            usage = {**_anthropic_usage(answer), "output_tokens": 0}
            yield _event("message_start", message={**start, "usage": usage})
            yield _event("content_block_start", index=0, content_block=_block(answer, ""))
            started = True
        if piece.text:
            yield _event("content_block_delta", index=0, delta={"type": kind, part: piece.text})
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta=_stop(answer), usage=_anthropic_usage(answer))
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


def _anthropic_usage(answer: GeneratedAnswer) -> dict[str, Any]:
    """Build the usage; Anthropic's input_tokens exclude cached tokens."""
    return {
        "input_tokens": answer.prompt - answer.cached,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": answer.completion,
    }


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
    said: dict[str, Any] = {"content": answer.text}
    if answer.call:
        function = {"name": answer.call.name, "arguments": answer.text}
        said = {"content": None, "tool_calls": [{"id": _call_id(answer), "type": "function", "function": function}]}
    message = {"role": "assistant", **said, "refusal": None, "reasoning": answer.thought or None}
    return _whole(answer, "chat.completion", {"message": message})


def completion_body(answer: GeneratedAnswer) -> bytes:
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
    told = {"choices": [choice], "system_fingerprint": FINGERPRINT, "usage": usage(answer)}
    return compact({**_base(answer, kind), **told})


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


def response_body(answer: GeneratedAnswer) -> bytes:
    return compact(_response(answer, done=True))


async def response_stream(answer: GeneratedAnswer, _: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield numbered events: created, in_progress, one item (message or tool call), completed.

    As with vLLM the first two come before the engine has the request, the others with its first token and after.
    """
    numbers = count()
    async for kind, fields in _events(answer):
        yield _event(kind, sequence_number=next(numbers), **fields)


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


@dataclass(frozen=True, slots=True)
class GenerationRoute:
    """Functions of a generation protocol: parse the body, stream events, build the whole body."""

    read: Callable[[Mapping[str, Any]], prompt.GenerationRequest]
    stream: Callable[[GeneratedAnswer, Mapping[str, Any]], AsyncIterator[bytes]]
    whole: Callable[[GeneratedAnswer], bytes]


PROTOCOLS = {
    "/v1/chat/completions": GenerationRoute(prompt.parse_chat, chat_stream, chat_body),
    "/v1/completions": GenerationRoute(prompt.parse_completion, completion_stream, completion_body),
    "/v1/responses": GenerationRoute(prompt.parse_response, response_stream, response_body),
    "/v1/messages": GenerationRoute(prompt.parse_message, message_stream, message_body),
}
NEWER = ("/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
