"""EngineSocket: a connection to an engine on which both speak another protocol than HTTP after an upgrade.

Owns: the upgrade's request and answer, and how much waits until somebody takes it. Must not know the protocol's frames.
Every socket has a connection of its own: none is kept afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httptools

from sparkdash.errors import UpstreamError
from sparkdash.upstream.connection import BUFFER_LIMIT, HEAD_LIMIT, Take
from sparkdash.upstream.response_head import Header

SWITCHED = 101
REFUSAL_LIMIT = 64 * 1024
"""Bytes of a refusal's body that are read."""

FLUSH_S = 5.0
"""Seconds in which an engine takes the last bytes of a socket that is closed."""

Call = Callable[[], object]


class EngineSocket(asyncio.Protocol):
    """Connection to the engine at `where` (host:port, for messages). `called`: profile of the engine, for messages.

    After `ask`, `status` is SWITCHED, or the status of a refusal with `body`.
    """

    def __init__(self, where: str, on_lost: Callable[[EngineSocket], object], called: str | None) -> None:
        self.status = 0
        self.headers: list[Header] = []
        """Headers of the answer, with names in lower case."""
        self.body = b""
        """Body of a refusal, cut after REFUSAL_LIMIT bytes."""
        self.is_lost = False
        self._name = called or f"The engine at {where}"
        self._hint = f"Its log says more: `sparkdash logs {called}`." if called else None
        self._on_lost = on_lost
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._head_size = 0
        self._answered = asyncio.get_running_loop().create_future()
        self._kept = bytearray()
        self._take: Take | None = None
        self._on_end: Call | None = None
        self._on_full: Call | None = None
        self._on_room: Call | None = None
        self._transport: asyncio.Transport

    async def ask(self, head: bytes) -> None:
        """Send the request and wait for the answer.

        Raises:
            UpstreamError: code `engine_died`: the connection ended first, or what came is no HTTP.
        """
        self._transport.write(head)
        await self._answered

    def pour(self, take: Take, end: Call) -> None:
        """Give each piece to `take` as it comes, what has come already now; call `end` when the connection is over."""
        self._take, self._on_end = take, end
        kept, self._kept = bytes(self._kept), bytearray()
        if kept:
            take(kept)
        self.resume()
        if self.is_lost:
            asyncio.get_running_loop().call_soon(end)

    def flow(self, full: Call, room: Call) -> None:
        """Have `full` called when the engine takes no more for now, and `room` when it does."""
        self._on_full, self._on_room = full, room

    def write(self, data: bytes) -> None:
        """Send bytes to the engine; they are lost if it has gone."""
        if not self.is_lost:
            self._transport.write(data)

    def pause(self) -> None:
        """Stop reading from the engine for now."""
        if not self.is_lost:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read from the engine again."""
        if not self.is_lost:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close once everything was sent, or after FLUSH_S."""
        self._take = _drop
        self._on_end = self._on_full = self._on_room = None
        self._transport.close()
        asyncio.get_running_loop().call_later(FLUSH_S, self._transport.abort)

    def cut(self) -> None:
        """Close at once."""
        self._take = _drop
        self._on_end = self._on_full = self._on_room = None
        self._transport.abort()

    def died(self, what: str) -> UpstreamError:
        """Make the error of an engine that ended the connection."""
        return UpstreamError(f"{self._name} {what}.", code="engine_died", hint=self._hint)

    # Callbacks of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the open socket."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by its class

    def data_received(self, data: bytes) -> None:
        """Parse the answer's head, and pass on what follows it."""
        if self._take is not None:
            self._take(data)
        elif self._parser is None:
            self._keep(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None  # noqa: S101 - checked by the caller
        self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = None
            self._keep(data[upgrade.args[0] :])
            self._done()
        except httptools.HttpParserError as error:
            self._fail(f"sent no HTTP/1.1 ({error})")
        else:
            if not self.status and self._head_size > HEAD_LIMIT:
                self._fail("sent a head that does not end")

    def _keep(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > BUFFER_LIMIT:
            self.pause()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        self.is_lost = True
        if self.status and self.status != SWITCHED:
            self._done()
        elif not self._answered.done():
            why = getattr(exc, "strerror", None) or str(exc or "it closed the connection")
            self._fail(f"closed the connection without an answer ({why})")
        end, self._on_end = self._on_end, None
        self._on_full = self._on_room = None
        if end is not None:
            end()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Note that the engine takes no more for now."""
        if self._on_full is not None:
            self._on_full()

    def resume_writing(self) -> None:
        """Note that the engine takes something again."""
        if self._on_room is not None:
            self._on_room()

    def _done(self) -> None:
        if not self._answered.done():
            self._answered.set_result(None)

    def _fail(self, what: str) -> None:
        if not self._answered.done():
            self._answered.set_exception(self.died(what))

    # Callbacks of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self.status:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Complete the head; an interim one (1xx) only announces another."""
        status = self._parser.get_status_code() if self._parser is not None else 0
        if status >= 200 or status == SWITCHED:
            self.status = status
        else:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a refusal's body."""
        self.body = (self.body + body)[:REFUSAL_LIMIT]

    def on_message_complete(self) -> None:
        """Complete a refusal."""
        if self.status and self.status != SWITCHED:
            self._done()


def _drop(_data: bytes) -> None:
    """Drop bytes of a socket that is being closed."""
