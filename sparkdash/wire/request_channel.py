"""RequestChannel: one request's end of its client's connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

import httptools

from sparkdash.log import LOG

Address = tuple[str, int | None] | None
"""A host and a port; (path, None) for a unix socket."""
SocketName = tuple[str, int] | tuple[str, int, int, int] | str | None
"""Name of a socket as its transport keeps it."""


def address_of(name: SocketName) -> Address:
    """Return a socket's name without IPv6's flow and scope."""
    if isinstance(name, tuple):
        return name[0], name[1]
    return (name, None) if isinstance(name, str) else None


Fields = list[tuple[bytes, bytes]]
"""Headers as they came, but for the case of their names."""
Listener = tuple[Address, str]
"""A server's own address and the scheme."""
RawHead = tuple[Listener, str, bytes, bytes, Fields]
"""Listener, version, method, URL and headers."""


class RequestHead:
    """First line and headers of a request, but for the length of its body.

    A client sends the same head again and again on its connection: that is one object, and what was found out about it
    is kept in `memo`. `headers`: with names in lower case; `named`: the same by name.
    """

    __slots__ = (
        "expects", "headers", "is_http10", "keeps", "listener", "memo", "method", "named", "path",
        "query", "raw", "raw_path", "version",
    )  # fmt: skip

    def __init__(self, raw: RawHead, *, keeps: bool) -> None:
        """Read a head. `keeps`: the headers do not ask that the connection be closed.

        Raises httptools.HttpParserError or ValueError: the URL is invalid, or a request of HTTP/1.1 has not exactly one
        Host (RFC 9112 section 3.2).
        """
        self.raw = raw
        self.listener, self.version, method, url, self.headers = raw
        self.named = by_name(self.headers)
        if self.version == "1.1" and b"," in self.named.get(b"host", b","):
            raise ValueError("not one Host")
        self.method = method.decode("ascii")
        parsed = httptools.parse_url(url)
        if parsed.path is None:
            raise ValueError("an address without a path")
        self.raw_path, self.query = parsed.path, parsed.query or b""
        path = self.raw_path.decode("ascii")
        self.path = unquote(path) if "%" in path else path
        self.is_http10 = self.version == "1.0"
        """HTTP/1.0 has neither chunks nor persistent connections."""
        self.keeps = keeps and not self.is_http10
        """Whether the connection stays open for further requests."""
        self.expects = self.named.get(b"expect", b"").lower() == b"100-continue"
        """Whether the client sends its body only after `100 Continue`."""
        self.memo: object = None
        """The application's: what follows from the head alone."""


def by_name(headers: Fields) -> dict[bytes, bytes]:
    """Return headers by name; values of a name that comes more than once are one list (RFC 9110 section 5.3)."""
    named = dict(headers)
    if len(named) == len(headers):
        return named
    values_of: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values_of.setdefault(name, []).append(value)
    return {name: b", ".join(values) for name, values in values_of.items()}


LENGTH = b"content-length"


class ResponseHeaders:
    """Headers of an answer as they are written. Make equal headers once, and use them for many answers.

    `headers`: all but the Content-Length, with names in lower case; `length`: bytes of the body, where the headers say;
    `lines`: the bytes to write; `closes`: whether the headers announce the end of the connection.
    """

    __slots__ = ("closes", "headers", "length", "lines")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises ValueError: a header contains a line break, and would be written as two."""
        self.length: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.closes = False
        for header in headers:
            name, value = header
            if name == LENGTH:
                self.length = int(value)
                continue
            self.headers.append(header)
            if name == b"connection" and b"close" in value.lower():
                self.closes = True
        written = [b": ".join(header) for header in self.headers]
        all_of_them = b"".join(written)
        if all_of_them.find(b"\n") >= 0 or all_of_them.find(b"\r") >= 0:
            raise ValueError("a header of the answer has a line break in it")
        self.lines = b"\r\n".join([*written, b""])


BODY_LIMIT = 64 * 1024
"""Bytes of a request's body that wait for the application; the rest waits in the client's socket."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Call = Callable[[], object]


