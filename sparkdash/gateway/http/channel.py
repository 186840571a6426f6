"""ClientChannel: the interface to one client's connection, and its implementation over ASGI.

`wire.RequestChannel` of our own server is the other implementation: there, bytes go to the socket in the call that
brings them. AsgiChannel serves any pair of ASGI functions, as when an answer is turned into another protocol on its
way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from sparkdash.upstream import EngineResponse, UpgradedEngine
from sparkdash.wire import ResponseHeaders, UpgradedConnection

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays the body once, then passes on what the client sends."""
    ours: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return ours.pop() if ours else await receive()

    return received


def with_headers(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Return a `send` that adds these headers to the start of the answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sent


ASGI_BUFFER_LIMIT = 64 * 1024
"""Bytes that wait in an AsgiChannel until it is full."""

Call = Callable[[], object]


class ClientChannel(Protocol):
    """Channel of one request. Only `async` methods wait; callbacks run on the loop."""

    @property
    def length(self) -> bytes | None: ...

    @property
    def is_full(self) -> bool:
        """Whether what is written must be waited for."""
        ...

    @property
    def upgraded(self) -> UpgradedConnection | None:
        """Channel of the client's bytes after a request for a WebSocket; None for any other request."""
        ...

    def switch_protocols(self, told: ResponseHeaders) -> None:
        """Answer 101; from then on `write` writes bytes as they are, and `finish` closes the connection."""
        ...

    def finish(self, last: bytes) -> None: ...

    def scope(self) -> Scope: ...

    def receive(self) -> Awaitable[Message]: ...

    def send(self, message: Any) -> Awaitable[None]: ...

    def body(self) -> bytes | None:
        """Return the request's body if all of it has come; only once."""
        ...

    def on_disconnect(self, gone: Call) -> None:
        """Have `gone` called when the client has hung up."""
        ...

    def flow(self, full: Call, room: Call) -> None:
        """Have `full` called when no more should be written (at once, if so already), `room` when it may be again."""
        ...

    def detach(self) -> None: ...

    def start(self, status: int, told: ResponseHeaders, length: int | None = None) -> None:
        """Write the status line and the headers. `length`: bytes of the body, where `told` has none."""
        ...

    def flush(self) -> None:
        """Write the head now, and not with the first piece."""
        ...

    def write(self, piece: bytes) -> None: ...

    async def sent(self) -> None: ...

    async def end(self, last: bytes) -> None: ...

    def break_off(self, last: bytes) -> None:
        """Write the last piece, and close the connection without the answer's end."""
        ...

    def cut(self) -> None:
        """Close the connection at once, if it is ours to close."""
        ...


class AsgiChannel:
    """ClientChannel over ASGI's `receive` and `send`."""

    def __init__(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self._scope = scope
        self.receive = receive
        self.send = send
        self._messages: deque[dict[str, Any]] = deque()
        self._buffered_bytes = 0
        self._full: Call | None = None
        self._room: Call | None = None
        self._sending: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def length(self) -> bytes | None:
        return next((value for name, value in self._scope["headers"] if name == b"content-length"), None)

    def scope(self) -> Scope:
        return self._scope

    is_full = True

    @property
    def upgraded(self) -> UpgradedConnection | None:
        return None

    def switch_protocols(self, told: ResponseHeaders) -> None:
        raise NotImplementedError

    def finish(self, last: bytes) -> None:
        raise NotImplementedError

    def body(self) -> bytes | None:
        return None

    def on_disconnect(self, gone: Call) -> None:
        self._watching = asyncio.create_task(self._watch(gone), name="client")

    async def _watch(self, gone: Call) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        gone()

    def flow(self, full: Call, room: Call) -> None:
        self._full, self._room = full, room

    def detach(self) -> None:
        self._full = self._room = None
        for task in (self._watching, self._sending):
            if task is not None:
                task.cancel()

    def start(self, status: int, told: ResponseHeaders, length: int | None = None) -> None:
        if length is None:
            length = told.length
        size = [] if length is None else [(b"content-length", b"%d" % length)]
        self._put({"type": "http.response.start", "status": status, "headers": [*told.headers, *size]})

    def flush(self) -> None:
        """Do nothing: the head is a message of its own."""

    def write(self, piece: bytes) -> None:
        self._put({"type": "http.response.body", "body": piece, "more_body": True})

    def _put(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._buffered_bytes += len(message.get("body", b""))
        if self._buffered_bytes > ASGI_BUFFER_LIMIT and self._full is not None:
            self._full()
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._run(), name="asgi channel")

    async def _run(self) -> None:
        while self._messages:
            message = self._messages.popleft()
            await self.send(message)
            self._buffered_bytes -= len(message.get("body", b""))
        if self._room is not None:
            self._room()

    async def sent(self) -> None:
        """Wait until every queued message was sent; the channel is full until then. Raises what `send` raised."""
        if self._sending is not None:
            if self._full is not None and not self._sending.done():
                self._full()
            await self._sending

    async def end(self, last: bytes) -> None:
        await self.sent()
        self._put({"type": "http.response.body", "body": last, "more_body": False})
        await self.sent()

    def break_off(self, last: bytes) -> None:
        self.write(last)  # without the answer's end, the server closes the connection when the application returns

    def cut(self) -> None:
        """Do nothing: the connection belongs to the ASGI server."""


class ClientGone(Exception):  # noqa: N818 - an event, not an error
    """The client closed its connection."""


class ClientStuck(ClientGone):
    """The client took no bytes for too long, and its connection was cut."""


class FlowControl:
    """Context manager around an answer's body; entering it returns the function that writes a piece at once.

    The source is paused while the client takes nothing. A client that takes nothing for `limit_s` (0: never) is cut,
    and `on_client_stuck` is called. The timer runs only while the client takes nothing.
    """

    __slots__ = ("_channel", "_limit_s", "_on_client_stuck", "_source", "_timer", "is_full", "resumed_at")

    def __init__(
        self,
        channel: ClientChannel,
        source: EngineResponse | UpgradedEngine,
        limit_s: float,
        on_client_stuck: Callable[[ClientStuck], object],
    ) -> None:
        self._channel = channel
        self._source = source
        self._limit_s = limit_s
        self._on_client_stuck = on_client_stuck
        self._timer: asyncio.TimerHandle | None = None
        self.is_full = False
        """Whether the client currently takes no bytes."""
        self.resumed_at = 0.0
        """Last time at which the client took bytes again, by the loop's clock."""

    def __enter__(self) -> Callable[[bytes], None]:
        self._channel.flow(self._full, self._room)
        return self._channel.write

    def __exit__(self, *_: object) -> None:
        self._limit_s = 0.0
        if self._timer is not None:
            self._stop_timer()

    def _full(self) -> None:
        self._source.pause()
        self.is_full = True
        if self._limit_s and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._cut)

    def _room(self) -> None:
        self._stop_timer()
        self.is_full, self.resumed_at = False, asyncio.get_running_loop().time()
        self._source.resume()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._channel.cut()
        self._on_client_stuck(ClientStuck())
