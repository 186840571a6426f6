"""ClientConnection: HTTP/1.1 with one client."""

import asyncio
import heapq
import json
from collections import deque
from collections.abc import Callable, MutableSet
from contextlib import suppress
from typing import Any

import httptools

from sparkdash.limits import HEAD
from sparkdash.log import LOG
from sparkdash.wire.request_channel import (
    Address,
    Fields,
    Listener,
    RequestChannel,
    RequestHead,
    Serve,
    UpgradedConnection,
    address_of,
    asks_for_websocket,
)

ROOM_SHARE = 16
"""Share (a sixteenth) of the limit that is freed at once: a look through 32,000 connections takes milliseconds."""
IDLE_S = 0.1
"""Seconds without use that make a connection idle: sooner, its next request may be in the socket already."""
REPORT_S = 60.0
"""Least number of seconds between two reports."""


class ConnectionLimit:
    """Limit of connections of one server. `report` is called when the limit is met, at most once in REPORT_S."""

    def __init__(self, most: int, report: Callable[[], object]) -> None:
        self.most = most
        self._report = report
        self._reported_at = -REPORT_S

    def admit(self, others: MutableSet[Any]) -> bool:
        """Admit a client, closing idle ClientConnections of `others` where necessary. False: there is no room."""
        if len(others) < self.most:
            return True
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            self._report()
        idle = [
            (since, id(each), each)
            for each in others
            if (since := each.idle_since) is not None and since <= now - IDLE_S
        ]
        longest = heapq.nsmallest(max(1, self.most // ROOM_SHARE), idle)
        for _, _, each in longest:
            others.discard(each)  # its end is reported in a later turn, and others may come in this one
            each.transport.close()
        return bool(longest)


MOST = 6
"""Measured with 32 requests at once on 16 cores (docs/evidence.md). With 6 a turn the first answer came after 1.8 ms
instead of 3.2 ms, the median a fifth sooner, the last no later. With 1 a turn the median was hardly better, a request
among many cost a quarter more CPU, and the last answer came an eighth later.
"""


KEEP_ALIVE_S = 75.0
"""Seconds for which a connection stays open after an answer."""


class ServerState:
    """State that the connections of one server share. `linger_s`: see `shut_down`."""

    def __init__(self, serve: Serve, limit: ConnectionLimit | None = None, linger_s: float = 0.0) -> None:
        self.serve = serve
        self.limit = limit
        self._loop = asyncio.get_running_loop()
        self.linger_s = linger_s
        self.keep_alive_s = KEEP_ALIVE_S
        self.connections: set[ClientConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.beginning = 0
        """Requests whose tasks begin in the loop's next turn."""
        self.waiting: deque[RequestChannel] = deque()
        """Requests that begin in later turns."""
        self.over: asyncio.Event | None = None
        """Once the server ends: set when nothing is under way any more."""

    def begin(self, channel: RequestChannel) -> None:
        """Begin a request in the loop's next turn, or later if MOST do so."""
        if self.beginning == MOST:
            self.waiting.append(channel)
            return
        self.beginning += 1
        channel.task = task = self._loop.create_task(self._run(channel))
        self.tasks.add(task)

    async def _run(self, channel: RequestChannel) -> None:
        self.beginning -= 1
        if self.waiting:
            self.begin(self.waiting.popleft())
        try:
            await self.serve(channel)
        except BaseException as error:  # noqa: BLE001 - also when the server cancels it: its client is told
            channel.fail(error)
        else:
            if not (channel.complete or channel.client_gone):
                channel.fail(None)
        finally:
            self.tasks.discard(channel.task)
            if self.over is not None:
                self.note_end()

    async def shut_down(self, limit_s: float) -> None:
        """Answer what was asked, and close all connections; cut what still runs after `limit_s`.

        A connection without a request stays open for one more until `linger_s` are over.
        """
        self.over = asyncio.Event()
        for connection in list(self.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # the loop makes a connection in the turn after it was accepted
        self.note_end()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), limit_s)
        for task in self.tasks:
            task.cancel()

    def note_end(self) -> None:
        """Look whether that was the last connection or request of a server that ends."""
        if self.over is not None and not (self.connections or self.tasks):
            self.over.set()


class Deadline:
    """Time limit; `passed` is called when it has passed.

    The timer is only ever set earlier: one that rings too soon is set again.
    """

    __slots__ = ("_loop", "_passed", "_rings_at", "_timer", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], object]) -> None:
        self._loop = loop
        self._passed = passed
        self.at: float | None = None
        """Time of the deadline in the loop's seconds; None: there is none, and another may be set."""
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def set(self, seconds: float) -> None:
        self.at = at = self._loop.time() + seconds
        if self._timer is None:
            self._ring_at(at)
        elif at < self._rings_at:
            self._timer.cancel()
            self._ring_at(at)

    def stop(self) -> None:
        self.at, self._passed = None, lambda: None
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, at: float) -> None:
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer, at = None, self.at
        if at is None:
            return
        if at > self._rings_at:
            self._ring_at(at)
        else:
            self.at = None
            self._passed()


