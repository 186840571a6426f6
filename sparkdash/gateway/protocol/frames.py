"""Frames that sparkdash itself puts into a client's stream, in the stream's own protocol.

Rule: a chat stream gets whole chunks only: a bare `event: ping` or a chunk without `choices` breaks half of the
clients. Times and tolerances were measured on 17 clients. Pure.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from sparkdash.errors import SparkdashError
from sparkdash.gateway.protocol.problems import encode_json, error_message, response_code, stream_error_body
from sparkdash.gateway.protocol.route import Dialect, Route
from sparkdash.wire import ResponseHeaders

COMMENT = b":\n\n"
PROGRESS_MARK = "[sparkdash]"
"""Prefix of reasoning text that no model wrote; several agents send it back in their next turn."""
DONE = b"data: [DONE]\n\n"


class KeepAliveFrames:
    """Keep-alives of one waiting stream: `next()` gives the bytes of the next one.

    The reason for the wait goes into a comment where the protocol allows comments. With `reasoning` it goes into a chat
    as `reasoning_content` and into messages as a thinking block, marked with PROGRESS_MARK.
    """

    def __init__(self, dialect: Dialect, request_id: str, model: str, now: float, *, reasoning: bool = False) -> None:
        self._dialect = dialect
        self._id = request_id
        self.model = model
        self._created = int(now)
        self.events_sent = 0
        self._reasoning = reasoning
        self._last_news = ""
        self.has_open_thinking = False
        """Whether our thinking block is open in a messages stream."""

    @property
    def response_id(self) -> str:
        """Id of a waiting /v1/responses stream."""
        return f"resp_{self._id}"

    def next(self, waits_for: str = "") -> bytes:
        """Return the next keep-alive, one or two whole frames. `waits_for` is one line of text."""
        first = self.events_sent == 0
        news = self._news(waits_for)
        if self._dialect is Dialect.RESPONSES:
            return self._responses(first)
        self.events_sent += 1
        match self._dialect:
            case Dialect.CHAT:
                return data_frame(self._chunk(news))
            case Dialect.COMPLETIONS:
                return data_frame(self._text())
            case Dialect.MESSAGES:
                return self._messages(news)
            case _:
                return b": " + " ".join(waits_for.split()).encode() + b"\n\n" if waits_for else COMMENT

    def _news(self, waits_for: str) -> str:
        """Return one line of reasoning; empty unless the client wants it and it is new."""
        if not self._reasoning or waits_for in ("", self._last_news):
            return ""
        self._last_news = waits_for
        return f"{PROGRESS_MARK} {waits_for}\n"

    def _messages(self, news: str) -> bytes:
        """Return a ping, the one frame that may come before message_start, or frames with the news."""
        if not news:
            return event_frame("ping", {"type": "ping"})
        delta = {"type": "thinking_delta", "thinking": news}
        frame = event_frame("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta})
        if self.has_open_thinking:
            return frame
        self.has_open_thinking = True
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return (
            event_frame("message_start", {"type": "message_start", "message": self._message()})
            + event_frame("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block})
            + frame
        )

    def _message(self) -> dict[str, Any]:
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def _chunk(self, news: str) -> dict[str, Any]:
        """Build a chat chunk without a role: the engine's first chunk has one, and openai-python would join the two."""
        delta = {"reasoning_content": news} if news else {"content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._openai("chatcmpl", "chat.completion.chunk") | {"choices": [choice]}

    def _text(self) -> dict[str, Any]:
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": None}
        return self._openai("cmpl", "text_completion") | {"choices": [choice]}

    def _openai(self, prefix: str, kind: str) -> dict[str, Any]:
        return {"id": f"{prefix}-{self._id}", "object": kind, "created": self._created, "model": self.model}

    def _responses(self, first: bool) -> bytes:
        """Return typed events, as Codex reads no others. response.created must come first for the SDKs' helpers."""
        made = b""
        for name in ("response.created", "response.in_progress") if first else ("response.in_progress",):
            response = response_object(self.response_id, self.model, self._created, "in_progress")
            made += event_frame(name, {"type": name, "sequence_number": self.events_sent, "response": response})
            self.events_sent += 1
        return made


def response_object(response_id: str, model: str, created: int, status: str) -> dict[str, Any]:
    """Build a response object with every key that the Open Responses schema requires, at the protocol's defaults."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": status,
        "model": model,
        "output": [],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "top_p": 1.0,
        "store": False,
        "background": False,
        "service_tier": "default",
        "metadata": {},
        **dict.fromkeys(("presence_penalty", "frequency_penalty", "top_logprobs"), 0),
        **dict.fromkeys(_UNSET),
    }


_UNSET = (
    "error", "incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
    "prompt_cache_key", "safety_identifier", "usage",
)  # fmt: skip
"""Keys of a response that are null without a value."""


def failure_frames(
    error: SparkdashError, dialect: Dialect, *, model: str, now: float, response_id: str, sequence: int
) -> bytes:
    """Return the frames that end a failed stream. `sequence`: last number of a /v1/responses stream."""
    if dialect is Dialect.MESSAGES:
        return event_frame("error", stream_error_body(error, dialect))
    if dialect is Dialect.RESPONSES:
        failed = response_object(response_id, model, int(now), "failed")
        failed["error"] = {"code": response_code(error), "message": error_message(error), "reason": error.code}
        return event_frame(
            "response.failed", {"type": "response.failed", "sequence_number": sequence + 1, "response": failed}
        ) + event_frame("error", _responses_error(error, sequence + 2))
    return data_frame(stream_error_body(error, dialect)) + DONE


def _responses_error(error: SparkdashError, sequence: int) -> dict[str, Any]:
    """Encode the protocol's `error` event, with its facts at the top and in `error`.

    OpenAI documents the first and sends the second. SDKs raise for the second only, and the helper `responses.stream`
    of openai-python for nothing else.
    """
    facts = {"code": response_code(error), "message": error_message(error), "param": None}
    nested = {"type": stream_error_body(error, Dialect.RESPONSES)["error"]["type"], **facts, "reason": error.code}
    return {"type": "error", "sequence_number": sequence, **facts, "error": nested}


def data_frame(body: dict[str, Any]) -> bytes:
    """Encode an event without a name."""
    return b"data: " + encode_json(body) + b"\n\n"


def event_frame(name: str, body: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode_json(body) + b"\n\n"


PADDING_HEADER = b"x-sparkdash-keep-alive"
WORD = "whitespace"
JSON = "application/json"
PADDED_HEADERS = ResponseHeaders(
    [(b"content-type", JSON.encode()), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
)
PADDING = b"\n"
_JSON_PATHS = frozenset({"/v1/embeddings", "/v1/rerank", "/v1/score", "/rerank", "/v2/rerank", "/score"})
"""JSON routes besides those that generate; an answer about audio may have any format."""


def wants_padding(word: str | None, agent: str, route: Route, padded_clients: Iterable[str]) -> bool:
    """Whether the client asked for padding and the route answers with JSON.

    `word`: value of the client's PADDING_HEADER; without one, a User-Agent that matches `padded_clients` asks for it.
    """
    if route.profile is not None or not (route.generates or route.path in _JSON_PATHS):
        return False
    if word is not None:
        return word.strip().lower() == WORD
    return any(fnmatchcase(agent, pattern) for pattern in padded_clients)


def padding_can_precede(status: int, content_type: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an engine's answer is still JSON with white space before it."""
    coded = any(name == b"content-encoding" for name, _ in headers)
    return status < 300 and content_type == JSON and not coded
