"""The server's connections: they send what uvicorn would; what a client may do in between; who waits for whom."""

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import uvicorn.server
from leaping import LeapingLoop
from sockets import MemorySocket
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sparkdash.wire import ClientConnection, RequestChannel, ResponseHeaders, ServerState
from sparkdash.wire.connection import MOST, Deadline

Headers = list[tuple[bytes, bytes]]
EMPTY = ResponseHeaders([(b"content-length", b"0")])


class Client:
    """One connection to an application, whose tasks run to their end with `rest`."""

    def __init__(
        self, app: Any, protocol: Callable[..., Any] = ClientConnection, server: ServerState | None = None
    ) -> None:
        server = server or ServerState(app)
        self.tasks = server.tasks
        if protocol is HttpToolsProtocol:
            config = uvicorn.Config(app, lifespan="off", log_config=None, date_header=False, server_header=False)
            config.load()
            self.wire = protocol(config, uvicorn.server.ServerState(), {})
        else:
            self.wire = protocol(server)
        self.socket = MemorySocket(self.wire)

    async def says(self, data: bytes) -> bytes:
        """Answers until nobody has anything to do."""
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
    async def serve(own: RequestChannel) -> None:
        own.start(status, ResponseHeaders(headers))
        for piece in pieces:
            own.write(piece)
        own.finish(b"")

    return serve


def by_messages(status: int, headers: Headers, pieces: list[bytes]) -> Any:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def whole(own: RequestChannel) -> bytes:
    """The request's body, or what came of it."""
    body = b""
    while (part := await own.receive()) is not None:
        body += part[0]
        if not part[1]:
            break
    return body


async def exchanged(
    app: Any, request: bytes, protocol: type[Any] = ClientConnection
) -> tuple[list[bytes], bytes, bool]:
    """The answer's head, its lines in order of the alphabet; its body; whether the connection is over."""
    client = Client(app, protocol)
    head, _, body = (await client.says(request)).partition(b"\r\n\r\n")
    await client.leaves()
    return sorted(head.lower().split(b"\r\n")), body, client.socket.closing


async def test_an_answer_is_what_uvicorn_would_send() -> None:
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
        messages = by_messages(status, headers, pieces)
        assert told == await exchanged(messages, request, HttpToolsProtocol), (status, headers, request)


async def test_an_answers_head_leaves_with_the_first_of_its_body() -> None:
    """A packet for each piece, and none for the head alone; a whole answer is one."""
    chunks = [(b"content-type", b"text/event-stream")]
    stream, whole = (
        Client(by_line(200, chunks, [b"first", b"second"])),
        Client(by_line(200, [(b"content-length", b"2")], [b"ab"])),
    )
    empty = Client(by_line(204, [], []))
    for client in (stream, whole, empty):
        await client.says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await client.leaves()
    head, *rest = stream.socket.packets
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (head.partition(b"\r\n\r\n")[2], rest) == (b"5\r\nfirst\r\n", [b"6\r\nsecond\r\n", b"0\r\n\r\n"])
    assert [packet[-6:] for packet in whole.socket.packets] == [b"\r\n\r\nab"]
    assert empty.socket.packets == [b"HTTP/1.1 204 No Content\r\n\r\n"]