class ChannelConnection(Protocol):
    """The client's connection, as far as a request's channel needs it."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    is_full: bool
    reading: bool

    @property
    def client(self) -> Address: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def has_room(self) -> Awaitable[None]: ...

    def answered(self, *, keeps: bool) -> None: ...


Take = Callable[[bytes], object]
_UPGRADE, _KEY = b"upgrade", b"sec-websocket-key"


def asks_for_websocket(head: RequestHead, length: bytes | None) -> bool:
    """Whether a request opens a WebSocket (RFC 6455 section 4.1); it has no body."""
    named = head.named
    if head.method != "GET" or _KEY not in named or b"transfer-encoding" in named or length not in (None, b"0"):
        return False
    return any(word.strip().lower() == b"websocket" for word in named.get(_UPGRADE, b"").split(b","))


class UpgradedConnection(asyncio.Protocol):
    """Protocol of the socket from the upgrade's head on. `first`: bytes that came with the head."""

    def __init__(self, connection: ChannelConnection, first: bytes) -> None:
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
        self._connection.pause_reading()

    def resume(self) -> None:
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
        self._take = lambda _data: None
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


NO_BODY = frozenset({204, 304})
"""Statuses that have neither a body nor a length of one (RFC 9110 section 15)."""
_STATUS = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
_FAULT = b"Internal Server Error"
_FAULT_HEADERS = ResponseHeaders([(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")])

Serve = Callable[["RequestChannel"], Awaitable[None]]


class RequestChannel:
    """Receives one request and sends its answer.

    `length`: the request's Content-Length, as the client wrote it. `on_full` and `on_room`: see `flow`.
    """

    __slots__ = (
        "_bodiless", "_body_open", "_buffered_bytes", "_changed", "_chunked", "_connection", "_end_taken", "_expects",
        "_on_disconnect", "_parts", "_pending_head", "_response_length", "_sent_bytes", "begun", "client_gone",
        "complete", "head", "keeps", "length", "on_full", "on_room", "task", "upgraded",
    )  # fmt: skip

    def __init__(self, connection: ChannelConnection, head: RequestHead, length: bytes | None) -> None:
        self._connection = connection
        self.head = head
        self.length = length
        self.keeps = head.keeps
        """Whether the connection is kept after the answer."""
        self.begun = False
        """Whether the head of the answer is made."""
        self.complete = self.client_gone = False
        self._end_taken = False
        """Whether the application has taken the end of the body."""
        self._expects = head.expects
        self._parts: list[bytes] = []
        self._buffered_bytes = 0
        self._body_open = True
        """Whether more of the body comes."""
        self._changed: asyncio.Event | None = None
        """Set when a receiver should look again."""
        self._bodiless: bool
        self._chunked: bool
        self._response_length: int | None
        self._sent_bytes: int
        """Bytes of the answer's body so far, where it is not chunked."""
        self._pending_head = b""
        """The answer's head, until a piece of its body goes with it."""
        self._on_disconnect: Call | None = None
        self.on_full: Call | None = None
        self.on_room: Call | None = None
        self.upgraded: UpgradedConnection | None = None
        """Channel of the client's bytes, where its request asks for a WebSocket."""
        self.task: asyncio.Task[None]
        """The application's call."""

    # The request's body.

    def feed_body(self, part: bytes) -> None:
        """Keep a part of the body until the application takes it."""
        if self.complete:
            return
        self._parts.append(part)
        self._buffered_bytes += len(part)
        if self._buffered_bytes > BODY_LIMIT:
            self._connection.pause_reading()
        if self._changed is not None:
            self._changed.set()

    def mark_body_complete(self) -> None:
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
        if self._body_open or self.client_gone:
            return None
        if not self._connection.reading:  # a large body, or the next request has come already
            self._connection.resume_reading()
        parts, self._parts, self._buffered_bytes, self._end_taken = self._parts, [], 0, True
        return b"".join(parts)

    async def receive(self) -> tuple[bytes, bool] | None:
        """Wait for a part of the body; return it, and whether more comes; None: client gone, or answer complete."""
        if self._expects and not self.begun and not self._connection.transport.is_closing():
            self._expects = False
            self._connection.transport.write(_CONTINUE)
        while not (self.client_gone or self.complete):
            if self._parts or not (self._body_open or self._end_taken):
                return self._take(), self._body_open
            self._connection.resume_reading()
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
            self._changed.clear()
        return None

    def _take(self) -> bytes:
        parts = self._parts
        self._parts, self._buffered_bytes, self._end_taken = [], 0, not self._body_open
        return b"".join(parts)

    # For the connection.

    def on_connection_lost(self) -> None:
        if not self.complete:
            self.client_gone = True
            if self._changed is not None:
                self._changed.set()
        if self._on_disconnect is not None:
            self._on_disconnect()

    def fail(self, error: BaseException | None) -> None:
        """Answer 500, or cut the answer, after the application failed; None: it returned without a whole answer."""
        if not isinstance(error, asyncio.CancelledError):  # a followed log, for one, ends with the server
            LOG.exception("a request was not answered", error)
        if self.begun:
            self._connection.transport.close()
        elif not self.client_gone:
            self.start(500, _FAULT_HEADERS, len(_FAULT))
            self.finish(_FAULT)

    # For the application.

    def ends(self) -> tuple[Address, Address]:
        """Return the addresses of the client and of the server."""
        return self._connection.client, self.head.listener[0]

    def on_disconnect(self, gone: Call) -> None:
        self._on_disconnect = gone
        if self.client_gone:
            self._connection.loop.call_soon(self.on_connection_lost)

    def flow(self, full: Call, room: Call) -> None:
        """Have `full` called when the client takes no more for now (at once, if it is so), and `room` when it does."""
        self.on_full, self.on_room = full, room
        if self._connection.is_full:
            full()

    def detach(self) -> None:
        self._on_disconnect = self.on_full = self.on_room = None

    def start(self, status: int, headers: ResponseHeaders, length: int | None = None) -> None:
        """Make the answer's head. `length`: bytes of the body, where the headers do not say."""
        if self.client_gone:
            return
        head = self.head
        self._bodiless = bodiless = status in NO_BODY or head.method == "HEAD"
        if length is None:
            length = headers.length
        self._chunked = length is None and not (bodiless or head.is_http10)
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        else:
            framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        line = _STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status
        closing = b"" if self.keeps or headers.closes else b"connection: close\r\n"
        self._pending_head = b"%b%b%b%b\r\n" % (line, headers.lines, framing, closing)
        self._response_length, self._sent_bytes = None if bodiless else length, 0
        self.begun = True
        if headers.closes:
            self.keeps = False

    def flush(self) -> None:
        """Write the answer's head: its body may begin much later."""
        if not self.client_gone:
            self._connection.transport.write(self._pending_head)
            self._pending_head = b""

    def switch_protocols(self, headers: ResponseHeaders) -> None:
        """Answer 101: from now on `write` writes the pieces as they are, and `finish` closes the connection."""
        self.begun, self.keeps, self._response_length = True, False, None
        self._bodiless, self._chunked, self._sent_bytes = False, False, 0
        if not self.client_gone:
            self._connection.transport.write(b"%b%b\r\n" % (_STATUS[101], headers.lines))

    def write(self, piece: bytes) -> None:
        """Write a piece of the answer's body; for a client that has left it is dropped."""
        if self.client_gone or not piece:
            return
        if self._chunked:
            self._connection.transport.write(b"%b%x\r\n%b\r\n" % (self._pending_head, len(piece), piece))
        elif self._bodiless:
            self._connection.transport.write(self._pending_head)
        else:
            self._sent_bytes += len(piece)
            head = self._pending_head
            self._connection.transport.writelines((head, piece) if head else (piece,))
        self._pending_head = b""

    def finish(self, last: bytes) -> None:
        """Write the last piece and the answer's end. Raises ValueError: the body is not as long as its head says."""
        connection = self._connection
        if last and self._pending_head and len(last) == self._response_length and not self.client_gone:  # all at once
            connection.transport.writelines((self._pending_head, last))
        else:
            self.write(last)
            if self.client_gone:
                return
            if self._chunked:
                connection.transport.write(self._pending_head + b"0\r\n\r\n")
            elif self._response_length not in (None, self._sent_bytes):
                raise ValueError(f"the answer's body has {self._sent_bytes} bytes instead of {self._response_length}")
            elif self._pending_head:
                connection.transport.write(self._pending_head)
        self.complete = True
        if self._changed is not None:
            self._changed.set()
        connection.answered(keeps=self.keeps)

    @property
    def is_full(self) -> bool:
        return self._connection.is_full

    async def sent(self) -> None:
        while self._connection.is_full and not (self.client_gone or self.complete):
            await self._connection.has_room()

    async def end(self, last: bytes) -> None:
        if self._connection.is_full:
            await self.sent()
        self.finish(last)

    def break_off(self, last: bytes) -> None:
        self.write(last)
        self.complete = True
        if self._changed is not None:
            self._changed.set()
        self._connection.transport.close()

    def cut(self) -> None:
        self._connection.transport.abort()
