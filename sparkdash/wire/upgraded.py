"""UpgradedConnection: bytes of a client whose request asks for WebSocket, behind the head of that request.

Owns: what the client sends before the application takes it, and how much of it waits. Must not know frames. The
connection's other callbacks go on to the ClientConnection; as the socket gets a new protocol object, plain requests
pay nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from sparkdash.wire.request_body import BODY_LIMIT
from sparkdash.wire.request_head import RequestHead

Take = Callable[[bytes], object]
_UPGRADE, _KEY = b"upgrade", b"sec-websocket-key"


class _PlainConnection(Protocol):
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


def asks_for_websocket(head: RequestHead, length: bytes | None) -> bool:
    """Whether a request opens a WebSocket (RFC 6455 section 4.1); it has no body."""
    named = head.named
    if head.method != "GET" or _KEY not in named or b"transfer-encoding" in named or length not in (None, b"0"):
        return False
    return any(word.strip().lower() == b"websocket" for word in named.get(_UPGRADE, b"").split(b","))


class UpgradedConnection(asyncio.Protocol):
    """Protocol of the socket from the upgrade's head on. `first`: bytes that came with the head."""

    def __init__(self, connection: _PlainConnection, first: bytes) -> None:
        self._connection = connection
        self._kept = [first] if first else []
        self._kept_bytes = len(first)
        self._take: Take | None = None

    def pour(self, take: Take) -> None:
        """Give `take` all that the client has sent, now, and each further piece as it comes."""
        self._take = take
        kept, self._kept, self._kept_bytes = b"".join(self._kept), [], 0
        if kept:
            take(kept)
        self.resume()

    def pause(self) -> None:
        """Leave what the client sends in its socket."""
        self._connection.pause_reading()

    def resume(self) -> None:
        """Read from the client again."""
        self._connection.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on, or keep them until somebody takes them."""
        if self._take is not None:
            self._take(data)
            return
        self._kept.append(data)
        self._kept_bytes += len(data)
        if self._kept_bytes > BODY_LIMIT:
            self.pause()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the taker, and tell the connection."""
        self._take = _drop
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client takes no more for now."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client takes something again."""
        self._connection.resume_writing()


def _drop(_data: bytes) -> None:
    """Drop bytes."""
