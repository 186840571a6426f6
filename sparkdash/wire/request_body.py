"""RequestBody: the receiving half of a request's channel.

Owns: the body until the application takes it, how much of it waits, and `100 Continue`. Must not know how it is
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from sparkdash.wire.addresses import Address
from sparkdash.wire.request_head import RequestHead

BODY_LIMIT = 64 * 1024
"""Bytes of a request's body that wait for the application; the rest waits in the client's socket."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Call = Callable[[], object]


class ChannelConnection(Protocol):
    """The client's connection, as far as a request's channel needs it."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    is_full: bool

    @property
    def client(self) -> Address:
        """Address of the client; None through a unix socket."""
        ...

    def pause_reading(self) -> None:
        """Leave what the client sends in its socket."""
        ...

    def resume_reading(self) -> None:
        """Read from the client again."""
        ...

    def has_room(self) -> Awaitable[None]:
        """Return when the client takes something again, or has gone."""
        ...

    def answered(self, *, keeps: bool) -> None:
        """Note that the answer is complete. `keeps`: the connection stays open for the next request."""
        ...

    def call_returned(self, task: asyncio.Task[None]) -> None:
        """Note that the application's call has returned."""
        ...


class RequestBody:
    """A request's body as it comes. `length`: its Content-Length, as the client wrote it."""

    __slots__ = (
        "_body_open", "_buffered_bytes", "_changed", "_client_gone", "_complete", "_connection", "_end_taken",
        "_expects", "_parts", "begun", "head", "keeps", "length",
    )  # fmt: skip

    # Set in the constructor of the channel: a second one would be a call more for each request.
    head: RequestHead
    length: bytes | None
    keeps: bool
    """Whether the connection is kept after the answer."""
    begun: bool
    """Whether the head of the answer is made."""
    _connection: ChannelConnection
    _complete: bool
    """Whether the answer is complete."""
    _client_gone: bool
    _expects: bool
    _parts: list[bytes]
    _buffered_bytes: int
    _body_open: bool
    """Whether more of the body comes."""
    _end_taken: bool
    """Whether the application has taken the end of the body."""
    _changed: asyncio.Event | None
    """Set when a receiver should look again."""

    def feed_body(self, part: bytes) -> None:
        """Keep a part of the body until the application takes it."""
        if self._complete:
            return
        self._parts.append(part)
        self._buffered_bytes += len(part)
        if self._buffered_bytes > BODY_LIMIT:
            self._connection.pause_reading()
        if self._changed is not None:
            self._changed.set()

    def mark_body_complete(self) -> None:
        """Mark the request body complete."""
        self._body_open = False
        if self._changed is not None:
            self._changed.set()

    def reopen_body(self) -> bytes:
        """Reopen the body after a rejected upgrade; return its framing header, or b"" without a body."""
        if coded := self.head.named.get(b"transfer-encoding"):
            framing = b"transfer-encoding: " + coded
        elif self.length is not None and int(self.length):
            framing = b"content-length: " + self.length
        else:
            return b""
        self._body_open = True
        return framing

    def body(self) -> bytes | None:
        """Take the whole body; None while a part of it is still to come."""
        if self._body_open or self._client_gone:
            return None
        self._connection.resume_reading()  # paused where the body is a large one
        return self._take()

    async def receive(self) -> dict[str, object]:
        """Receive an ASGI message: the body, and then that the client has left or the answer is complete."""
        self._send_continue()
        while not (self._client_gone or self._complete):
            if self._parts or not (self._body_open or self._end_taken):
                return {"type": "http.request", "body": self._take(), "more_body": self._body_open}
            self._connection.resume_reading()
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
            self._changed.clear()
        return {"type": "http.disconnect"}

    def _take(self) -> bytes:
        parts = self._parts
        self._parts, self._buffered_bytes, self._end_taken = [], 0, not self._body_open
        return b"".join(parts)

    def _send_continue(self) -> None:
        """Tell a client that waits with its body to send it, once."""
        if self._expects and not self.begun and not self._connection.transport.is_closing():
            self._expects = False
            self._connection.transport.write(_CONTINUE)
