"""EngineConnection: HTTP/1.1 on one socket to an engine, one request at a time.

Rule 1: a piece of a body goes from the socket to its taker in one call: no task, no queue, no copy of ours. One read
is one piece, however many HTTP chunks it brought. Only the last piece goes to the task that waits for the end.
Rule 2: while nobody takes the body, at most BUFFER_LIMIT is kept; the rest waits in the engine's socket.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Self

import httptools

from sparkdash.errors import UpstreamError

Header = tuple[bytes, bytes]

UNNAMED_TYPE = "application/octet-stream"
"""Media type of a body for which the answer names none."""


class ResponseHead:
    """Headers of an answer, but for its length.

    An engine sends the same headers again and again on one connection (the date changes once a second): they are one
    object, and what was found out about them is kept in `memo`. `headers`: with names in lower case.
    """

    __slots__ = ("coding", "content_type", "headers", "is_chunked", "memo")

    def __init__(self, headers: list[Header]) -> None:
        self.headers = headers
        self.content_type = UNNAMED_TYPE
        self.is_chunked = False
        self.coding = ""
        """Compression of the body, for which no engine is asked; empty without one."""
        for name, value in self.headers:
            if name == b"content-type":
                self.content_type = value.partition(b";")[0].strip().lower().decode("latin-1")
            elif name == b"transfer-encoding" and b"chunked" in value.lower():
                self.is_chunked = True
            elif name == b"content-encoding" and value.lower() != b"identity":
                self.coding = value.lower().decode("latin-1")
        self.memo: object = None
        """The caller's: what follows from the headers alone."""


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Return headers as they are written. Encode equal headers once, and use them for many requests.

    Raises:
        UpstreamError: code `engine_unreachable`: a header contains a line break, and would be written as two.
    """
    written = [b": ".join(header) for header in headers]
    all_of_them = b"".join(written)
    if all_of_them.find(b"\n") >= 0 or all_of_them.find(b"\r") >= 0:
        raise UpstreamError(
            "A header of the request to the engine contains a line break.",
            code="engine_unreachable",
            hint="Check the engine's key in its profile and in the environment.",
        )
    return b"\r\n".join([*written, b""])


SWITCHED = 101
_LENGTH = b"content-length"


class ResponseParser:
    """Parses with llhttp, whose callbacks are methods here; a connection inherits them, which saves a call for each."""

    def __init__(self) -> None:
        self.status = 0
        """0 until the answer's head is complete; from then on `head`, `length` and `framed` are known."""
        self.head = ResponseHead([])
        self.length: int | None = None
        """Bytes of the body, where the answer says so before it."""
        self.framed = False
        """Whether a length or chunks tell the answer's end; else the connection's end does, as an engine's death."""
        self._fields: list[Header] = []
        self._length: bytes | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser's callback: nothing of ours runs per HTTP chunk
        self._bodiless = self._upgrades = False
        self._complete = False
        self._reusable = False
        self._upload_may_go_on: asyncio.Event | None = None
        """Event of an upload; unset while the engine takes no more."""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)

    def on_message_begin(self) -> None:
        """Begin an answer. Raise for a second one, so that the parser stops and the connection is not used again."""
        if self._complete:
            raise ValueError("a second answer")
        self._fields, self._length = [], None

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return
        name = name.lower()
        if name == _LENGTH:
            self._length = value
        else:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Complete the head; an interim one (1xx) only announces another."""
        status = self._parser.get_status_code()
        if status < 200 and not (status == SWITCHED and self._upgrades):
            return
        if self.head.headers != self._fields:
            self.head = ResponseHead(self._fields)
        self.length = None if self._length is None else int(self._length)
        self.framed = self.head.is_chunked or self._length is not None or self._bodiless or status in (204, 304)
        self.status = status
        if self._bodiless:
            self._complete = True
        if self._upload_may_go_on is not None:
            self._upload_may_go_on.set()

    def on_message_complete(self) -> None:
        if self.status and not self._complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()


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
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # Callbacks of the socket.

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def pause_writing(self) -> None:
        if self._on_full is not None:
            self._on_full()

    def resume_writing(self) -> None:
        if self._on_room is not None:
            self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
        if self._on_end is not None:
            self._on_end()


BUFFER_LIMIT = 256 * 1024
"""Bytes of a body that wait to be taken, besides those of the read that exceeds it."""
HEAD_LIMIT = 256 * 1024
"""Bytes of an answer before its body."""
BODY_PIECE = 256 * 1024
"""Request bodies are written in pieces of this size, so that one upload does not freeze every stream."""

Take = Callable[[bytes], object]


class EngineConnection(ResponseParser, asyncio.Protocol):
    """Socket to the engine at `where` (host:port, for messages).

    `on_lost` is called when the connection has ended, `on_over` when its answer needs it no more.
    """

    def __init__(
        self,
        where: str,
        on_lost: "Callable[[EngineConnection], object]",
        on_over: "Callable[[EngineConnection], object]",
    ) -> None:
        super().__init__()
        self.where = where
        self.on_over = on_over
        self.reused = False
        """Whether the connection has carried an answer before this one."""
        self.idle_since = 0.0
        """Time at which the pool got the connection back, by the loop's clock."""
        self.heard = False
        """Whether a byte of the answer has come."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._lost = False
        self._error: Exception | None = None
        self._reading = True
        self._paused = False
        """Whether the taker of the body has asked for a pause."""
        self._waiter: asyncio.Future[None] | None = None
        self._asked = False
        """Whether a request was sent since the last `renew`."""
        self._called: str | None = None
        self._sent = True
        self._head_size = 0
        self._buffered = 0
        self._take: Take | None = None
        self.upgraded: UpgradedEngine | None = None
        """The socket after a 101; None before and without one."""

    # For the pool and the answer.

    @property
    def is_free(self) -> bool:
        """Whether another request can be sent."""
        if self._lost or self._transport.is_closing():
            return False
        return not self._asked or (self._complete and self._reusable and self._sent)

    def renew(self) -> None:
        """Forget the last answer, and what nobody took of it, for the next request."""
        self._pieces.clear()
        self._buffered = 0
        self._paused = False
        if not self._reading:
            self._regulate()
        self.reused = True
        self.heard = self._asked = self._complete = self._reusable = False
        self.status = self._head_size = 0
        self._take = self._error = None

    async def ask(
        self, head: bytes, body: bytes, bodiless: bool = False, called: str | None = None, upgrades: bool = False
    ) -> None:
        """Send a request and wait for the head of its answer; left early, the connection is cut.

        `bodiless`: the method is HEAD, whose answer has no body. `called`: profile of the engine, for error messages.
        `upgrades`: the request asks for another protocol.

        Raises:
            UpstreamError: code `engine_died`: the connection ended first, or what came is no HTTP.
        """
        self._asked, self._bodiless, self._called, self._upgrades = True, bodiless, called, upgrades
        try:
            if len(body) <= BODY_PIECE:
                self._transport.writelines((head, body) if body else (head,))
            else:
                await self._upload(head, memoryview(body))
            while not self.status:
                await self._change()
        except BaseException:
            self.cut()
            raise

    async def _upload(self, head: bytes, body: memoryview) -> None:
        """Send a large body. End early when the answer begins before its end: the engine has read enough."""
        self._sent = False
        self._upload_may_go_on = asyncio.Event()
        self._upload_may_go_on.set()
        self._transport.write(head)
        for start in range(0, len(body), BODY_PIECE):
            self._transport.write(body[start : start + BODY_PIECE])
            await asyncio.sleep(0)
            await self._upload_may_go_on.wait()
            if self.status or self._lost:
                return
        self._sent = True

    async def piece(self) -> bytes:
        """Wait for more of the body and return it; empty at the end.

        Raises:
            UpstreamError: code `engine_died`: the connection ended before the body did.
        """
        while not self._pieces and not self._complete:
            await self._change()
        found = self._taken()
        self._buffered = 0
        self._regulate()
        return found

    async def pour(self, take: Take) -> bytes:
        """Give each piece of the body to `take` as it comes, and return the last one. What `take` raises is raised
        here. Raises UpstreamError: code `engine_died`: the connection ended before the body did."""
        self._take = take
        self._buffered = 0
        if not self._reading:
            self._regulate()
        if self._pieces and not self._complete:
            self._give(take)
        while not self._complete:
            await self._change()
        if self._error is not None:
            raise self._error
        return self._taken()

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has come; None: it is to be poured."""
        return self._taken() if self._complete and self._error is None else None

    def pause(self) -> None:
        self._paused = True
        self._regulate()

    def resume(self) -> None:
        self._paused = False
        self._regulate()

    def _regulate(self) -> None:
        reads = not self._paused and self._buffered <= BUFFER_LIMIT
        if reads is self._reading or self._transport.is_closing():
            return
        self._reading = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def cut(self) -> None:
        """Close at once, whatever is under way."""
        self._take = None
        self._transport.abort()

    def broke_off(self, why: str) -> UpstreamError:
        """Make the error of an answer that ended too soon: code `engine_died`."""
        return self._died(f"broke off in the middle of its answer ({why})")

    # Callbacks of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by its class

    def data_received(self, data: bytes) -> None:
        """Parse what one read brought, and give it on as one piece."""
        if not self._asked or self._complete:
            self.cut()  # no request is under way
            return
        self.heard = True
        wrong = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.status == SWITCHED:
                self._reusable = False
                self.upgraded = UpgradedEngine(self, self._transport, data[error.args[0] :])
                self._wake()
                return
            self._reusable, wrong = False, f"what it sends is no HTTP/1.1: {error}"
        if not self.status:
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                wrong = "the head of its answer does not end"
        if self._complete:
            self._wake()
            return
        if self._take is None:
            self._keep(len(data))
        elif self._pieces:
            self._give(self._take)
        if wrong is not None:
            self._fail(wrong)

    def _keep(self, size: int) -> None:
        if self._pieces:
            self._buffered += size
            self._regulate()
        self._wake()

    def _taken(self) -> bytes:
        pieces = self._pieces
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return piece

    def _give(self, take: Take) -> None:
        piece = self._taken()
        try:
            take(piece)
        except Exception as error:  # noqa: BLE001 - `pour` raises it: the loop, which calls this, has no use for it
            self._take, self._error = None, error
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, which is also that of an answer without a length or chunks."""
        self._lost = True
        if self.status and not self.framed and exc is None:
            self._complete = True
        elif self._asked and not self._complete and self._error is None:
            self._error = self._ended(exc)
        if self._upload_may_go_on is not None:
            self._upload_may_go_on.set()
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Note that the engine takes no more of an upload for now."""
        if self._upload_may_go_on is not None:
            self._upload_may_go_on.clear()

    def resume_writing(self) -> None:
        if self._upload_may_go_on is not None:
            self._upload_may_go_on.set()

    # Failures, and waking up.

    def _fail(self, why: str) -> None:
        if self._error is None:
            self._error = self._broken(why)
        self._wake()
        self.cut()

    def _ended(self, exc: Exception | None) -> UpstreamError:
        gave = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        return self._broken("it closed the connection" if exc is None else gave)

    def _broken(self, why: str) -> UpstreamError:
        return self.broke_off(why) if self.status else self._died(f"closed the connection without an answer ({why})")

    def _died(self, what: str) -> UpstreamError:
        hint = f"Its log says more: `sparkdash logs {self._called}`." if self._called else None
        return UpstreamError(f"{self._called or f'The engine at {self.where}'} {what}.", code="engine_died", hint=hint)

    def _change(self) -> asyncio.Future[None]:
        """Return a future that is done when something has changed. Raises what went wrong."""
        if self._error is not None:
            raise self._error
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


