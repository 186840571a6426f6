"""Streamed answers: the feed, lines and steps, and how the OpenAPI document describes them.

Owns: what becomes of a failure once the status is out. Must not know where the lines and steps come from.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from sparkdash.domain.container import PullProgress
from sparkdash.errors import SparkdashError
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http import event_feed
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.frames import event_frame

_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
_ANY_ERROR = {"description": "Any error", "content": _ERROR}
"""Stated where an answer is no JSON: FastAPI would describe the error with the media type of the answer."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {}}}, "description": "Server-sent events"},
    "default": _ANY_ERROR,
}
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Lines, as they come"},
    "default": _ANY_ERROR,
}
DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {}}}, "description": "As `sparkdash bench show --json` writes it"}
}


class FeedResponse(Response):
    """The feed to one listener, sent as raw ASGI messages: no task and no encoding per listener and event."""

    media_type = "text/event-stream"

    def __init__(self, deps: Deps, key_holds: Callable[[], bool], since: int | None, status_code: int = 200) -> None:
        super().__init__(status_code=status_code)
        self._deps, self._key_holds, self._since = deps, key_holds, since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the listener until it leaves."""
        deps, exchange = self._deps, Exchange.from_asgi(scope, receive, send)
        await event_feed.serve_feed(deps.bus, deps.event_encoder, exchange, self._since, holds=self._key_holds)


async def encode_lines(lines: AsyncIterator[str], key_holds: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Encode lines until the caller's key no longer `key_holds`.

    A failure after the first line becomes the last line, as the status has gone out.
    """
    try:
        async for line in lines:
            if not key_holds():
                return
            yield line.encode("utf-8", "replace") + b"\n"
    except SparkdashError as error:
        yield f"sparkdash: {error.text()}\n".encode()


async def encode_pull(steps: AsyncIterator[PullProgress]) -> AsyncIterator[bytes]:
    """Encode the steps of a pull as events; a failure becomes the last event."""
    try:
        async for step in steps:
            yield event_frame("progress", step.model_dump(mode="json"))
    except SparkdashError as error:
        yield event_frame("error", problems.error_body(error))
