"""Text of a whole answer: reasoning, text and tool calls, from a stream or from one JSON document.

Ids and times are left out, so that equal answers have equal texts. Pure.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from sparkdash.gateway.protocol.route import Dialect
from sparkdash.sse import Frames
from sparkdash.units import MIB

Parts = Iterator[tuple[str, str]]
REASONING, TEXT, CALL = "reasoning", "text", "call"


def answer_text(raw: bytes, dialect: Dialect, *, stream: bool) -> str | None:
    """Return the text of an answer; None where it cannot be read."""
    parts = {REASONING: "", TEXT: "", CALL: ""}
    try:
        documents = _events(raw) if stream else iter((json.loads(raw),))
        for document in documents:
            for kind, text in _READERS[dialect](document):
                parts[kind] += text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return "\n".join(text for text in parts.values() if text)


def _events(raw: bytes) -> Iterator[Any]:
    for frame in Frames().feed(raw):
        if frame.data.startswith("{"):
            yield json.loads(frame.data)


def _chat(document: Any) -> Parts:
    for choice in document.get("choices") or ():
        said = choice.get("delta") or choice.get("message") or {}
        yield REASONING, _field(said, "reasoning_content", "reasoning")
        yield TEXT, _field(said, "content", "refusal")
        for call in said.get("tool_calls") or ():
            function = call.get("function") or {}
            yield CALL, _field(function, "name") + _field(function, "arguments")


def _field(part: Any, *names: str) -> str:
    return next(filter(None, map(part.get, names)), "")


def _completions(document: Any) -> Parts:
    for choice in document.get("choices") or ():
        yield TEXT, _field(choice, "text")


_RESPONSE_DELTAS = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": TEXT,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
    "response.function_call_arguments.delta": CALL,
}
_RESPONSE_ITEMS = {"message": TEXT, "reasoning": REASONING}


def _responses(document: Any) -> Parts:
    if "type" in document:  # an event of a stream
        kind = _RESPONSE_DELTAS.get(document["type"])
        if kind is not None:
            yield kind, _field(document, "delta")
        return
    for item in document.get("output") or ():
        if item.get("type") == "function_call":
            yield CALL, _field(item, "arguments")
        elif kind := _RESPONSE_ITEMS.get(item.get("type")):
            for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
                yield kind, _field(part, "text", "refusal")


def _messages(document: Any) -> Parts:
    if document.get("type") == "content_block_delta":
        yield from _message_part(document.get("delta") or {})
    elif document.get("type") == "message":
        for block in document.get("content") or ():
            yield from _message_part(block)


def _message_part(part: Any) -> Parts:
    yield REASONING, _field(part, "thinking")
    yield TEXT, _field(part, "text")
    yield CALL, part.get("partial_json") or (json.dumps(part["input"]) if part.get("input") else "")


_READERS: dict[Dialect, Callable[[Any], Parts]] = {
    Dialect.CHAT: _chat,
    Dialect.COMPLETIONS: _completions,
    Dialect.RESPONSES: _responses,
    Dialect.MESSAGES: _messages,
}


LIMIT = 2 * MIB
"""Bytes beyond which an answer is not kept at all: a stream has some 200 bytes for each token."""

Note = Callable[[bytes, float], object]


class KeptAnswer:
    """Answer to the request `request_id`, as the engine gave it."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.is_whole = False
        """Whether the answer came to its end without an error."""
        self.own_id: str | None = None
        """Id that the client was told before the engine's, in a /v1/responses stream that waited."""
        self._stream = False
        self._size = 0
        self._pieces: list[bytes] = []

    def begin(self, note: Note, *, stream: bool) -> Note:
        """Return a `note` that keeps each piece as well; an answer that was begun before is dropped."""
        pieces = self._pieces = []
        self._size, self._stream, self.is_whole = 0, stream, False

        def noted(piece: bytes, now: float) -> None:
            note(piece, now)
            self._size += len(piece)
            if self._size <= LIMIT:
                pieces.append(piece)

        return noted

    def text(self, dialect: Dialect) -> str | None:
        """Return the text of the whole answer; None where it broke off, is too long or cannot be read."""
        if not self.is_whole or self._size > LIMIT:
            return None
        return answer_text(b"".join(self._pieces), dialect, stream=self._stream)

    def response(self) -> dict[str, Any] | None:
        """Return the object of a whole answer of /v1/responses, with the id that the client knows; else None."""
        if not self.is_whole or self._size > LIMIT:
            return None
        raw = b"".join(self._pieces)
        try:
            told = list(_events(raw))[-1]["response"] if self._stream else json.loads(raw)
            return {**told, "id": self.own_id or told["id"]}
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
