"""More clients than there may be connections."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sparkdash import listen
from sparkdash.daemon import listeners
from sparkdash.wire import ConnectionLimit, RequestChannel, ResponseHeaders, connection

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HERE = "127.0.0.1"
BIG = bytes(32 * 2**20)
"""More than the kernel takes of an answer that its client does not read."""


class Crowd:
    """A server with room for so many, and its clients. `GET /slow` is answered once `answer` is set."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answer = asyncio.Event()
        self.clients: list[Stream] = []

    async def connect(self) -> Stream:
        self.clients.append(await asyncio.open_connection(HERE, self.port))
        return self.clients[-1]

    async def asks(self, client: Stream | None = None, path: str = "/") -> Stream:
        """One, a new one if none is given, asks and is not answered yet."""
        client = client or await self.connect()
        client[1].write(GET.replace(b" / ", f" {path} ".encode()))
        return client


async def answered(client: Stream) -> bytes:
    """Status line, once the whole answer is there."""
    head = await client[0].readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    await client[0].readexactly(length)
    return head.partition(b"\r\n")[0]


@asynccontextmanager
async def crowd(most: int) -> AsyncIterator[Crowd]:
    sock = listen.bind_tcp(HERE, 0)
    made = Crowd(sock.getsockname()[1])

    async def serve(own: RequestChannel) -> None:
        if own.head.path == "/slow":
            await made.answer.wait()
        body = BIG if own.head.path == "/big" else b"ok"
        own.start(200, ResponseHeaders([]), len(body))
        own.finish(body)

    server = listen.Server(serve, limit=ConnectionLimit(most, lambda: None))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        made.answer.set()
        for _, writer in made.clients:
            writer.close()
        server.stop()
        await serving


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle is whoever does nothing now."""
    monkeypatch.setattr(connection, "IDLE_S", 0.0)


async def test_idle_connections_go_for_new_clients_the_longest_idle_first() -> None:
    """Clients who ask are served, however many there are that do not."""
    async with crowd(3) as box:
        idle = [await box.asks() for _ in range(3)]
        for client in idle:
            await answered(client)
            await asyncio.sleep(0.002)  # uvloop counts whole milliseconds
        await answered(await box.asks(idle[0]))  # it is no longer the one that was used longest ago
        for _ in range(2):
            assert await answered(await box.asks()) == b"HTTP/1.1 200 OK"
        assert await idle[1][0].read() == await idle[2][0].read() == b""
        assert await answered(await box.asks(idle[0])) == b"HTTP/1.1 200 OK"


async def refused(client: Stream) -> bool:
    """The connection is cut without an answer."""
    with suppress(ConnectionError):
        return not await client[0].read()
    return True


async def test_who_finds_no_room_is_cut_and_who_is_served_is_left_alone() -> None:
    """Somebody who is through makes room."""
    async with crowd(2) as box:
        busy = [await box.asks(path="/slow") for _ in range(2)]
        assert await refused(await box.asks())
        box.answer.set()
        assert [await answered(client) for client in busy] == [b"HTTP/1.1 200 OK"] * 2
        assert await answered(await box.asks()) == b"HTTP/1.1 200 OK"


async def test_one_whose_answer_is_not_taken_yet_is_not_idle() -> None:
    """Closing it would free nothing: its descriptor is held until the client has read all, or has gone."""
    async with crowd(1) as box:
        slow = await box.asks(path="/big")
        await slow[0].readuntil(b"\r\n\r\n")
        assert await refused(await box.asks())
        assert await slow[0].readexactly(len(BIG)) == BIG
        assert await answered(await box.asks()) == b"HTTP/1.1 200 OK"


async def test_one_that_was_just_opened_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request may be in the socket: a burst of clients must not throw one another out."""
    monkeypatch.setattr(connection, "IDLE_S", 3600.0)
    async with crowd(2) as box:
        early = [await box.connect() for _ in range(2)]
        assert await refused(await box.asks())
        assert [await answered(await box.asks(client)) for client in early] == [b"HTTP/1.1 200 OK"] * 2


class Held:
    """A connection that is idle or not."""

    def __init__(self, idle_since: float | None = 0.0) -> None:
        self.idle_since = idle_since
        self.evicted = False
        self.transport = self

    def close(self) -> None:
        self.evicted, self.idle_since = True, None


async def test_a_burst_closes_no_more_than_it_needs_and_is_told_once() -> None:
    """The end of one that is closed is reported in a later turn, and others may come in this one."""
    idle, told = [Held() for _ in range(32)], list[bool]()
    limit, held = ConnectionLimit(32, lambda: told.append(True)), set(idle)
    for _ in range(4):
        assert limit.admit(held)
        held.add(Held(None))
    assert sum(each.evicted for each in idle) == 4
    assert told == [True]


@pytest.mark.parametrize(
    ("files", "most"), [(64, 8), (1024, 488), (65_536, 32_744), (resource.RLIM_INFINITY, 32_744), (20, 1)]
)
def test_the_limit_follows_from_that_of_open_files(files: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is kept for engines, podman and the database, and for the way to the engine of each client."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert listen.most_connections() == most


def test_the_owner_is_told_what_to_raise() -> None:
    told: list[Any] = []
    listeners.publish_notice(told.append, 8)
    assert told[0].text.startswith("8 connections are open")
    assert "LimitNOFILE=" in told[0].text
