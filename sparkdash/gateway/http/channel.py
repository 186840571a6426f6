"""ClientChannel: the interface to one client's connection, and its implementation for a handler's own requests.

`wire.RequestChannel` is the other implementation: there, bytes go to the socket in the call that brings them.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sparkdash.gateway.http.headers import HeaderList
from sparkdash.upstream import EngineResponse, UpgradedEngine
from sparkdash.wire import ResponseHeaders, UpgradedConnection
from sparkdash.wire.request_channel import Address

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

    def ends(self) -> tuple[Address, Address]:
        """Return the addresses of the client and of the server, as far as they are known."""
        ...

    async def receive(self) -> tuple[bytes, bool] | None:
        """Wait for a part of the body; return it, and whether more comes; None: client gone, or answer complete."""
        ...

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


class InnerChannel:
    """ClientChannel of a request that a handler makes for its own client; collects the answer.

    `client`: the handler's client, whose hanging up ends the request; None: nobody waits for the answer.
    """

    upgraded = None

    def __init__(self, body: bytes, client: ClientChannel | None = None) -> None:
        self._body = body
        self._client = client
        self.status = 0
        """Status of the answer; 0 while it has not begun."""
        self.headers: HeaderList = []
        self.answer = bytearray()

    @property
    def length(self) -> bytes:
        return b"%d" % len(self._body)

    @property
    def is_full(self) -> bool:
        return self._client is not None and self._client.is_full

    def switch_protocols(self, told: ResponseHeaders) -> None:
        raise NotImplementedError

    def ends(self) -> tuple[Address, Address]:
        return self._client.ends() if self._client is not None else (None, None)

    async def receive(self) -> None:
        """Return that no more comes than `body` has given."""

    def body(self) -> bytes:
        return self._body

    def on_disconnect(self, gone: Call) -> None:
        if self._client is not None:
            self._client.on_disconnect(gone)

    def flow(self, full: Call, room: Call) -> None:
        if self._client is not None:
            self._client.flow(full, room)

    def detach(self) -> None:
        if self._client is not None:
            self._client.detach()

    def start(self, status: int, told: ResponseHeaders, _length: int | None = None) -> None:
        self.status, self.headers = status, told.headers

    def flush(self) -> None:
        """Do nothing: the answer is collected."""

    def write(self, piece: bytes) -> None:
        self.answer += piece

    async def sent(self) -> None:
        if self._client is not None:
            await self._client.sent()

    async def end(self, last: bytes) -> None:
        await self.sent()
        self.finish(last)

    def finish(self, last: bytes) -> None:
        self.write(last)

    def break_off(self, last: bytes) -> None:
        self.write(last)

    def cut(self) -> None:
        if self._client is not None:
            self._client.cut()


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
