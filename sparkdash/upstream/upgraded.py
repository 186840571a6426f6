"""UpgradedEngine: an engine's socket after its 101, when it speaks no HTTP any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Call = Callable[[], object]


class UpgradedEngine(asyncio.Protocol):
    """Takes over the socket of a connection. `first`: bytes that came behind the 101; nothing is read before `pour`."""

    def __init__(self, connection: asyncio.Protocol, transport: asyncio.Transport, first: bytes) -> None:
        self._connection = connection
        self._transport = transport
        self._first = first
        self._take: Callable[[bytes], object]
        self._on_end: Call | None = None
        self._on_full: Call | None = None
        self._on_room: Call | None = None
        transport.pause_reading()
        transport.set_protocol(self)

    def pour(self, take: Callable[[bytes], object], end: Call) -> None:
        """Give each piece to `take` as it comes; call `end` when the connection is over."""
        self._take, self._on_end = take, end
        if self._first:
            take(self._first)
        self.resume()
        if self._transport.is_closing():
            end()

    def flow(self, full: Call, room: Call) -> None:
        """Have `full` called when the engine takes no more for now, and `room` when it does."""
        self._on_full, self._on_room = full, room

    def write(self, data: bytes) -> None:
        """Send bytes to the engine; they are lost if it has gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause(self) -> None:
        """Stop reading from the engine for now."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read from the engine again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # Callbacks of the socket.

    def data_received(self, data: bytes) -> None:
        """Pass a piece on."""
        self._take(data)

    def pause_writing(self) -> None:
        """Note that the engine takes no more for now."""
        if self._on_full is not None:
            self._on_full()

    def resume_writing(self) -> None:
        """Note that the engine takes something again."""
        if self._on_room is not None:
            self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection and the taker."""
        self._connection.connection_lost(exc)
        if self._on_end is not None:
            self._on_end()
