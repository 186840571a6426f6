"""Connection: HTTP/1.1 with one client.

Owns: how large a request's head may be and how long it may take, in which order requests are answered, and for how long a
connection is kept on which nobody asks. Must not know what is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from sparkdash.limits import HEAD
from sparkdash.wire.connection_limit import ConnectionLimit
from sparkdash.wire.deadline import Deadline
from sparkdash.wire.half_closed import HalfClosed
from sparkdash.wire.refusal import NO_REQUEST, TOO_LARGE, TOO_LATE
from sparkdash.wire.request_channel import RequestChannel, Serve, by_messages
from sparkdash.wire.request_head import Address, Door, Fields, RequestHead, RequestHeadCache
from sparkdash.wire.turns import Turns

LOG = logging.getLogger("uvicorn.error")
HEAD_S = 30.0
"""From a request's first byte to the end of its headers; a connection that says nothing at all has as long."""
PIECE = 16 * 1024
"""Bytes of a head that are read at once, where more have come."""
_LENGTH = b"content-length"


@dataclass
class Shutdown:
    """A server's shutdown, as its connections see it."""

    linger_s: float = 0.0
    """Seconds for which a connection without a request stays open for one more; 0: it is closed at once."""
    began: bool = False


class ClientConnection(asyncio.Protocol):
    """A client's connection, as uvicorn's server makes them.

    `heads` and `turns`: shared by the server's connections. `closing`: the server's shutdown. `limit`: the limit of
    connections.

    An application that has `serve_channel` is handed each request's Line; any other is called by ASGI.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - uvicorn's way to call it
        _loop: asyncio.AbstractEventLoop | None = None,
        heads: RequestHeadCache | None = None,
        turns: Turns | None = None,
        closing: Shutdown | None = None,
        limit: ConnectionLimit | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        app = config.loaded_app
        self._serve: Serve = getattr(app, "serve_channel", None) or partial(by_messages, app)
        self._kept_s: float = config.timeout_keep_alive
        self._server = server_state
        self._parser = self._new_parser()
        self._deadline = Deadline(self.loop, self._too_late)
        self.transport: asyncio.Transport
        self._door: Door = (None, "http")
        self._heads = RequestHeadCache() if heads is None else heads
        self._turns = Turns() if turns is None else turns
        self._closing = Shutdown() if closing is None else closing
        self._limit = limit
        self.address: str | None = None
        """The client's address, where it is beyond this box."""
        self._ends = False
        """Whether the next request is the last one."""
        self._head: RequestHead | None = None
        """The last one."""
        self._head_size: int | None = 0
        """Of the one that is being read; None while there is none."""
        self._unframed = 0
        """Bytes of framing since the body's last piece."""
        self._url = b""
        self._fields: Fields = []
        self._length: bytes | None = None
        self._asking: RequestChannel | None = None
        """The request whose body comes."""
        self._known: RequestChannel | None = None
        """The request whose head is said to the parser once more, for the sake of its body."""
        self._running: RequestChannel | None = None
        """The one that is being answered; a client may have sent the next ones already."""
        self._behind: deque[RequestChannel] = deque()
        self._reads = True
        self._half_closed: HalfClosed | None = None
        """Set once the client has ended its half of the connection."""
        self.is_full = False
        """Does the client take nothing just now?"""
        self._room: asyncio.Event | None = None

    # What the server and the socket tell.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The clock of the first head runs."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by its class
        self.address = _beyond_this_box(transport.get_extra_info("peername"))
        if self._limit is not None and not self._limit.admit(self, self._server.connections):
            self._limit.refuse(self.transport)
            del self._parser
            return
        self._server.connections.add(self)  # type: ignore[arg-type]  # it is asked to shut down, and nothing else
        scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._door = _address(transport.get_extra_info("sockname")), scheme
        self._deadline.set(HEAD_S)
        if self._closing.began:  # it was in the queue of those that came before the end
            self.shutdown()

    def shutdown(self) -> None:
        """The server ends: what was asked is answered, and then the connection is over."""
        if self._running is None and self._closing.linger_s:
            self._ends = True
            self._deadline.set(self._closing.linger_s)
        elif self._running is None:
            self.transport.close()
        else:
            (self._behind[-1] if self._behind else self._running).keeps = False

    @property
    def idle_since(self) -> float | None:
        """Time at which the last request ended, or the connection was opened; None while it is in use.

        In the loop's seconds. A connection is in use during a request, and until the client has taken its answer.
        """
        until = self._deadline.at
        if until is None or self._running is not None or self._head_size or self.transport.is_closing():
            return None
        if self.transport.get_write_buffer_size():  # closing would free no descriptor until the client takes its answer
            return None
        return until - (self._kept_s if self._head_size is None else HEAD_S)

    def evict(self) -> None:
        """Close the connection; it has no request."""
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The request that is being answered hears of it."""
        self._server.connections.discard(self)
        if self._limit is not None:
            self._limit.leave(self.address)
        self._deadline.stop()
        if self._half_closed is not None:
            self._half_closed.stop()
            self._half_closed = None
        self._behind.clear()
        running, self._running, self._asking, self._head = self._running, None, None, None
        if running is not None:
            running.on_connection_lost()
        self.resume_writing()
        if exc is None:
            self.transport.close()
        del self._parser  # it knows this object, which is to go without the collector

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on; split a large piece while a head is read, so that the head's limit holds there too."""
        while len(data) > PIECE and self._asking is None:
            self._take(data[:PIECE])
            if self.transport.is_closing():
                return
            data = data[PIECE:]
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Pass bytes to the parser, and count those of a head or of a body's framing."""
        if self._unframed > HEAD or (self._head_size is not None and self._head_size > HEAD):
            self._refuse(TOO_LARGE)
            return
        self._unframed += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as wish:
                self._pass_by(data[wish.args[0] :])
        except httptools.HttpParserError:
            self._no_request()
            return
        if self._head_size is not None:
            if self._head_size == 0:
                self._deadline.set(HEAD_S)
            self._head_size += len(data)

    def eof_received(self) -> bool:
        """Note that the client has ended its half; go on with its answer unless it turns out to have left.

        A client whose answer has begun cannot be asked, and counts as gone. TLS has no half-closed connections.
        """
        running = self._running
        if running is None or running.begun or self._asking is not None or self._door[1] == "https":
            return False
        (self._behind[-1] if self._behind else running).keeps = False
        self._half_closed = HalfClosed(self.loop, self.transport, self._waits)
        return True

    def _waits(self) -> bool | None:
        running = self._running
        if running is None or running.begun:
            return False
        return None if running.head.is_old else True

    def pause_writing(self) -> None:
        """The client takes no more for now."""
        self.is_full = True
        if self._running is not None and self._running.full is not None:
            self._running.full()

    def resume_writing(self) -> None:
        """It does again."""
        self.is_full = False
        if self._room is not None:
            self._room.set()
            self._room = None
        if self._running is not None and self._running.room is not None:
            self._running.room()

    # What the parser tells.

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._url, self._fields, self._length, self._head_size, self._unframed = b"", [], None, 0, 0

    def on_url(self, url: bytes) -> None:
        """A piece of its address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers after a chunked body are dropped."""
        if self._head_size is None:
            return
        name = name.lower()
        if name == _LENGTH:
            self._length = value
        else:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The application is called; what follows is the body."""
        if self._known is not None:
            self._asking, self._known = self._known, None
            self._head_size, self._fields = None, []
            return
        parser, head = self._parser, self._head
        words = self._door, parser.get_http_version(), parser.get_method(), self._url, self._fields
        self._head_size, self._fields = None, []
        self._deadline.clear()
        if head is None:
            head = self._head = self._heads.first(words, keeps=parser.should_keep_alive())
        elif head.words != words:
            head = self._head = RequestHead(words, keeps=parser.should_keep_alive())
        line = self._asking = RequestChannel(self, head, self._length)
        if self._ends:
            line.keeps = False
        if self._running is None:
            self._begin(line)
        else:
            self.pause_reading()
            self._behind.append(line)

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._unframed = 0
        if self._asking is not None:
            self._asking.feed_body(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        if self._asking is not None:
            self._asking.mark_body_complete()
            self._asking = None

    # What its lines ask of it.

    @property
    def client(self) -> Address:
        """Where the client is; None through a unix socket."""
        where = _address(self.transport.get_extra_info("peername"))
        return where if where is not None and where[1] is not None else None

    def answered(self, *, keeps: bool) -> None:
        """The answer is complete; the next one's turn has come. `keeps`: the connection stays for it."""
        self._running = None
        if not keeps:
            self.transport.close()
        if self.transport.is_closing():
            return
        self.resume_reading()
        if self._behind:
            self._begin(self._behind.popleft())
        elif self._head_size is None:
            self._deadline.set(self._kept_s)

    def ran(self, task: asyncio.Task[None]) -> None:
        """The application's call has returned."""
        self._server.tasks.discard(task)

    def pause_reading(self) -> None:
        """Let the client wait."""
        if self._reads:
            self._reads = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if not self._reads and self._half_closed is None:
            self._reads = True
            self.transport.resume_reading()

    async def has_room(self) -> None:
        """Return when the client takes something again, or has gone."""
        if self._room is None:
            self._room = asyncio.Event()
        await self._room.wait()

    def _begin(self, line: RequestChannel) -> None:
        self._running = line
        if self._turns.take(self.loop):
            self._start(line)
        else:
            self._turns.wait(partial(self._start, line))

    def _start(self, line: RequestChannel) -> None:
        line.task = task = self.loop.create_task(line.run(self._serve))
        self._server.tasks.add(task)

    # A wish for another protocol.

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _pass_by(self, rest: bytes) -> None:
        """Java's clients have one with the first request of each connection, and there is one protocol here. The parser takes leave
        at the end of such a head, and takes the body for the other protocol: a new one goes on, told how the body is framed.

        Raises:
            HttpParserError: as the first one would have.
        """
        while True:
            line = self._behind[-1] if self._behind else self._running
            assert line is not None  # noqa: S101 - its head has just come
            self._parser = self._new_parser()
            if framing := line.reopen_body():
                self._known, rest = line, b"POST / HTTP/1.1\r\n%b\r\n\r\n%b" % (framing, rest)
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as wish:
                rest = rest[wish.args[0] :]
            else:
                return

    # What is no request.

    def _no_request(self) -> None:
        """An answer that is under way is cut: nothing is written into it."""
        LOG.warning("Invalid HTTP request received.")
        if self._running is None or not self._running.begun:
            self.transport.write(NO_REQUEST)
        self.transport.close()

    def _too_late(self) -> None:
        if self._head_size is not None:
            self._refuse(TOO_LATE)
        else:
            self.transport.close()  # it was kept, and nobody asked

    def _refuse(self, refusal: bytes) -> None:
        """Before there is a request that an application could answer; an answer that is under way is not touched."""
        if self.transport.is_closing():
            return
        if self._running is None:
            self.transport.write(refusal)
        self.transport.close()


def _beyond_this_box(name: Any) -> str | None:
    """Host of a socket's name, where it is neither loopback nor a unix socket."""
    if not isinstance(name, tuple):
        return None
    host: str = name[0]
    return None if host == "::1" or host.startswith(("127.", "::ffff:127.")) else host


def _address(name: Any) -> Address:
    """A socket's name, as its transport keeps it, in ASGI's form: of IPv6's four parts there are two."""
    if isinstance(name, tuple):
        return name[0], name[1]
    return (name, None) if isinstance(name, str) else None
