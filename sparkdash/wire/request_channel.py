"""Line: one request's end of its client's connection.

Owns: the request's body until somebody takes it, and the answer's form on the wire. There are two ways to answer: by ASGI's
messages, and by calls that need neither a scope nor a message or a task for each piece (the gateway's `RequestChannel` says what each is for).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from sparkdash.wire.request_head import RequestHead
from sparkdash.wire.response_headers import ResponseHeaders

if TYPE_CHECKING:
    from sparkdash.wire.connection import ClientConnection

LOG = logging.getLogger("uvicorn.error")
BODY_LIMIT = 64 * 1024
"""Bytes of a request's body that wait for the application; the rest waits in the client's socket."""
NO_BODY = frozenset({204, 304})
"""Statuses that have neither a body nor a length of one (RFC 9110 section 15)."""
_STATUS = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FAULT = b"Internal Server Error"
_FAILED = ResponseHeaders([(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")])

Call = Callable[[], object]
Message = dict[str, Any]
Serve = Callable[["RequestChannel"], Awaitable[None]]


class RequestChannel:
    """See the module. `length`: of the body, as the client wrote it; `keeps`: the connection is kept after the answer.

    `full` and `room`: what is called when the connection fills up and when it has room again.
    """

    __slots__ = (
        "_bodiless", "_chunked", "_expects", "_gone", "_left", "_length", "_more", "_news", "_over", "_parts", "_sent",
        "_size", "_taken", "_unsent", "_wire", "begun", "full", "head", "keeps", "length", "room", "task",
    )  # fmt: skip

    def __init__(self, wire: ClientConnection, head: RequestHead, length: bytes | None) -> None:
        self._wire = wire
        self.head = head
        self.length = length
        self.keeps = head.keeps
        self._expects = head.expects
        self._parts: list[bytes] = []
        """Of the body, those that nobody has taken."""
        self._size = 0
        """Bytes of them."""
        self._more = True
        """Does more of the body come?"""
        self._taken = False
        """Was its end taken?"""
        self._news: asyncio.Event | None = None
        """Set when a receiver should look again."""
        self._left = False
        """Has the client?"""
        self.begun = False
        """Is the answer's head made?"""
        self._over = False
        """Is the answer complete?"""
        self._bodiless: bool
        self._chunked: bool
        self._length: int | None
        """Bytes of the answer's body, where its head says so."""
        self._sent: int
        """Bytes of it so far, where it has no chunks."""
        self._unsent = b""
        """The answer's head, until there is something of its body to go with it."""
        self._gone: Call | None = None
        self.full: Call | None = None
        self.room: Call | None = None
        self.task: asyncio.Task[None]
        """In which `run` runs."""

    # What the connection tells.

    def feed_body(self, part: bytes) -> None:
        """A part of the body has come."""
        if self._over:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > BODY_LIMIT:
            self._wire.pause_reading()
        if self._news is not None:
            self._news.set()

    def mark_body_complete(self) -> None:
        """All of it has."""
        self._more = False
        if self._news is not None:
            self._news.set()

    def reopen_body(self) -> bytes:
        """It is not whole yet, unless it has no body: then there is no header that frames one, and nothing is given."""
        if coded := self.head.named.get(b"transfer-encoding"):
            framing = b"transfer-encoding: " + coded
        elif self.length is not None and int(self.length):
            framing = b"content-length: " + self.length
        else:
            return b""
        self._more = True
        return framing

    def on_connection_lost(self) -> None:
        """The connection has ended."""
        if not self._over:
            self._left = True
            if self._news is not None:
                self._news.set()
        if self._gone is not None:
            self._gone()

    # The application's life.

    async def run(self, serve: Serve) -> None:
        """The application's call, whatever becomes of it."""
        try:
            await serve(self)
        except BaseException:  # also when the server cancels it: its client is told
            LOG.exception("Exception in ASGI application\n")
            self._fail()
        else:
            if not (self._over or self._left):
                LOG.error("ASGI callable returned without a complete response.")
                self._fail()
        finally:
            self._wire.ran(self.task)

    def _fail(self) -> None:
        if self.begun:
            self._wire.transport.close()
        elif not self._left:
            self.start(500, _FAILED, len(_FAULT))
            self.finish(_FAULT)

    # The way of ASGI.

    def scope(self) -> dict[str, Any]:
        """The request in ASGI's words; each time another, which may be changed."""
        head, (server, scheme) = self.head, self.head.door
        length = [] if self.length is None else [(b"content-length", self.length)]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": server,
            "client": self._wire.client,
            "scheme": scheme,
            "root_path": "",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": [*head.headers, *length],
        }

    async def receive(self) -> Message:
        """The body, and then that the client has left or the answer is complete."""
        self._go_on()
        while not (self._left or self._over):
            if self._parts or not (self._more or self._taken):
                return {"type": "http.request", "body": self._take(), "more_body": self._more}
            self._wire.resume_reading()
            if self._news is None:
                self._news = asyncio.Event()
            await self._news.wait()
            self._news.clear()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """The answer's head, then its body."""
        await self.sent()
        if self._left:
            return
        match message["type"]:
            case "http.response.start" if not self.begun:
                headers = ((name.lower(), value) for name, value in message.get("headers", ()))
                self.start(message["status"], ResponseHeaders(headers))
                self._wire.transport.write(self._unsent)  # its body may begin much later
                self._unsent = b""
            case "http.response.body" if self.begun and not self._over:
                body = bytes(message.get("body", b""))
                self.write(body) if message.get("more_body", False) else self.finish(body)
            case other:
                raise RuntimeError(f"{other!r} was sent where it has no place.")

    # The short way.

    def body(self) -> bytes | None:
        """See the gateway's."""
        if self._more or self._left:
            return None
        self._wire.resume_reading()  # paused where the body is a large one
        return self._take()

    def _take(self) -> bytes:
        parts = self._parts
        self._parts, self._size, self._taken = [], 0, not self._more
        return b"".join(parts)

    def _go_on(self) -> None:
        """Who waits with its body until it is told to send it is told so, once."""
        if self._expects and not self.begun and not self._wire.transport.is_closing():
            self._expects = False
            self._wire.transport.write(_CONTINUE)

    def on_disconnect(self, gone: Call) -> None:
        """See the gateway's."""
        self._gone = gone
        if self._left:
            self._wire.loop.call_soon(self.on_connection_lost)

    def flow(self, full: Call, room: Call) -> None:
        """See the gateway's."""
        self.full, self.room = full, room
        if self._wire.is_full:
            full()

    def detach(self) -> None:
        """See the gateway's."""
        self._gone = self.full = self.room = None

    def start(self, status: int, told: ResponseHeaders, length: int | None = None) -> None:
        """See the gateway's."""
        if self._left:
            return
        head = self.head
        bodiless = head.method == "HEAD" or status in NO_BODY
        if length is None:
            length = told.length
        parts = [_STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status, told.lines]
        chunked = False
        if length is not None:
            parts.append(b"content-length: %d\r\n" % length)
        elif not bodiless and not head.is_old:
            chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
        if not (self.keeps or told.closes):
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        self.begun, self.keeps = True, self.keeps and not told.closes
        self._length = None if bodiless else length
        self._bodiless, self._chunked, self._sent = bodiless, chunked, 0
        self._unsent = b"".join(parts)

    def write(self, piece: bytes) -> None:
        """See the gateway's."""
        if self._left or not piece:
            return
        if self._chunked:
            self._wire.transport.write(b"%b%x\r\n%b\r\n" % (self._unsent, len(piece), piece))
        elif self._bodiless:
            self._wire.transport.write(self._unsent)
        else:
            self._sent += len(piece)
            self._wire.transport.writelines((self._unsent, piece) if self._unsent else (piece,))
        self._unsent = b""

    def finish(self, last: bytes) -> None:
        """The last piece, and the answer's end. Raises ValueError: the body was not as long as its header said."""
        self.write(last)
        if self._left:
            return
        if self._chunked:
            self._wire.transport.write(self._unsent + b"0\r\n\r\n")
        elif self._length not in (None, self._sent):
            raise ValueError(f"the answer's body has {self._sent} bytes instead of {self._length}")
        elif self._unsent:
            self._wire.transport.write(self._unsent)
        self._over = True
        if self._news is not None:
            self._news.set()
        self._wire.answered(keeps=self.keeps)

    async def sent(self) -> None:
        """See the gateway's."""
        while self._wire.is_full and not (self._left or self._over):
            await self._wire.has_room()

    async def end(self, last: bytes) -> None:
        """See the gateway's."""
        if self._wire.is_full:
            await self.sent()
        self.finish(last)

    def break_off(self, last: bytes) -> None:
        """Write the last piece, and close the connection without the answer's end."""
        self.write(last)
        self._over = True
        if self._news is not None:
            self._news.set()
        self._wire.transport.close()

    def cut(self) -> None:
        """See the gateway's."""
        self._wire.transport.abort()


def by_messages(app: Any, line: RequestChannel) -> Awaitable[None]:
    """The call of an application that knows nothing but ASGI."""
    called: Awaitable[None] = app(line.scope(), line.receive, line.send)
    return called
