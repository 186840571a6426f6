"""Exchange: one HTTP request and its one answer.

Owns: reading a body within its limits, starting an answer once, sending pieces of it, cutting a client that stands still.
Must not know engines or leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from sparkdash.access.key import Key
from sparkdash.domain.lease import Request
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.http.channel import AsgiChannel, ClientChannel
from sparkdash.gateway.http.request_head import ParsedHead, Scope
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.shared.body_budget import BodyShare
from sparkdash.limits import CONTROL_BODY_MIB
from sparkdash.units import MIB
from sparkdash.wire import ResponseHeaders

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

STREAM_HEADERS = ResponseHeaders(
    [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
)


CODING_SHOWN = 40
SLOWEST_BODY = 64 * 1024
"""Bytes per second under which a body is too slow, once its time is up."""


class ClientGone(Exception):  # noqa: N818 - not an error of ours
    """The client closed its connection."""


class ClientStuck(ClientGone):
    """It took nothing any more, and its connection was cut."""


class PausableSource(Protocol):
    """Where an answer comes from."""

    def pause(self) -> None:
        """Bring nothing more for now."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...


class Exchange:
    """One request. `line`: what carries its answer. `key`: whose request it is, once that is known; None when no key was
    asked for."""

    __slots__ = (
        "_line", "also", "collected", "finished", "head", "key", "method", "query", "raw_path", "row", "started",
    )  # fmt: skip

    def __init__(self, head: ParsedHead, line: ClientChannel, key: Key | None = None) -> None:
        self.head = head
        self.key = key
        self.method = head.method
        self.raw_path = head.raw_path
        self.query = head.query
        self.row: Callable[[], Request] | None = None
        """Its row in the table of requests as it is now, once it has one."""
        self.also: Headers = ()
        """Headers that the answer gets besides, as far as is known yet."""
        self.collected = False
        """Whether another handler collects the answer and sends it in its own format."""
        self.started = False
        """Has the status line gone out?"""
        self.finished = False
        self._line = line

    @classmethod
    def from_asgi(cls, scope: Scope, receive: Receive, send: Send, key: Key | None = None) -> Exchange:
        """One that is carried by ASGI's messages."""
        return cls(ParsedHead.from_scope(scope), AsgiChannel(scope, receive, send), key)

    def asgi_triple(self) -> tuple[Scope, Receive, Send]:
        """The way of ASGI, for who answers by its messages; instead of everything else here."""
        line = self._line
        granted = self.head.granted
        return line.scope(), line.receive, _with(granted, line.send) if granted else line.send

    async def body(self, limit_mib: int, share: BodyShare, limit_s: float) -> bytes:
        """The whole request body, which takes its `place`. It must come within `limit_s`, and a second more for every 64 KiB.

        Raises:
            AdmissionError: code `body_encoded`, status 415, before anything is read: it is compressed; code
                `body_too_large`, status 413; nothing beyond the limit is kept; code `body_too_slow`, status 408; as
                `BodyShare.take` does.
            ClientGone: it hung up before the end.
        """
        limit = limit_mib * MIB
        if self.head.coding:
            raise _encoded(self.head.coding)
        if (whole := self._line.body()) is not None:
            if len(whole) > limit:
                raise _too_large(limit_mib)
            share.reserve(len(whole))
            return whole
        if int(self._line.length or 0) > limit:
            raise _too_large(limit_mib)
        try:
            async with asyncio.timeout(limit_s) as deadline:
                return await self._parts(limit_mib, share, deadline)
        except TimeoutError:
            raise _too_slow(limit_s) from None

    async def _parts(self, limit_mib: int, share: BodyShare, deadline: asyncio.Timeout) -> bytes:
        body = bytearray()  # no list: of a body that comes byte by byte it would take forty times as much
        while True:
            message = await self._line.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part: bytes = message.get("body", b"")
            if len(body) + len(part) > limit_mib * MIB:
                raise _too_large(limit_mib)
            share.reserve(len(part))
            deadline.reschedule((deadline.when() or 0.0) + len(part) / SLOWEST_BODY)
            more = message.get("more_body", False)
            if not (more or body):
                return part
            body += part
            if not more:
                return bytes(body)

    def on_disconnect(self, gone: Callable[[ClientGone], object]) -> None:
        """Have `gone` called if the client hangs up before the answer is finished; to be called once the body is read."""
        self._line.on_disconnect(lambda: None if self.finished else gone(ClientGone()))

    def detach(self) -> None:
        """The request is over: nothing is called any more."""
        self._line.detach()

    async def client_gone(self) -> None:
        """Wait for the client to hang up; to be called once the body is read, instead of `on_disconnect`.

        Raises:
            ClientGone: it did, and the answer was not finished.
        """
        while (await self._line.receive())["type"] != "http.disconnect":
            pass
        if not self.finished:
            raise ClientGone

    def start(self, status: int, told: ResponseHeaders, length: int | None = None) -> None:
        """Send the status line and the headers. `length`: of the body, in bytes, where `told` has none."""
        if self.head.granted or self.also:
            length = told.length if length is None else length
            told = ResponseHeaders((*told.headers, *self.head.granted, *self.also))
        self._line.start(status, told, length)
        self.started = True

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the body; waits while the client is slow."""
        self._line.write(chunk)
        await self._line.sent()

    def flow(self, source: PausableSource, limit_s: float, stuck: Callable[[ClientStuck], object]) -> FlowControl:
        """Joins `source` to the client's connection: see Flow."""
        return FlowControl(self._line, source, limit_s, stuck)

    def finish(self, last: bytes = b"") -> Awaitable[None]:
        """Send the last piece; waits while the client is slow."""
        self.finished = True
        return self._line.end(last)

    def break_off(self, last: bytes) -> None:
        """Send `last` and close the connection without the answer's end, so that the client sees a failure."""
        self.finished = True
        self._line.break_off(last)

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        """A whole answer at once."""
        self.start(status, ResponseHeaders(headers), None if status == HTTPStatus.NO_CONTENT else len(body))
        await self.finish(b"" if self.method == "HEAD" else body)

    async def refuse_method(self, what: str, allowed: Collection[str], dialect: Dialect = Dialect.OTHER) -> None:
        """Answer 405 with the methods that `what` takes."""
        methods = ", ".join(sorted(allowed))
        self.also = ((b"allow", methods.encode()),)
        await self.refuse(problems.status_error(405, f"{what} takes {methods}, not {self.method}"), dialect)

    async def refuse(self, error: SparkdashError, dialect: Dialect = Dialect.OTHER) -> None:
        """Answer with an error and its status, in the format of the client's protocol."""
        body = problems.encode_json(problems.error_body(error, dialect))
        await self.answer(problems.client_status(error), body, problems.error_headers(error))