def _refusal(status: str, code: str, message: str, hint: str | None = None) -> bytes:
    """Build a complete answer, with the error body that clients of models read."""
    error = {
        "message": f"{message} {hint}" if hint else message,
        "type": "invalid_request_error",
        "param": None,
        "code": code,
        "hint": hint,
        "src": "sparkdash",
    }
    body = json.dumps({"error": error}, separators=(",", ":"))
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n{body}".encode()


NO_REQUEST = _refusal(
    "400 Bad Request", "bad_request", "The HTTP request cannot be read.", "HTTP/1.1 needs one Host header."
)
TOO_LATE = _refusal("408 Request Timeout", "request_timeout", "The request was not complete in time.")
TOO_LARGE = _refusal(
    "431 Request Header Fields Too Large",
    "head_too_large",
    f"The request line and headers are larger than {HEAD // 1024} KiB.",
)


PIECE = 16 * 1024
"""Bytes of a head that are read at once, where more have come."""
_LENGTH = b"content-length"
HEAD_S = 30.0
"""From a request's first byte to the end of its headers; a silent new connection has as long."""


class ClientConnection(asyncio.Protocol):
    """A client's connection to a server."""

    transport: asyncio.Transport

    def __init__(self, server: ServerState) -> None:
        self._parser = self._new_parser()
        self._head_size: int | None = 0
        """Bytes of the head that is being read; None while there is none."""
        self._unframed = 0
        """Bytes of framing since the body's last piece."""
        self._url = b""
        self._fields: Fields = []
        self._length: bytes | None = None
        self._receiving: RequestChannel | None = None
        """The request whose body comes."""
        self._reopened: RequestChannel | None = None
        """The request whose head is given to a new parser once more, for the sake of its body."""
        self._upgraded: UpgradedConnection | None = None
        """Set once the client's bytes are no HTTP any more."""
        self.loop = asyncio.get_running_loop()
        self.server = server
        self._deadline = Deadline(self.loop, self._on_deadline)
        self._listener: Listener = (None, "http")
        self._next_is_last = False
        self._last_head: RequestHead | None = None
        self._current: RequestChannel | None = None
        """The request that is being answered; a client may have sent the next ones already."""
        self._queued: deque[RequestChannel] = deque()
        self.reading = True
        self.is_full = False
        self._has_room: asyncio.Event | None = None

    # What the server and the socket tell.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, if there is room, and start the time limit of the first head."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by its class
        server = self.server
        if server.limit is not None and not server.limit.admit(server.connections):
            self.transport.abort()
            return
        server.connections.add(self)
        scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._listener = address_of(transport.get_extra_info("sockname")), scheme
        self._deadline.set(HEAD_S)
        if server.over is not None:  # accepted from the queue after the server began to end
            self.shutdown()

    def shutdown(self) -> None:
        """End with the server: answer what was asked, then close."""
        if self._current is None and self.server.linger_s:
            self._next_is_last = True
            self._deadline.set(self.server.linger_s)
        elif self._current is None:
            self.transport.close()
        else:
            self.newest_request().keeps = False

    @property
    def idle_since(self) -> float | None:
        """Time at which the last request ended, or the connection was opened; None while it is in use.

        In the loop's seconds. A connection is in use during a request, and until the client has taken its answer.
        """
        until = self._deadline.at
        if until is None or self._current is not None or self._head_size or self.transport.is_closing():
            return None
        if self.transport.get_write_buffer_size():  # closing would free no descriptor until the client takes its answer
            return None
        return until - (self.server.keep_alive_s if self._head_size is None else HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the connection, and tell the request that is being answered."""
        server = self.server
        server.connections.discard(self)
        self._deadline.stop()
        self._queued.clear()
        current, self._current, self._receiving, self._last_head = self._current, None, None, None
        if current is not None:
            current.on_connection_lost()
        self.resume_writing()
        if exc is None:
            self.transport.close()
        del self._parser  # it knows this object, which is to go without the collector
        server.note_end()

    def pause_writing(self) -> None:
        self.is_full = True
        if self._current is not None and self._current.on_full is not None:
            self._current.on_full()

    def resume_writing(self) -> None:
        self.is_full = False
        if self._has_room is not None:
            self._has_room.set()
            self._has_room = None
        if self._current is not None and self._current.on_room is not None:
            self._current.on_room()

    def on_headers_complete(self) -> None:
        """Call the application, at once or after the requests before; what follows is the body."""
        if self._reopened is not None:
            self._receiving, self._reopened = self._reopened, None
            self._head_size, self._fields = None, []
            return
        parser, head = self._parser, self._last_head
        raw = self._listener, parser.get_http_version(), parser.get_method(), self._url, self._fields
        self._head_size, self._fields = None, []
        self._deadline.at = None
        if head is None or head.raw != raw:
            head = self._last_head = RequestHead(raw, keeps=parser.should_keep_alive())
        channel = self._receiving = RequestChannel(self, head, self._length)
        if self._next_is_last:
            channel.keeps = False
        if self._current is None:
            self._current = channel
            self.server.begin(channel)
        else:
            self.pause_reading()
            self._queued.append(channel)

    # What the channels of its requests ask of it.

    @property
    def client(self) -> Address:
        """Address of the client; None through a unix socket."""
        where = address_of(self.transport.get_extra_info("peername"))
        return where if where is not None and where[1] is not None else None

    def answered(self, *, keeps: bool) -> None:
        """Begin the next request after a complete answer. `keeps`: the connection stays open for it."""
        self._current = None
        if not keeps:
            self.transport.close()
        if self.transport.is_closing():
            return
        if not self.reading:
            self.resume_reading()
        if self._queued:
            self._current = self._queued.popleft()
            self.server.begin(self._current)
        elif self._head_size is None:
            self._deadline.set(self.server.keep_alive_s)

    def pause_reading(self) -> None:
        if self.reading:
            self.reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.reading:
            self.reading = True
            self.transport.resume_reading()

    async def has_room(self) -> None:
        if self._has_room is None:
            self._has_room = asyncio.Event()
        await self._has_room.wait()

    # What ends it, and what the parser asks of it.

    def newest_request(self) -> RequestChannel:
        newest = self._queued[-1] if self._queued else self._current
        assert newest is not None  # noqa: S101 - called while there is one
        return newest

    def _on_deadline(self) -> None:
        if self._head_size is not None:
            self._refuse(TOO_LATE)
        else:
            self.transport.close()  # kept open, and no request came

    def _refuse(self, refusal: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._current is None:
            self.transport.write(refusal)
        self.transport.close()

    # Parsing with llhttp, whose callbacks are methods here: that saves a call per event.

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and count those of a head or of a body's framing."""
        if len(data) > PIECE and self._receiving is None:
            self._receive_in_two(data)
            return
        if self._unframed > HEAD or (self._head_size is not None and self._head_size > HEAD):
            self._refuse(TOO_LARGE)
            return
        self._unframed += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._on_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            LOG.warning("Invalid HTTP request received.")
            # An answer under way is cut: nothing is written into it.
            if self._current is None or not self._current.begun:
                self.transport.write(NO_REQUEST)
            self.transport.close()
            return
        if self._head_size is not None:
            if self._head_size == 0:
                self._deadline.set(HEAD_S)
            self._head_size += len(data)

    def _receive_in_two(self, data: bytes) -> None:
        """Split a large piece while a head is read, so that the head's limit holds there too."""
        self.data_received(data[:PIECE])
        if not self.transport.is_closing():
            (self._upgraded or self).data_received(data[PIECE:])

    def _on_upgrade(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 after an Upgrade request, with a new parser that is told the body's framing.

        After one for WebSocket, `rest` and all that follows is kept for the request's application.

        Java's clients ask for HTTP/2 with the first request of each connection. The parser stops at the end of such a
        head, and takes the body for the other protocol.

        Raises:
            HttpParserError: as the first parser would have.
        """
        while True:
            channel = self.newest_request()
            if asks_for_websocket(channel.head, channel.length):
                self._hand_over(channel, rest)
                return
            self._parser = self._new_parser()
            if framing := channel.reopen_body():
                self._reopened, rest = channel, b"POST / HTTP/1.1\r\n%b\r\n\r\n%b" % (framing, rest)
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            else:
                return

    def _hand_over(self, channel: RequestChannel, rest: bytes) -> None:
        """Give the socket to the request that asks for a WebSocket; where it is refused, the connection ends."""
        channel.keeps = False
        channel.upgraded = self._upgraded = UpgradedConnection(self, rest)
        self.transport.set_protocol(self._upgraded)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self._url, self._fields, self._length, self._head_size, self._unframed = b"", [], None, 0, 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers after a chunked body go into a list that nobody reads."""
        name = name.lower()
        if name == _LENGTH:
            self._length = value
        else:
            self._fields.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._unframed = 0
        if self._receiving is not None:
            self._receiving.feed_body(body)

    def on_message_complete(self) -> None:
        if self._receiving is not None:
            self._receiving.mark_body_complete()
            self._receiving = None
