"""Connection: HTTP/1.1 on one socket to an engine, one question at a time.

Owns: what is parsed, what is kept of an answer until somebody takes it, and when its engine is told to wait. Must not know who
asks, nor where the connection is kept between two questions.
Rule 1: a piece of a body goes from the socket to whoever takes it in one call: no task, no queue, no copy of ours; what one read
brought is one piece, however many HTTP chunks it was. Only what comes with the end goes to who waits for that.
Rule 2: while nobody takes it, no more than BUFFER_LIMIT is kept; the rest waits in the engine's socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httptools

from sparkdash.errors import UpstreamError
from sparkdash.upstream.response_head import Header, ResponseHead

BUFFER_LIMIT = 256 * 1024
"""Bytes of a body that nobody has taken, above the read that brings it there."""
HEAD_LIMIT = 256 * 1024
"""Bytes of an answer before its body."""
BODY_PIECE = 256 * 1024
"""Request bodies are written in pieces of this size, so that one upload does not freeze every stream."""

_LENGTH = b"content-length"

Take = Callable[[bytes], object]


class EngineConnection(asyncio.Protocol):
    """One socket to the engine at `where` (host:port, for words). `on_lost` is called when it has ended."""

    def __init__(self, where: str, on_lost: Callable[[EngineConnection], object]) -> None:
        self.where = where
        self.reused = False
        """Has it carried an answer before this one?"""
        self.idle_since = 0.0
        """When the pool got it; the loop's clock."""
        self.heard = False
        """Has a byte of the answer come?"""
        self.status = 0
        """0 until the answer's head is complete; then what follows is known, too."""
        self.head = ResponseHead([])
        self.length: int | None = None
        """Bytes of the body, where the answer says so before it."""
        self.framed = False
        """Does the answer tell its own end, by a length or by chunks? Otherwise that of the connection is it, and an engine's death
        looks the same."""
        self._fields: list[Header] = []
        self._length: bytes | None = None
        self._on_lost = on_lost
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser's callback: nothing of ours runs per HTTP chunk
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._transport: asyncio.Transport
        self._lost = False
        self._error: Exception | None = None
        self._reading = True
        self._held = False
        """Has whoever takes the body asked for a pause?"""
        self._writable: asyncio.Event | None = None
        """Of an upload; unset while the engine takes no more."""
        self._waiter: asyncio.Future[None] | None = None
        self._asked = False
        self._bodiless = False
        self._called: str | None = None
        self._sent = True
        self._complete = False
        self._reusable = False
        self._head_size = 0
        self._buffered = 0
        self._take: Take | None = None

    # What the pool and the answer ask of it.

    @property
    def is_free(self) -> bool:
        """Can another question be asked?"""
        if self._lost or self._transport.is_closing():
            return False
        return not self._asked or (self._complete and self._reusable and self._sent)

    def renew(self) -> None:
        """Forget the last answer, and what nobody took of it: the next question may come."""
        self._pieces.clear()
        self._buffered = 0
        self.resume()
        self.reused = True
        self.heard = self._asked = self._complete = self._reusable = False
        self.status = self._head_size = 0
        self._take = self._error = None

    async def ask(self, head: bytes, body: bytes, *, bodiless: bool = False, called: str | None = None) -> None:
        """Send a request and wait for the head of its answer, or be cut. `bodiless`: it is one to HEAD, which has no body.
        `called`: the profile whose engine is asked, for the words of an error.

        Raises:
            UpstreamError: code `engine_died`: the connection ended first, or what came is no HTTP.
        """
        self._asked, self._bodiless, self._called = True, bodiless, called
        try:
            if len(body) <= BODY_PIECE:
                self._transport.writelines((head, body) if body else (head,))
            else:
                await self._upload(head, memoryview(body))
            while not self.status:
                await self._news()
        except BaseException:
            self.cut()
            raise

    async def _upload(self, head: bytes, body: memoryview) -> None:
        """Ends early when the answer begins before it: the engine has read enough."""
        self._sent = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport.write(head)
        for start in range(0, len(body), BODY_PIECE):
            self._transport.write(body[start : start + BODY_PIECE])
            await asyncio.sleep(0)
            await self._writable.wait()
            if self.status or self._lost:
                return
        self._sent = True

    async def piece(self) -> bytes:
        """What has come of the body since the last call; waits for something; empty at the end.

        Raises:
            UpstreamError: code `engine_died`: the connection ended before the body did.
        """
        while not self._pieces and not self._complete:
            await self._news()
        found = self._taken()
        self._buffered = 0
        self._regulate()
        return found

    async def pour(self, take: Take) -> bytes:
        """Give the body to `take`, each piece when it comes, but for what came with its end, which is returned. What `take`
        raises ends it.

        Raises:
            UpstreamError: code `engine_died`: the connection ended before the body did.
        """
        self._take = take
        self._buffered = 0
        self._regulate()
        if self._pieces and not self._complete:
            self._give(take)
        while not self._complete:
            await self._news()
        if self._error is not None:
            raise self._error
        return self._taken()

    def pause(self) -> None:
        """Read no more: whoever takes the body cannot now, or could not from the beginning. TCP lets the engine know."""
        self._held = True
        self._regulate()

    def resume(self) -> None:
        """Read on."""
        self._held = False
        self._regulate()

    def _regulate(self) -> None:
        reads = not self._held and self._buffered <= BUFFER_LIMIT
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
        """The engine ended its answer too soon: code `engine_died`."""
        return self._died(f"broke off in the middle of its answer ({why})")

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by its class

    def data_received(self, data: bytes) -> None:
        """Parsed, and given on as one piece."""
        if not self._asked or self._complete:
            self.cut()  # it speaks without having been asked
            return
        self.heard = True
        wrong = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
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
        except Exception as error:  # noqa: BLE001 - raised by pour: the loop, which calls this, has no use for it
            self._take, self._error = None, error
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended; for an answer without a length or chunks that is its end."""
        self._lost = True
        if self.status and not self.framed and exc is None:
            self._complete = True
        elif self._asked and not self._complete and self._error is None:
            self._error = self._ended(exc)
        if self._writable is not None:
            self._writable.set()
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The engine takes no more of an upload for now."""
        if self._writable is not None:
            self._writable.clear()

    def resume_writing(self) -> None:
        """It does again."""
        if self._writable is not None:
            self._writable.set()

    # What the parser tells.

    def on_message_begin(self) -> None:
        """An answer. A second one was not asked for: raised so that the parser stops, and the connection is not used again."""
        if self._complete:
            raise ValueError("a second answer")
        self._fields, self._length = [], None

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers come here too, and reach nobody."""
        if self.status:
            return
        name = name.lower()
        if name == _LENGTH:
            self._length = value
        else:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete; one of 1xx is only the herald of another."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        if self.head.headers != self._fields:
            self.head = ResponseHead(self._fields)
        self.length = None if self._length is None else int(self._length)
        self.framed = self.head.is_chunked or self._length is not None or self._bodiless or status in (204, 304)
        self.status = status
        if self._bodiless:
            self._complete = True
        if self._writable is not None:
            self._writable.set()

    def on_message_complete(self) -> None:
        """The body's end."""
        if self.status and not self._complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()

    # What is waited for.

    def _fail(self, why: str) -> None:
        if self._error is None:
            self._error = self.broke_off(why) if self.status else self._no_answer(why)
        self._wake()
        self.cut()

    def _ended(self, exc: Exception | None) -> UpstreamError:
        why = (getattr(exc, "strerror", None) or str(exc) or type(exc).__name__) if exc else "it closed the connection"
        return self.broke_off(why) if self.status else self._no_answer(why)

    def _no_answer(self, why: str) -> UpstreamError:
        return self._died(f"closed the connection without an answer ({why})")

    def _died(self, what: str) -> UpstreamError:
        hint = f"Its log says more: `sparkdash logs {self._called}`." if self._called else None
        return UpstreamError(f"{self._called or f'The engine at {self.where}'} {what}.", code="engine_died", hint=hint)

    def _news(self) -> asyncio.Future[None]:
        """Done when something has changed. Raises what went wrong."""
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
