"""Answers that are no JSON value: the feed, lines, steps; and how the OpenAPI document describes them.

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

_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ANY_ERROR = {"description": "Any error", "content": _ERROR}
"""Said outright where an answer is no JSON: FastAPI would describe the error as being of the answer's type."""
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
    """The feed speaks ASGI itself: no task and no encoding per listener and event."""

    media_type = "text/event-stream"

    def __init__(self, deps: Deps, holds: Callable[[], bool], since: int | None, status_code: int = 200) -> None:
        super().__init__(status_code=status_code)
        self._deps, self._holds, self._since = deps, holds, since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One listener."""
        deps, exchange = self._deps, Exchange.from_asgi(scope, receive, send)
        await event_feed.serve_feed(deps.bus, deps.event_encoder, exchange, self._since, holds=self._holds)


async def encoded(lines: AsyncIterator[str], holds: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Encode lines until the caller's key no longer `holds`.

    A failure after the first line becomes the last line, as the status has gone out.
    """
    try:
        async for line in lines:
            if not holds():
                return
            yield line.encode("utf-8", "replace") + b"\n"
    except SparkdashError as error:
        yield f"sparkdash: {error.text()}\n".encode()


async def pulled(steps: AsyncIterator[PullProgress]) -> AsyncIterator[bytes]:
    """One event a step; a failure is the last."""
    try:
        async for step in steps:
            yield event_frame("progress", step.model_dump(mode="json"))
    except SparkdashError as error:
        yield event_frame("error", problems.error_body(error))
