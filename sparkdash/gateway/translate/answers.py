"""Answers of chat completions as those of /v1/messages and /v1/responses, streamed and whole.

Rule: thoughts, text and each tool call are items of their own, in the order in which they begin. Pure.
"""

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkdash.errors import AdmissionError, BadAnswerError, SparkdashError
from sparkdash.gateway.protocol.frames import event_frame, response_object
from sparkdash.gateway.protocol.tap import error_code
from sparkdash.gateway.translate.requests import Body, ChatRequest
from sparkdash.sse import Frames
from sparkdash.upstream import engine_error_text, readable

DONE = "[DONE]"
SHOWN = 200


@dataclass
class Item:
    """Thoughts, text or a tool call of an answer."""

    kind: Literal["reasoning", "text", "call"]
    index: int
    call_id: str = ""
    name: str = ""
    key: object = None
    """By which the engine's pieces name a call: its index, or its id."""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    is_open: bool = True

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ChatAnswer:
    """Reads a chat's answer and writes it in another protocol; a class for each protocol."""

    def __init__(self, asked: Mapping[str, Any], chat: ChatRequest) -> None:
        self._asked = asked
        self._chat = chat
        self._frames = Frames()
        self._items: list[Item] = []
        self._id = ""
        self._created = 0
        self._usage: Body = {}
        self._finish = ""
        self._stop: str | None = None
        """Stop sequence that was met, where the engine says which."""
        self._over = False
        self._logprobs: list[Any] = []
        """Log probabilities of the piece at hand."""

    # what each protocol writes

    def _begin(self) -> Iterator[bytes]:
        return iter(())

    def _open(self, _item: Item) -> Iterator[bytes]:
        return iter(())

    def _grow(self, item: Item, piece: str) -> Iterator[bytes]:
        raise NotImplementedError

    def _close(self, _item: Item) -> Iterator[bytes]:
        return iter(())

    def _end(self) -> Iterator[bytes]:
        raise NotImplementedError

    def _whole(self) -> Body:
        raise NotImplementedError

    # what a chat says

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames of a piece of the engine's stream. Raises SparkdashError: the engine's own error."""
        for frame in self._frames.feed(chunk):
            yield from self._finished() if frame.data == DONE else self._chunk(_object(frame.data))

    def end(self) -> Iterator[bytes]:
        """Yield what is left once the engine's stream has ended."""
        yield from self._finished()

    def whole(self, body: bytes) -> bytes:
        for _ in self._chunk(_object(body.decode("utf-8", "replace"))):
            pass
        for _ in self._finished():
            pass
        return json.dumps(self._whole(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _chunk(self, body: Body) -> Iterator[bytes]:
        if body.get("error"):
            raise engine_error(json.dumps(body).encode(), _status(body["error"]))
        if not self._id:
            self._id = str(body.get("id") or "chat").removeprefix("chatcmpl-")
            self._created = int(body.get("created") or 0)
            yield from self._begin()
        self._usage = body.get("usage") or self._usage
        for choice in (body.get("choices") or ())[:1]:
            self._logprobs = (choice.get("logprobs") or {}).get("content") or []
            yield from self._say(choice.get("delta") or choice.get("message") or {"content": choice.get("text")})
            self._finish = choice.get("finish_reason") or self._finish
            if isinstance(stop := choice.get("stop_reason"), str):
                self._stop = stop

    def _say(self, said: Body) -> Iterator[bytes]:
        if thoughts := said.get("reasoning_content") or said.get("reasoning"):
            yield from self._write("reasoning", thoughts)
        if text := said.get("content"):
            yield from self._write("text", text)
        for call in said.get("tool_calls") or ():
            yield from self._write_call(call)

    def _write(self, kind: Literal["reasoning", "text"], piece: str) -> Iterator[bytes]:
        item = self._items[-1] if self._items else None
        if item is None or item.kind != kind:
            yield from self._closed()
            item = yield from self._added(Item(kind, len(self._items)))
        yield from self._grown(item, piece)

    def _write_call(self, call: Body) -> Iterator[bytes]:
        """Write a piece of a call. Without an index, a new id or a name begins one; two ids are never one call."""
        function, call_id = call.get("function") or {}, call.get("id")
        key = call.get("index")
        known = [item for item in self._items if item.kind == "call" and (key is None or item.key == key)]
        item = known[-1] if known else None
        if item is None or (call_id and call_id != item.call_id) or (key is None and function.get("name")):
            yield from self._closed("reasoning", "text")
            number = len(self._items)
            name = function.get("name") or ""
            item = yield from self._added(Item("call", number, call_id or f"call_{self._id}_{number}", name, key))
        if piece := _arguments(function.get("arguments")):
            yield from self._grown(item, piece)

    def _added(self, item: Item) -> Generator[bytes, None, Item]:
        self._items.append(item)
        yield from self._open(item)
        return item

    def _grown(self, item: Item, piece: str) -> Iterator[bytes]:
        item.pieces.append(piece)
        if item.kind == "text":
            item.logprobs += self._logprobs
        yield from self._grow(item, piece)

    def _closed(self, *kinds: str) -> Iterator[bytes]:
        """Close the open items of these kinds; all without one. Calls stay open: pieces of two may alternate."""
        for item in self._items:
            if item.is_open and (not kinds or item.kind in kinds):
                item.is_open = False
                yield from self._close(item)

    def _finished(self) -> Iterator[bytes]:
        if self._over:
            return
        if not self._id:
            raise BadAnswerError("The engine answered with an empty stream.")
        self._over = True
        yield from self._closed()
        yield from self._end()


def _arguments(given: object) -> str:
    """Return a call's arguments as text; some servers send an object."""
    return given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)


def _object(text: str) -> Body:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadAnswerError(f"The engine answered with no JSON object: {readable(text.encode())[:SHOWN]}.")
    return body


def engine_error(words: bytes, status: int) -> SparkdashError:
    """Make an error of the engine's own: its words, and of the kind that says whether to try again."""
    family = AdmissionError if status < 500 and status != 429 else SparkdashError
    return family(engine_error_text(words), code=error_code(words) or "engine_refused", status=status)


def _status(error: object) -> int:
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


class MessagesAnswer(ChatAnswer):
    """Writes /v1/messages."""

    def _begin(self) -> Iterator[bytes]:
        message = self._message([], None, {"input_tokens": 0, "output_tokens": 0})
        yield event_frame("message_start", {"type": "message_start", "message": message})

    def _open(self, item: Item) -> Iterator[bytes]:
        block = self._block(item, {} if item.kind == "call" else "")
        yield self._event("content_block_start", item, content_block=block)

    def _grow(self, item: Item, piece: str) -> Iterator[bytes]:
        match item.kind:
            case "text":
                delta = {"type": "text_delta", "text": piece}
            case "reasoning":
                delta = {"type": "thinking_delta", "thinking": piece}
            case _:
                delta = {"type": "input_json_delta", "partial_json": piece}
        yield self._event("content_block_delta", item, delta=delta)

    def _close(self, item: Item) -> Iterator[bytes]:
        if item.kind == "reasoning":  # the SDKs' types need one
            yield self._event("content_block_delta", item, delta={"type": "signature_delta", "signature": ""})
        yield self._event("content_block_stop", item)

    def _end(self) -> Iterator[bytes]:
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": self._stop}
        yield event_frame("message_delta", {"type": "message_delta", "delta": delta, "usage": self._counts()})
        yield event_frame("message_stop", {"type": "message_stop"})

    def _whole(self) -> Body:
        blocks = [self._block(item, _input(item) if item.kind == "call" else item.text) for item in self._items]
        return self._message(blocks, self._stop_reason(), self._counts()) | {"stop_sequence": self._stop}

    def _message(self, content: list[Body], stop: str | None, usage: Body) -> Body:
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "model": self._asked.get("model"),
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def _block(self, item: Item, content: Any) -> Body:
        match item.kind:
            case "text":
                return {"type": "text", "text": content}
            case "reasoning":
                return {"type": "thinking", "thinking": content, "signature": ""}
        return {"type": "tool_use", "id": item.call_id, "name": item.name, "input": content}

    def _event(self, name: str, item: Item, **more: Any) -> bytes:
        return event_frame(name, {"type": name, "index": item.index, **more})

    def _stop_reason(self) -> str:
        if any(item.kind == "call" for item in self._items):
            return "tool_use"
        if self._stop is not None:
            return "stop_sequence"
        return {"length": "max_tokens", "content_filter": "refusal"}.get(self._finish, "end_turn")

    def _counts(self) -> Body:
        """Return the counts; the protocol's `input_tokens` has none that were read from the cache."""
        cached = _detail(self._usage, "prompt_tokens_details", "cached_tokens")
        counts = {
            "input_tokens": self._usage.get("prompt_tokens", 0) - cached,
            "output_tokens": self._usage.get("completion_tokens", 0),
        }
        return counts | ({"cache_read_input_tokens": cached} if cached else {})


_ECHOED = (
    "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "parallel_tool_calls",
    "presence_penalty", "prompt_cache_key", "safety_identifier", "store", "temperature", "tool_choice", "top_logprobs",
    "top_p", "truncation", "user",
)  # fmt: skip
"""Keys of a request that its response repeats."""
_TOOL = dict.fromkeys(("description", "parameters", "strict"))
"""Keys that each of its functions has."""


class ResponsesAnswer(ChatAnswer):
    """Writes /v1/responses."""

    def __init__(self, asked: Mapping[str, Any], chat: ChatRequest) -> None:
        super().__init__(asked, chat)
        self._number = 0

    def _begin(self) -> Iterator[bytes]:
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress"))

    def _open(self, item: Item) -> Iterator[bytes]:
        yield self._event("response.output_item.added", output_index=item.index, item=self._item(item, "in_progress"))
        if item.kind != "call":
            yield self._of(item, "response.content_part.added", content_index=0, part=self._part(item, ""))

    def _grow(self, item: Item, piece: str) -> Iterator[bytes]:
        match item.kind:
            case "text":
                logprobs = _logprobs(self._logprobs)
                yield self._of(item, "response.output_text.delta", content_index=0, delta=piece, logprobs=logprobs)
            case "reasoning":
                yield self._of(item, "response.reasoning_text.delta", content_index=0, delta=piece)
            case _:
                yield self._of(item, "response.function_call_arguments.delta", delta=piece)

    def _close(self, item: Item) -> Iterator[bytes]:
        match item.kind:
            case "text":
                logprobs = _logprobs(item.logprobs)
                yield self._of(item, "response.output_text.done", content_index=0, text=item.text, logprobs=logprobs)
            case "reasoning":
                yield self._of(item, "response.reasoning_text.done", content_index=0, text=item.text)
            case _:
                done = {"arguments": item.text, "name": item.name}
                yield self._of(item, "response.function_call_arguments.done", **done)
        if item.kind != "call":
            yield self._of(item, "response.content_part.done", content_index=0, part=self._part(item, item.text))
        yield self._event("response.output_item.done", output_index=item.index, item=self._item(item, "completed"))

    def _end(self) -> Iterator[bytes]:
        response = self._whole()
        yield self._event(f"response.{response['status']}", response=response)

    def _whole(self) -> Body:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(self._finish)
        response = self._response("completed" if reason is None else "incomplete")
        response["output"] = [self._item(item, "completed") for item in self._items]
        response["incomplete_details"] = None if reason is None else {"reason": reason}
        prompt, completion = self._usage.get("prompt_tokens", 0), self._usage.get("completion_tokens", 0)
        cached = _detail(self._usage, "prompt_tokens_details", "cached_tokens")
        reasoning = _detail(self._usage, "completion_tokens_details", "reasoning_tokens")
        response["usage"] = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": prompt + completion,
        }
        return response

    def _response(self, status: str) -> Body:
        asked = {key: value for key, value in self._asked.items() if value is not None}
        made = response_object(f"resp_{self._id}", str(asked.get("model")), self._created, status)
        made |= {key: asked[key] for key in _ECHOED if key in asked}
        made |= {key: made[key] | asked[key] for key in ("reasoning", "text") if key in asked}
        made["tools"] = [(_TOOL if tool.get("type") == "function" else {}) | tool for tool in asked.get("tools", ())]
        return made

    def _item(self, item: Item, status: str) -> Body:
        is_whole = status == "completed"
        common = {"id": f"{_PREFIX[item.kind]}_{self._id}_{item.index}", "status": status}
        match item.kind:
            case "text":
                content = [self._part(item, item.text)] if is_whole else []
                return common | {"type": "message", "role": "assistant", "content": content}
            case "reasoning":
                content = [self._part(item, item.text)] if is_whole else []
                return common | {"type": "reasoning", "summary": [], "content": content}
        space, name = self._chat.namespaces.get(item.name, (None, item.name))
        call = {"type": "function_call", "call_id": item.call_id, "name": name, "arguments": item.text}
        return common | call | ({"namespace": space} if space else {})

    def _part(self, item: Item, text: str) -> Body:
        if item.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        logprobs = _logprobs(item.logprobs) if text else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _of(self, item: Item, event: str, **more: Any) -> bytes:
        return self._event(event, item_id=self._item(item, "in_progress")["id"], output_index=item.index, **more)

    def _event(self, event: str, **more: Any) -> bytes:
        frame = event_frame(event, {"type": event, "sequence_number": self._number, **more})
        self._number += 1
        return frame


_PREFIX = {"text": "msg", "reasoning": "rs", "call": "fc"}


def _detail(usage: Body, of: str, key: str) -> int:
    return (usage.get(of) or {}).get(key) or 0


def _input(item: Item) -> Any:
    """Return a call's arguments as an object; as text where the model wrote no JSON."""
    try:
        return json.loads(item.text or "{}")
    except (ValueError, RecursionError):
        return {"arguments": item.text}


def _logprobs(given: list[Any]) -> list[Body]:
    return [{"top_logprobs": [], **each} for each in given if isinstance(each, dict)]
