"""EngineResponse: an engine's answer, and the ways to take its body."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

from sparkdash.errors import UpstreamError
from sparkdash.sse import Lines
from sparkdash.upstream.connection import EngineConnection, Header, Take, UpgradedEngine

READ_LIMIT = 16 * 1024 * 1024
"""Most that `read` keeps of one answer; the largest /metrics seen is under 1 MiB."""


class EngineResponse:
    """An answer whose body is still to come.

    `headers`: as the engine sent them, without the Content-Length, with names in lower case.
    """

    __slots__ = ("_connection", "content_type", "ends_with_connection", "head", "headers", "length", "status")

    def __init__(self, connection: EngineConnection) -> None:
        self._connection = connection
        self.status = connection.status
        self.head = connection.head
        self.headers: list[Header] = self.head.headers
        self.content_type = self.head.content_type
        self.length = connection.length
        """Bytes of the body, where the engine says so before it."""
        self.ends_with_connection = not connection.framed
        """Whether only the connection's end ends the body (no chunks, no length): an engine's death looks the same."""

    @property
    def upgraded(self) -> UpgradedEngine | None:
        """The engine's socket after a 101; None after any other answer."""
        return self._connection.upgraded

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, never in empty pieces.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        while piece := await self._connection.piece():
            yield piece

    def pour(self, take: Take) -> Awaitable[bytes]:
        """Give each piece of the body to `take` as it comes, on the loop: `take` must not wait. Return the last piece.

        What `take` raises is raised here.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        return self._connection.pour(take)

    def pause(self) -> None:
        self._connection.pause()

    def resume(self) -> None:
        self._connection.resume()

    def broke_off(self, why: str) -> UpstreamError:
        return self._connection.broke_off(why)

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """Read the body, at most `limit` bytes of it."""
        parts, size = [], 0
        while size < limit and (piece := await self._connection.piece()):
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)[:limit]


ERROR_TEXT_LIMIT = 600
GENERATE_TOKENS = 16


def engine_error_text(body: bytes) -> str:
    """Return the text of an engine's error body, shortened.

    Engines put it in `error`, `error.message`, `message` or `detail`.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace").strip()
    for key in ("error", "message", "detail"):
        value = value.get(key) or value if isinstance(value, dict) else value
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:ERROR_TEXT_LIMIT] or "nothing"


def engine_refused(where: str, status: int, body: bytes) -> UpstreamError:
    return UpstreamError(f"The engine at {where} answered {status}: {engine_error_text(body)}", code="engine_refused")


def short_chat(model: str) -> bytes:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to five."}],
        "max_tokens": GENERATE_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    return json.dumps(body).encode()


async def chat_text(answer: EngineResponse, where: str) -> str:
    """Return all text of a streamed chat, content and reasoning, in order.

    The text of an answer that was cut by its length may be empty: some engines do not show their reasoning.

    Raises:
        UpstreamError: `engine_refused`; `engine_mute` when the answer ended by itself and contains no text.
    """
    texts: list[str] = []
    cut = False
    lines = Lines()
    async for chunk in answer.chunks():
        for choice in (choice for line in lines.feed(chunk) for choice in _choices(line.strip(), where)):
            texts += _delta_texts(choice)
            cut = cut or choice.get("finish_reason") == "length"
    text = "".join(texts)
    if not (cut or text.strip()):
        raise UpstreamError("its answer was empty", code="engine_mute")
    return text


def _delta_texts(choice: dict[str, Any]) -> list[str]:
    delta = choice.get("delta") or {}
    return [delta[key] for key in ("reasoning", "reasoning_content", "content") if delta.get(key)]


def _choices(line: str, where: str) -> list[dict[str, Any]]:
    if not line.startswith("data:") or line.endswith("[DONE]"):
        return []
    try:
        event = json.loads(line[5:])
    except (ValueError, RecursionError):
        raise engine_refused(where, 200, line.encode()) from None
    if not isinstance(event, dict) or "error" in event:
        raise engine_refused(where, 200, line[5:].encode())
    return event.get("choices") or []
