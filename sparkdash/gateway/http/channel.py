"""Line: what carries an answer to its client.

A connection of our own server is one (`sparkdash.wire`): bytes go to its socket in the call that brings them. Pump makes one of
any other pair of ASGI functions, as when an answer is turned into another protocol on its way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from sparkdash.wire import ResponseHeaders

ASGI_BUFFER_LIMIT = 64 * 1024
"""Bytes that wait in a pump until it is full."""

Call = Callable[[], object]


class ClientChannel(Protocol):
    """One request's. Nothing here waits but what is `async`; the callbacks come on the loop."""

    @property
    def length(self) -> bytes | None:
        """Of the request's body, as the client wrote it."""
        ...

    def scope(self) -> MutableMapping[str, Any]:
        """The request in ASGI's words, for who answers it by `receive` and `send`."""
        ...

    def receive(self) -> Awaitable[MutableMapping[str, Any]]:
        """ASGI's."""
        ...

    def send(self, message: Any) -> Awaitable[None]:
        """ASGI's."""
        ...

    def body(self) -> bytes | None:
        """The request's body, once, if all of it is here already."""
        ...

    def on_disconnect(self, gone: Call) -> None:
        """Have `gone` called when the client has hung up."""
        ...

    def flow(self, full: Call, room: Call) -> None:
        """Have `full` called when no more should be written for now (at once, if it is so), and `room` when it may be."""
        ...

    def detach(self) -> None:
        """Nothing is called any more."""
        ...

    def start(self, status: int, told: ResponseHeaders, length: int | None = None) -> None:
        """The status line and the headers. `length`: of the body, in bytes, where `told` has none."""
        ...

    def write(self, piece: bytes) -> None:
        """A piece of the body. What a client that has gone is sent is lost."""
        ...

    async def sent(self) -> None:
        """Return when the client has room for more."""
        ...

    async def end(self, last: bytes) -> None:
        """The last piece, and the answer's end, once the client has room for it."""
        ...

    def break_off(self, last: bytes) -> None:
        """Write the last piece, and close the connection without the answer's end."""
        ...

    def cut(self) -> None:
        """Close the connection at once, if it is ours to close."""
        ...


class AsgiChannel:
    """A Line over ASGI's `receive` and `send`."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self._scope = scope
        self.receive = receive
        self.send = send
        self._messages: deque[dict[str, Any]] = deque()
        self._size = 0
        self._full: Call | None = None
        self._room: Call | None = None
        self._sending: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def length(self) -> bytes | None:
        """See Line."""
        return next((value for name, value in self._scope["headers"] if name == b"content-length"), None)

    def scope(self) -> MutableMapping[str, Any]:
        """See Line."""
        return self._scope

    def body(self) -> bytes | None:
        """It comes by messages."""
        return None

    def on_disconnect(self, gone: Call) -> None:
        """See Line; to be called once the body is read."""
        self._watching = asyncio.create_task(self._watch(gone), name="client")

    async def _watch(self, gone: Call) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        gone()

    def flow(self, full: Call, room: Call) -> None:
        """See Line."""
        self._full, self._room = full, room

    def detach(self) -> None:
        """See Line."""
        self._full = self._room = None
        for task in (self._watching, self._sending):
            if task is not None:
                task.cancel()

    def start(self, status: int, told: ResponseHeaders, length: int | None = None) -> None:
        """See Line."""
        if length is None:
            length = told.length
        size = [] if length is None else [(b"content-length", b"%d" % length)]
        self._put({"type": "http.response.start", "status": status, "headers": [*told.headers, *size]})

    def write(self, piece: bytes) -> None:
        """See Line."""
        self._put({"type": "http.response.body", "body": piece, "more_body": True})

    def _put(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._size += len(message.get("body", b""))
        if self._size > ASGI_BUFFER_LIMIT and self._full is not None:
            self._full()
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._run(), name="pump")

    async def _run(self) -> None:
        while self._messages:
            message = self._messages.popleft()
            await self.send(message)
            self._size -= len(message.get("body", b""))
        if self._room is not None:
            self._room()

    async def sent(self) -> None:
        """See Line; until then it is full. Raises what `send` raised."""
        if self._sending is not None:
            if self._full is not None and not self._sending.done():
                self._full()
            await self._sending

    async def end(self, last: bytes) -> None:
        """See Line. Returns when it was sent, too. Raises what `send` raised."""
        await self.sent()
        self._put({"type": "http.response.body", "body": last, "more_body": False})
        await self.sent()

    def break_off(self, last: bytes) -> None:
        """Send the last piece; the server closes the connection when the application returns before its answer's
        end.
        """
        self.write(last)

    def cut(self) -> None:
        """The connection is another's."""