class FlowControl:
    """Between where an answer comes from and its client; a context manager that gives what sends a piece of the body at once.

    The source is paused while the client takes nothing. A client that takes nothing for `limit_s` (0: never) is cut, and `stuck`
    called; there is a timer only while it takes nothing.
    """

    __slots__ = ("_limit_s", "_line", "_source", "_stuck", "_timer", "is_full", "resumed_at")

    def __init__(
        self, line: ClientChannel, source: PausableSource, limit_s: float, stuck: Callable[[ClientStuck], object]
    ) -> None:
        self._line = line
        self._source = source
        self._limit_s = limit_s
        self._stuck = stuck
        self._timer: asyncio.TimerHandle | None = None
        self.is_full = False
        """Whether the client currently takes no bytes."""
        self.resumed_at = 0.0
        """Last time at which the client took bytes again, by the loop's clock."""

    def __enter__(self) -> Callable[[bytes], None]:
        self._line.flow(self._full, self._room)
        return self._line.write

    def __exit__(self, *_: object) -> None:
        self._limit_s = 0.0
        self._forget()

    def _full(self) -> None:
        self._source.pause()
        self.is_full = True
        if self._limit_s and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._cut)

    def _room(self) -> None:
        self._forget()
        self.is_full, self.resumed_at = False, asyncio.get_running_loop().time()
        self._source.resume()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._line.cut()
        self._stuck(ClientStuck())


def _with(headers: Headers, send: Send) -> Send:
    """`send`, with these headers besides."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sent


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays the body once, then passes on what the client sends."""
    ours: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return ours.pop() if ours else await receive()

    return received


def _encoded(coding: str) -> AdmissionError:
    return AdmissionError(
        f"The request's body is compressed ({coding[:CODING_SHOWN]}), which sparkdash does not read.",
        code="body_encoded",
        status=415,
        hint="Send it plain, without Content-Encoding.",
    )


def _too_slow(limit_s: float) -> AdmissionError:
    return AdmissionError(
        f"The request's body did not come within {limit_s:g} s (and a second for every 64 KiB of it).",
        code="body_too_slow",
        status=408,
        hint="body_s in config.toml sets the limit.",
    )


def _too_large(limit_mib: int) -> AdmissionError:
    return AdmissionError(
        f"The request's body is larger than {limit_mib} MiB.",
        code="body_too_large",
        status=413,
        hint=f"`body_limit_mib` in config.toml sets the limit; control requests may have {CONTROL_BODY_MIB} MiB.",
    )
