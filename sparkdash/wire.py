"""Wire: uvicorn's HTTP connection with the two limits that it lacks, and a way to cut it.

Owns: how large a request's head may be and how long it may take. Must not know what is served.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT = 64 * 1024
"""Bytes of request line and headers, above the piece that ends them; the largest seen of a client is 2 KiB."""
HEAD_S = 30.0
"""From a request's first byte to the end of its headers; a connection that says nothing at all has as long."""
ABORT = "sparkdash.abort"
"""The ASGI extension that cuts the connection at once, whatever is still to be sent."""


class Wire(HttpToolsProtocol):
    """One client's connection."""

    _head_size: int | None = 0
    """Of the head that is being read; None while there is none."""
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The clock of the first head runs."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """It stops."""
        self._head_is_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts what belongs to a head."""
        if self._head_size is not None and self._head_size > HEAD_LIMIT:
            self._refuse(b"431 Request Header Fields Too Large")
            return
        super().data_received(data)
        if self._head_size is not None:
            self._head_size += len(data)

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
        self._head_size = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def on_headers_complete(self) -> None:
        """The application is called; what follows is the body."""
        self._head_is_read()
        super().on_headers_complete()

    def _head_is_read(self) -> None:
        self._head_size = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        """Before there is a request that an application could answer; an answer that is under way is not touched."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


def abort(scope: Any) -> None:
    """Cut the connection of this scope; nothing happens where it is not one of ours."""
    if ours := scope.get("extensions", {}).get(ABORT):
        ours["call"]()