@pytest.mark.parametrize("bad", [b"a\r\nx-evil: 1", b"a\nx-evil: 1", b"a\rx-evil: 1"])
@pytest.mark.parametrize("status", [200, 204])
async def test_a_header_with_a_line_break_is_a_fault_and_no_other_header(bad: bytes, status: int) -> None:
    """The client hears of the fault, in a form that it can read, and the connection ends."""
    app = by_line(status, [(b"x-good", bad)], [b"secret"])
    head, body, over = await exchanged(app, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (body, over) == (b"Internal Server Error", True)
    assert b"http/1.1 500 internal server error" in head
    assert b"content-length: 21" in head
    assert not [each for each in head if each.startswith((b"transfer-encoding", b"x-"))]


async def test_rubbish_behind_a_request_does_not_get_into_its_answer() -> None:
    """The connection ends there; the answer is cut, and nothing else is in it."""
    go_on = asyncio.Event()

    async def serve(own: RequestChannel) -> None:
        own.start(200, ResponseHeaders([]))
        own.write(b"a")
        await go_on.wait()
        own.finish(b"b")

    client = Client(serve)
    assert (await client.says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")).endswith(b"1\r\na\r\n")
    assert await client.says(b"\0\0 rubbish\r\n\r\n") == b""
    assert client.socket.closing
    await client.leaves()
    go_on.set()
    await client.rest()
    assert not client.tasks
    assert b"400" in (await Client(serve).says(b"\0 rubbish\r\n\r\n")).splitlines()[0]


async def test_who_waits_for_more_hears_that_its_client_left_with_another_request_behind_it() -> None:
    """The server's own books have only the last one."""
    heard: list[object] = []

    async def serve(own: RequestChannel) -> None:
        while (part := await own.receive()) is not None:
            pass
        heard.append(part)

    client = Client(serve)
    await client.says(2 * b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await client.leaves()
    assert (heard, len(client.tasks)) == ([None], 0)


async def test_a_body_is_asked_for_when_its_client_waits_for_that() -> None:
    """`Expect: 100-continue`: told once, before the answer."""
    got: list[bytes] = []

    async def serve(own: RequestChannel) -> None:
        if own.body() is None:
            got.append(await own.receive())
        own.start(200, EMPTY)
        own.finish(b"")

    client = Client(serve)
    asked = await client.says(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.says(b"ok")).startswith(b"HTTP/1.1 200 ")
    assert got == [(b"ok", False)]
    assert not client.socket.closing
    await client.leaves()


async def test_time_runs_while_nobody_asks_and_not_while_a_request_is_answered() -> None:
    """The time of a head, and of a connection that is kept."""
    go_on = asyncio.Event()

    async def serve(own: RequestChannel) -> None:
        await go_on.wait()
        own.start(200, EMPTY)
        own.finish(b"")

    client = Client(serve)
    for request, runs in ((b"GET / HT", True), (b"TP/1.1\r\nHost: h\r\n\r\n", False), (b"GET ", True)):
        await client.says(request)
        assert (client.wire._deadline.at is not None) is runs
    go_on.set()
    await client.rest()
    assert client.wire._deadline.at is not None
    assert b" 200 " in await client.says(b"/ HTTP/1.1\r\nHost: h\r\n\r\n")
    assert client.wire._deadline.at is not None
    await client.leaves()
    assert client.wire._deadline.at is None


def test_a_deadline_may_be_moved_either_way() -> None:
    """The deadline passes once, when it was last said to."""
    passed: list[int] = []

    async def moves() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        deadline = Deadline(loop, lambda: passed.append(round(loop.time() - begun)))
        for away, until_the_next in ((10, 5), (75, 15), (30, 80)):
            deadline.set(away)
            await asyncio.sleep(until_the_next)
        assert deadline.at is None
        deadline.set(10)
        deadline.at = None
        await asyncio.sleep(100)

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(moves())
    assert passed == [50]


async def test_requests_that_say_the_same_share_a_head() -> None:
    """But for their length; and whoever says anything else gets another."""
    heads: list[Any] = []
    lengths: list[Any] = []

    async def serve(own: RequestChannel) -> None:
        heads.append(own.head)
        lengths.append(own.length)
        own.start(200, EMPTY)
        own.finish(b"")

    client = Client(serve)
    for first, headers, body in (
        (b"POST /a", b"X: 1\r\nContent-Length: 1\r\n", b"x"),
        (b"POST /a", b"X: 1\r\ncontent-length: 2\r\n", b"xx"),
        (b"POST /b", b"X: 1\r\nContent-Length: 1\r\n", b"x"),
        (b"PUT /b", b"X: 1\r\nContent-Length: 1\r\n", b"x"),
        (b"PUT /b", b"X: 2\r\nContent-Length: 1\r\n", b"x"),
        (b"PUT /b", b"X: 2\r\nX: 2\r\n", b""),
    ):
        await client.says(b"%b HTTP/1.1\r\nHost: h\r\n%b\r\n%b" % (first, headers, body))
    await client.leaves()
    assert lengths == [b"1", b"2", b"1", b"1", b"1", None]
    assert heads[0] is heads[1]
    assert len({id(head) for head in heads}) == 5


async def test_a_client_that_goes_back_to_http_1_0_is_answered_so() -> None:
    """The same request, but for the version, which knows no chunks (RFC 9112 section 6.1): the connection's end is the answer's."""
    client = Client(by_line(200, [], [b"ab"]))
    request = b"GET / HTTP/1.%d\r\nHost: h\r\nConnection: keep-alive\r\n\r\n"
    assert (await client.says(request % 1)).endswith(b"2\r\nab\r\n0\r\n\r\n")
    assert (await client.says(request % 0)).endswith(b"\r\n\r\nab")
    assert (b"connection: close" in client.socket.written, client.socket.closing) == (True, True)
    await client.leaves()


async def test_a_header_that_comes_more_than_once_is_one_list() -> None:
    """By its name; each line of it is kept as it came."""
    seen: list[Any] = []

    async def serve(own: RequestChannel) -> None:
        seen.append((own.head.headers, own.head.named))
        own.start(200, EMPTY)
        own.finish(b"")

    client = Client(serve)
    await client.says(b"GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nB: 2\r\nx-a: 3\r\n\r\n")
    await client.leaves()
    assert seen == [
        ([(b"host", b"h"), (b"x-a", b"1"), (b"b", b"2"), (b"x-a", b"3")], {b"host": b"h", b"x-a": b"1, 3", b"b": b"2"})
    ]


async def test_what_follows_a_body_in_chunks_reaches_nobody() -> None:
    """Trailers are no headers, of this request or the next."""
    seen: list[Any] = []

    async def serve(own: RequestChannel) -> None:
        assert await whole(own) == b"x"
        seen.append(own.head.headers)
        await by_line(200, [], [])(own)

    client = Client(serve)
    chunked = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Evil: 1\r\n\r\n"
    for _ in range(2):
        assert (await client.says(chunked)).startswith(b"HTTP/1.1 200 ")
    await client.leaves()
    assert seen == 2 * [[(b"host", b"h"), (b"transfer-encoding", b"chunked")]]


async def test_a_wish_for_another_protocol_is_passed_by() -> None:
    """As Java's clients send it with every first request: its body is read, however it is cut, and so is the next request."""
    heard: list[bytes] = []

    async def serve(own: RequestChannel) -> None:
        heard.append(await whole(own))
        await by_line(200, [(b"content-length", b"2")], [b"ok"])(own)

    client = Client(serve)
    plain = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n\r\n"
    counted = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n" + wish
    chunked = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + wish
    empty = b"GET / HTTP/1.1\r\nHost: h\r\n" + wish
    for request in ((counted, b"GET / H"), (chunked, b"3\r\nabc\r\n0\r", b"\n\r\n"), (empty,), (plain,)):
        for piece in request[:-1]:
            assert await client.says(piece) == b""
        assert (await client.says(request[-1])).endswith(b"\r\n\r\nok"), request
    many = await client.says(4 * (counted + b"GET / H" + empty) + plain)
    assert many.count(b"HTTP/1.1 200 ") == 9
    assert heard == [b"GET / H", b"abc", b"", b"{}", *4 * [b"GET / H", b""], b"{}"]
    await client.leaves()


async def test_a_wish_changes_nothing_for_a_body_that_is_framed_badly() -> None:
    """The body is refused as it is without one, and a depth of wishes is no depth of calls."""
    wish = b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    for framing in (b"Transfer-Encoding: gzip", b"Transfer-Encoding: gzip\r\nTransfer-Encoding: x"):
        client = Client(by_line(200, [(b"content-length", b"2")], [b"ok"]))
        assert b" 400 " in await client.says(b"POST / HTTP/1.1\r\nHost: h\r\n%b\r\n%bx" % (framing, wish))
        await client.leaves()
    client = Client(by_line(204, [], []))
    assert (await client.says(2000 * (b"GET / HTTP/1.1\r\nHost: h\r\n" + wish))).startswith(b"HTTP/1.1 204 ")
    await client.leaves()


async def test_the_connections_of_a_server_share_its_turns() -> None:
    """Each is answered; one whose client left while it waited holds up nobody."""
    begun: list[str] = []

    async def serve(own: RequestChannel) -> None:
        begun.append(own.head.path)
        own.start(200, EMPTY)
        own.finish(b"")

    server = ServerState(serve)
    clients = [Client(serve, server=server) for _ in range(3 * MOST)]
    for number, client in enumerate(clients):
        client.wire.data_received(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
    clients[-1].wire.connection_lost(None)
    await asyncio.sleep(0)
    assert begun == [f"/{number}" for number in range(MOST)]
    await client.rest()
    assert begun == [f"/{number}" for number in range(3 * MOST)]
    assert [client.socket.written[:15] for client in clients] == [b"HTTP/1.1 200 OK"] * (3 * MOST - 1) + [b""]
    for client in clients[:-1]:
        client.wire.connection_lost(None)


async def test_a_connection_that_was_accepted_as_the_server_ends_is_answered() -> None:
    """The loop makes its protocol in the turn after; by then the server had ended, and the request with it."""

    async def serve(own: RequestChannel) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        own.start(200, EMPTY)
        own.finish(b"")

    server, loop, accepted = ServerState(serve, linger_s=60), asyncio.get_running_loop(), list[Client]()
    ending = asyncio.create_task(server.shut_down(60))
    loop.call_soon(lambda: accepted.append(Client(serve, server=server)))
    await asyncio.sleep(0)
    (client,) = accepted
    assert (await client.says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    await client.leaves()
    await ending
