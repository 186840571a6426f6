"""Wire: uvicorn's HTTP connection with the two limits that it lacks, and a way past ASGI's messages.

Owns: how large a request's head may be and how long it may take, and the line from an application to its client's socket.
Must not know what is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

HEAD_LIMIT = 64 * 1024
"""Bytes of request line and headers, above the piece that ends them; the largest seen of a client is 2 KiB."""
HEAD_S = 30.0
"""From a request's first byte to the end of its headers; a connection that says nothing at all has as long."""
NO_BODY = frozenset({204, 304})
"""Statuses that have neither a body nor a length of one (RFC 9110 section 15)."""
Call = Callable[[], object]
LINE = "sparkdash.line"
"""The ASGI extension that gives an application the connection itself: a Line."""


class Wire(HttpToolsProtocol):
    """One client's connection."""

    _head_size: int | None = 0
    """Of the head that is being read; None while there is none."""
    _head_timer: asyncio.TimerHandle | None = None
    _line: Line | None = None
    """Of the request whose application wants to hear of its client."""
    _running: RequestResponseCycle | None = None
    """The request that is being answered; a client may have sent the next one already."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The clock of the first head runs."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """It stops, and the application hears of it."""
        self._head_is_read()
        super().connection_lost(exc)
        if (running := self._running) is not None and not running.response_complete:
            running.disconnected = True  # uvicorn tells only the last of several requests at once
            running.message_event.set()
        self._running = None
        if self._line is not None:
            self._line.lost()

    def pause_writing(self) -> None:
        """The client takes no more for now."""
        super().pause_writing()
        if self._line is not None and self._line.full is not None:
            self._line.full()

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        if self._line is not None and self._line.room is not None:
            self._line.room()

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
        self.scope["extensions"] = {LINE: {"wire": self}}
        self._head_size = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def on_headers_complete(self) -> None:
        """The application is called; what follows is the body."""
        self._head_is_read()
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def line(self) -> Line | None:
        """Of the request that is being answered."""
        return None if self._running is None else Line(self, self._running)

    def _head_is_read(self) -> None:
        self._head_size = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def send_400_response(self, msg: str) -> None:
        """What came is no request. An answer that is under way is cut: nothing is written into it."""
        running = self._running
        if running is None or running.response_complete or not running.response_started:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _too_slow(self) -> None:
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        """Before there is a request that an application could answer; an answer that is under way is not touched."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


class Line:
    """One request's end of its connection, without a message or a task for each piece; the gateway's `Line` says what each
    method is for. It does what uvicorn's `send` does, but that a client of HTTP/1.0 is sent no chunks.

    `full` and `room`: what is called when the connection fills up and when it has room again.
    """

    __slots__ = ("_bodiless", "_chunked", "_cycle", "_gone", "_length", "_sent", "_wire", "full", "room")

    def __init__(self, wire: Wire, cycle: RequestResponseCycle) -> None:
        self._wire = wire
        self._cycle = cycle
        self._gone: Call | None = None
        self._bodiless = cycle.scope["method"] == "HEAD"
        self._chunked = False
        self._length: int | None = None
        """Bytes of the body, where the head says so."""
        self._sent = 0
        """Bytes of it so far, where it has no chunks."""
        self.full: Call | None = None
        self.room: Call | None = None

    def body(self) -> bytes | None:
        """See the gateway's."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        cycle.flow.resume_reading()  # paused where the body is a large one
        found, cycle.body = bytes(cycle.body), bytearray()
        return found

    def hear(self, gone: Call) -> None:
        """See the gateway's."""
        self._gone = gone
        self._wire._line = self
        if self._cycle.disconnected:
            self._wire.loop.call_soon(self.lost)

    def lost(self) -> None:
        """The connection has ended."""
        if self._gone is not None:
            self._gone()

    def flow(self, full: Call, room: Call) -> None:
        """See the gateway's."""
        self.full, self.room = full, room
        if self._cycle.flow.write_paused:
            full()

    def deaf(self) -> None:
        """See the gateway's."""
        self._gone = self.full = self.room = None
        self._wire._line = None

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """See the gateway's. Raises ValueError: a header has a line break in it, and would be another."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        lines, closes = [STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status], False
        for name, value in headers:
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                self._length = int(value)
            elif name == b"connection" and b"close" in value.lower():
                closes, cycle.keep_alive = True, False
        self._bodiless = self._bodiless or status in NO_BODY
        if self._length is None and not self._bodiless and cycle.scope["http_version"] != "1.0":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not (cycle.keep_alive or closes):
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines):
            raise ValueError("a header of the answer has a line break in it")
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        cycle.transport.write(head + b"\r\n")

    def write(self, piece: bytes) -> None:
        """See the gateway's."""
        cycle = self._cycle
        if cycle.disconnected or not piece:
            return
        if self._chunked:
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        elif not self._bodiless:
            self._sent += len(piece)
            cycle.transport.write(piece)

    def finish(self, last: bytes) -> None:
        """See the gateway's. Raises ValueError: the body was not as long as its header said."""
        self.write(last)
        cycle = self._cycle
        if cycle.disconnected:
            return
        if self._chunked:
            cycle.transport.write(b"0\r\n\r\n")
        elif self._length not in (None, self._sent) and not self._bodiless:
            raise ValueError(f"the answer's body has {self._sent} bytes instead of {self._length}")
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    async def sent(self) -> None:
        """See the gateway's."""
        cycle = self._cycle
        if cycle.flow.write_paused and not (cycle.disconnected or cycle.response_complete):
            await cycle.flow.drain()

    def cut(self) -> None:
        """See the gateway's."""
        self._wire.transport.abort()


def line(scope: Any) -> Line | None:
    """The line of this scope; None where the connection is not one of ours."""
    wire: Wire | None = (scope.get("extensions") or {}).get(LINE, {}).get("wire")
    return None if wire is None else wire.line()