READ_LIMIT = 16 * 1024 * 1024
"""Most that `read` keeps of one answer; the largest /metrics seen is under 1 MiB."""


class EngineResponse:
    """An answer whose body is still to come; a context manager, which gives the connection back.

    `headers`: as the engine sent them, without the Content-Length, with names in lower case.
    """

    __slots__ = ("_body", "connection", "content_type", "ends_with_connection", "head", "headers", "length", "status")

    def __init__(self, connection: EngineConnection) -> None:
        self.connection = connection
        self._body: bytes | None = None
        self.status = connection.status
        self.head = connection.head
        self.headers: list[Header] = self.head.headers
        self.content_type = self.head.content_type
        self.length = connection.length
        """Bytes of the body, where the engine says so before it."""
        self.ends_with_connection = not connection.framed
        """Whether only the connection's end ends the body (no chunks, no length): an engine's death looks the same."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the connection for other requests; left before the answer's end, cut it, so that the engine aborts."""
        self.connection.on_over(self.connection)

    @property
    def upgraded(self) -> UpgradedEngine | None:
        """The engine's socket after a 101; None after any other answer."""
        return self.connection.upgraded

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, never in empty pieces.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        while piece := await self.connection.piece():
            yield piece

    def pour(self, take: Take) -> Awaitable[bytes]:
        """Give each piece of the body to `take` as it comes, on the loop: `take` must not wait. Return the last piece.

        What `take` raises is raised here. A body that was read is returned as one piece.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        return self.connection.pour(take) if self._body is None else self.read()

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has come; None: it is to be poured."""
        return self.connection.whole_body() if self._body is None else self._body

    def pause(self) -> None:
        self.connection.pause()

    def resume(self) -> None:
        self.connection.resume()

    def broke_off(self, why: str) -> UpstreamError:
        return self.connection.broke_off(why)

    def words_of(self, body: bytes) -> bytes:
        """Return the body without its compression, to be read for a message; at most READ_LIMIT bytes."""
        if self.head.coding not in ("gzip", "deflate"):
            return body
        try:
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, READ_LIMIT)
        except zlib.error:
            return body

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """Read the body, at most `limit` bytes of it; another call returns the same bytes."""
        if self._body is None:
            parts, size = [], 0
            while size < limit and (piece := await self.connection.piece()):
                parts.append(piece)
                size += len(piece)
            self._body = b"".join(parts)[:limit]
        return self._body
