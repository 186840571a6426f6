"""ASGI types, and a `receive` that replays a body.

Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays the body once, then passes on what the client sends."""
    ours: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return ours.pop() if ours else await receive()

    return received


def with_headers(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Return a `send` that adds these headers to the start of the answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sent
