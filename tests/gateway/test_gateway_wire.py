"""The server's connection: what goes past ASGI's messages is what they would have sent; what a client may do in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from sparkdash.listen import Server
from sparkdash.wire import Wire, line

Headers = list[tuple[bytes, bytes]]


class Socket(asyncio.Transport):
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Client:
    """One connection to an application, whose tasks run to their end with `rest`."""

    def __init__(self, app: Any) -> None:
        server = Server(app)
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        self.tasks = server.server_state.tasks
        made = server._protocol()
        assert isinstance(made, Wire)
        self.wire, self.socket = made, Socket()
        made.connection_made(self.socket)

    async def says(self, data: bytes) -> bytes:
        """What it is answered until nobody has anything to do."""
        self.socket.written = b""
        if not self.socket.closing:
            self.wire.data_received(data)
        await self.rest()
        return self.socket.written

    async def rest(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def leaves(self) -> None:
        self.wire.connection_lost(None)
        await self.rest()


def by_line(status: int, headers: Headers, pieces: list[bytes]) -> Any:
    """The gateway's way."""

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        own = line(scope)
        assert own is not None
        own.start(status, headers)
        for piece in pieces:
            own.write(piece)
        own.finish(b"")

    return app


def by_messages(status: int, headers: Headers, pieces: list[bytes]) -> Any:
    """ASGI's."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def exchanged(app: Any, request: bytes) -> tuple[list[bytes], bytes, bool]:
    """The answer's head, its lines in order of the alphabet; its body; whether the connection is over."""
    client = Client(app)
    head, _, body = (await client.says(request)).partition(b"\r\n\r\n")
    await client.leaves()
    return sorted(head.lower().split(b"\r\n")), body, client.socket.closing


async def test_a_line_sends_what_messages_would() -> None:
    """For every method, version and wish of a client, and every kind of answer."""
    answers: list[tuple[int, Headers, list[bytes]]] = [
        (200, [(b"content-length", b"4")], [b"ab", b"cd"]),
        (200, [(b"content-length", b"4"), (b"connection", b"close")], [b"abcd"]),
        (200, [(b"content-length", b"0"), (b"connection", b"Keep-Alive, Close")], []),
        (200, [(b"content-type", b"text/event-stream")], [b"a", b"bc"]),
        (404, [(b"content-length", b"1")], [b"x"]),
        (204, [], []),
        (304, [(b"etag", b"1")], []),
    ]
    wishes = (b"", b"Connection: close\r\n", b"Connection: keep-alive\r\n")
    for (status, headers, pieces), method, wish in product(answers, (b"GET", b"HEAD"), wishes):
        request = method + b" / HTTP/1.1\r\nHost: localhost\r\n" + wish + b"\r\n"
        told = await exchanged(by_line(status, headers, pieces), request)
        assert told == await exchanged(by_messages(status, headers, pieces), request), (status, headers, request)


async def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    """It does not know them (RFC 9112 section 6.1): the connection's end is the answer's."""
    head, body, over = await exchanged(by_line(200, [], [b"ab", b"cd"]), b"GET / HTTP/1.0\r\n\r\n")
    assert (body, over) == (b"abcd", True)
    assert b"connection: close" in head
    assert not [each for each in head if each.startswith(b"transfer-encoding")]


async def test_a_status_that_no_list_has_is_passed_on() -> None:
    """Any three digits are one."""
    head, body, _ = await exchanged(by_line(799, [(b"content-length", b"1")], [b"x"]), b"GET / HTTP/1.1\r\n\r\n")
    assert b"http/1.1 799 " in head
    assert body == b"x"


async def test_rubbish_behind_a_request_does_not_get_into_its_answer() -> None:
    """The connection ends there; the answer is cut, and nothing else is in it."""
    go_on = asyncio.Event()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        own = line(scope)
        assert own is not None
        own.start(200, [])
        own.write(b"a")
        await go_on.wait()
        own.finish(b"b")

    client = Client(app)
    assert (await client.says(b"GET / HTTP/1.1\r\n\r\n")).endswith(b"1\r\na\r\n")
    assert await client.says(b"\0\0 rubbish\r\n\r\n") == b""
    assert client.socket.closing
    await client.leaves()
    go_on.set()
    await client.rest()
    assert not client.tasks
    assert b"400" in (await Client(app).says(b"\0 rubbish\r\n\r\n")).splitlines()[0]


async def test_who_waits_by_messages_hears_that_its_client_left_with_another_request_behind_it() -> None:
    """The server's own books have only the last one."""
    heard: list[str] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            pass
        heard.append(message["type"])

    client = Client(app)
    await client.says(2 * b"GET / HTTP/1.1\r\n\r\n")
    await client.leaves()
    assert (heard, len(client.tasks)) == (["http.disconnect"], 0)


async def test_a_body_is_asked_for_when_its_client_waits_for_that() -> None:
    """`Expect: 100-continue`: told once, before the answer."""
    got: list[bytes] = []

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        own = line(scope)
        assert own is not None
        if own.body() is None:
            got.append((await receive())["body"])
        own.start(200, [(b"content-length", b"0")])
        own.finish(b"")

    client = Client(app)
    asked = await client.says(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.says(b"ok")).startswith(b"HTTP/1.1 200 ")
    assert got == [b"ok"]
    assert not client.socket.closing
    await client.leaves()


@pytest.mark.parametrize("make", [by_line, by_messages])
async def test_a_connection_is_kept_and_ends_when_nobody_asks(make: Callable[..., Any]) -> None:
    """The time runs from an answer's end, and not while one is under way."""
    client = Client(make(200, [(b"content-length", b"2")], [b"ok"]))
    for _ in range(2):
        assert (await client.says(b"GET / HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok")
        timer = client.wire.timeout_keep_alive_task
        assert timer is not None
        assert not timer.cancelled()
    await client.says(b"GET ")
    assert timer.cancelled()
    await client.leaves()


async def test_a_wish_for_another_protocol_is_passed_by() -> None:
    """As Java's clients send it with every first request; the next request is heard as well."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
    client = Client(by_line(200, [(b"content-length", b"2")], [b"ok"]))
    for more, body in ((upgrade, b"{}"), (upgrade, b""), (b"", b"{}")):
        request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), more, body)
        assert (await client.says(request)).endswith(b"\r\n\r\nok"), request
    await client.leaves()
