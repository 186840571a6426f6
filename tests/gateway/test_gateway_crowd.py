"""More clients than there may be connections."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sparkdash import listen
from sparkdash.daemon import listeners
from sparkdash.wire import ConnectionLimit, Crowding, connection

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HERE = "127.0.0.1"
BIG = bytes(32 * 2**20)
"""More than the kernel takes of an answer that its client does not read."""


class Crowd:
    """A server with room for so many, its clients, and what it told. `GET /slow` is answered once `answer` is set."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.told: list[Crowding] = []
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
    """Its status line, once the whole answer is there."""
    head = await client[0].readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    await client[0].readexactly(length)
    return head.partition(b"\r\n")[0]


@asynccontextmanager
async def crowd(most: int) -> AsyncIterator[Crowd]:
    sock = listen.bind_tcp(HERE, 0)
    made = Crowd(sock.getsockname()[1])

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await made.answer.wait()
        body = BIG if scope["path"] == "/big" else b"ok"
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    server = listen.Server(app, limit=ConnectionLimit(most, made.told.append))
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
    """Whoever asks is served, however many there are that do not."""
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
    assert box.told == [Crowding(most=3, closed=1, refused=0, address=None)]


async def test_who_finds_no_room_is_told_so_and_who_is_served_is_left_alone() -> None:
    """A 503 with the words and when to come again, and not a reset; there is room again once somebody is through."""
    async with crowd(2) as box:
        busy = [await box.asks(path="/slow") for _ in range(2)]
        refused = await box.asks()
        head = await refused[0].readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2" in head
        assert b"too_many_connections" in await refused[0].read()
        box.answer.set()
        assert [await answered(client) for client in busy] == [b"HTTP/1.1 200 OK"] * 2
        assert await answered(await box.asks()) == b"HTTP/1.1 200 OK"
    assert [(met.closed, met.refused) for met in box.told] == [(0, 1)]


async def test_one_whose_answer_is_not_taken_yet_is_not_idle() -> None:
    """Closing it would free nothing: its descriptor is held until the client has read all, or has gone."""
    async with crowd(1) as box:
        slow = await box.asks(path="/big")
        await slow[0].readuntil(b"\r\n\r\n")
        late = await box.asks()
        assert (await late[0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 503 ")
        assert await slow[0].readexactly(len(BIG)) == BIG
        assert await answered(await box.asks()) == b"HTTP/1.1 200 OK"


async def test_one_that_was_just_opened_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request may be in the socket: a burst of clients must not throw one another out."""
    monkeypatch.setattr(connection, "IDLE_S", 3600.0)
    async with crowd(2) as box:
        early = [await box.connect() for _ in range(2)]
        late = await box.asks()
        assert (await late[0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 503 ")
        assert [await answered(await box.asks(client)) for client in early] == [b"HTTP/1.1 200 OK"] * 2


async def test_refused_connections_cost_no_descriptors_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that never asks is closed after a while, and beyond some they are closed at once."""
    monkeypatch.setattr(connection, "REFUSAL_S", 0.01)
    monkeypatch.setattr(connection, "REFUSALS", 1)
    async with crowd(1) as box:
        await box.asks(path="/slow")
        silent = [await box.connect() for _ in range(3)]
        for reader, _ in silent:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        status = b""
        while not status:  # the last of them may not be over yet
            with suppress(ConnectionResetError, asyncio.IncompleteReadError):
                status = await (await box.asks())[0].readuntil(b"\r\n")
        assert status.startswith(b"HTTP/1.1 503 ")


class Held:
    """A connection from elsewhere."""

    def __init__(self, address: str | None, idle_since: float | None = 0.0) -> None:
        self.address = address
        self.idle_since = idle_since
        self.evicted = False
        self.transport = self

    def close(self) -> None:
        self.evicted, self.idle_since = True, None


async def test_one_box_elsewhere_has_half_of_them_at_most() -> None:
    """Its own idle ones go for its new ones; those of others, and of this box, stay."""
    told: list[Crowding] = []
    limit, held = ConnectionLimit(8, told.append), set[Held]()

    def comes(address: str | None, idle_since: float | None = 0.0) -> Held | None:
        new = Held(address, idle_since)
        if limit.admit(address, held):
            held.add(new)
            return new
        return None

    mine, other = comes(None), comes("10.0.0.9")
    first = [comes("10.0.0.7") for _ in range(4)]
    assert all(first)
    assert comes("10.0.0.7", None)
    assert sum(each.evicted for each in first if each) == 1
    for each in first:
        assert each
        each.idle_since = None
    assert comes("10.0.0.7") is None
    assert comes(None)
    assert not any(each.evicted for each in (mine, other) if each)
    limit.leave("10.0.0.7")
    limit.leave("10.0.0.7")
    assert comes("10.0.0.7")
    assert told == [Crowding(most=8, closed=1, refused=0, address="10.0.0.7")]


async def test_a_burst_closes_no_more_than_it_needs() -> None:
    """The end of one that is closed is reported in a later turn, and others may come in this one."""
    idle = [Held(None) for _ in range(32)]
    limit, held = ConnectionLimit(32, lambda _: None), set(idle)
    for _ in range(2):
        assert limit.admit(None, held)
        held.add(Held(None, None))
    assert sum(each.evicted for each in idle) == 2


async def test_what_comes_after_is_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REPORT_S", 0.01)
    told = asyncio.Queue[Crowding]()
    limit, held = ConnectionLimit(1, told.put_nowait), {Held(None, None)}
    for _ in range(5):
        assert not limit.admit(None, held)
    async with asyncio.timeout(60):
        assert [(await told.get()).refused for _ in range(2)] == [1, 4]


@pytest.mark.parametrize(
    ("files", "most"), [(64, 8), (1024, 488), (65_536, 32_744), (resource.RLIM_INFINITY, 32_744), (20, 1)]
)
def test_the_limit_follows_from_that_of_open_files(files: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is kept for engines, podman and the database, and for the way to the engine of each client."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert listen.most_connections() == most


@pytest.mark.parametrize(
    ("met", "said"),
    [
        (
            Crowding(8, 3, 0, None),
            "8 connections are open, as many as the limit of open files allows: 3 idle connections were closed",
        ),
        (Crowding(8, 1, 2, None), "1 idle connection was closed for new clients and 2 new connections were refused."),
        (
            Crowding(8, 0, 1, "10.0.0.7"),
            "10.0.0.7 uses half of the 8 connections, the most for one address: 1 new connection was refused.",
        ),
    ],
)
def test_the_owner_is_told_what_was_met_and_what_became_of_whom(met: Crowding, said: str) -> None:
    told: list[Any] = []
    listeners.publish_notice(told.append, met)
    assert said in told[0].text
