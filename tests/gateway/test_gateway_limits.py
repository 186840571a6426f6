"""Limits of what one client can take of the gateway: heads, bodies and time."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sparkdash.domain.request import RequestState
from sparkdash.settings import Settings
from sparkdash.units import MIB
from sparkdash.wire import connection

CHAT = "/v1/chat/completions"
HALF = json.dumps({"model": "alpha", "stream": True, "pad": "x" * (600 * 1024)}).encode()
"""More than half of a mebibyte."""


@asynccontextmanager
async def connected(house: Any, said: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that no library keeps to the rules. What it said lies in its socket before the gateway looks at the clock."""
    sock = socket.create_connection(("127.0.0.1", int(house.base.rpartition(":")[2])))
    sock.sendall(said)
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def all_of(reader: asyncio.StreamReader) -> bytes | None:
    """Bytes until the end; None when the connection was reset."""
    try:
        return await reader.read()
    except ConnectionError:
        return None


async def test_a_head_without_an_end_is_refused(house: Any) -> None:
    """431 long before it is a question of memory, and the connection is closed."""
    async with connected(house) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        answer, sent = asyncio.create_task(all_of(reader)), 0
        while not answer.done() and sent < 8 * MIB:
            writer.write(b"x" * 65536)
            sent += 65536
            with suppress(ConnectionError):
                await writer.drain()
        assert sent < 8 * MIB
        told = await answer  # lost when the client goes on writing into the closed connection
        assert told is None or told.startswith(b"HTTP/1.1 431 ")


async def test_a_large_head_is_served(house: Any) -> None:
    """Cookies and traces of 48 KiB are odd, not wrong."""
    reply = await house.client.get("/health", headers={"x-long": "x" * 48 * 1024})
    assert reply.status_code == 200


@pytest.mark.parametrize("said", [b"", b"GET /health HTTP/1.1\r\nHost:"])
async def test_a_head_that_does_not_come_is_given_up(house: Any, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """408 for a request that stops in the middle and for a connection that says nothing."""
    monkeypatch.setattr(connection, "HEAD_S", 0.05)
    async with connected(house, said) as (reader, _):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["error"]["code"] == "request_timeout"


class TestSlowBodies:
    """A gateway with little patience."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(body_s=0.1)

    async def test_a_body_that_trickles_is_a_408(self, house: Any) -> None:
        """In words, at once when the time is up, and the rest is not waited for."""
        said = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        async with connected(house, said) as (reader, _):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            assert json.loads(body)["error"]["code"] == "body_too_slow"
            assert house.supervisor.leases == []


class TestRoom:
    """A gateway that keeps one mebibyte of bodies."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(bodies_limit_mib=1)

    async def test_bodies_that_wait_share_one_limit(self, house: Any) -> None:
        """The one too many is told to come back; when the first has its answer there is budget again."""
        house.supervisor.gate.clear()
        first = asyncio.create_task(house.client.post(CHAT, content=HALF))
        await house.in_state(RequestState.WAITING)
        refused = await house.client.post(CHAT, content=HALF)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "bodies_full")
        assert refused.headers["retry-after"] == "10"
        house.supervisor.gate.set()
        assert (await first).status_code == 200
        assert (await house.client.post(CHAT, content=HALF)).status_code == 200

    async def test_an_answer_that_has_begun_needs_no_body(self, house: Any) -> None:
        """Streams that go on for hours keep nothing of it."""
        go_on = asyncio.Event()

        async def script(_seen: Any, wire: Any) -> None:
            await wire.head()
            await wire.chunk(b"data: 1\n\n")
            await go_on.wait()
            await wire.end()

        house.engine.script = script
        async with house.client.stream("POST", CHAT, content=HALF) as one:
            await anext(one.aiter_raw())
            async with house.client.stream("POST", CHAT, content=HALF) as other:
                assert other.status_code == 200
                go_on.set()


class TestStuckClients:
    """A gateway that gives a standing client no minute."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(slow_client_s=0.2)

    @pytest.mark.parametrize("path", [CHAT, "/api/chat"])
    async def test_a_client_that_takes_nothing_frees_the_engine(self, house: Any, path: str) -> None:
        """Both connections are cut, the client's and the engine's, and the row says why."""
        gone = asyncio.Event()

        async def script(_seen: Any, wire: Any) -> None:
            await wire.head()
            try:
                while True:
                    await wire.chunk(b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"x" * 65_528))
            except ConnectionError:
                gone.set()
                raise

        house.engine.script = script
        async with connected(house) as (reader, writer):
            body = b'{"model":"alpha","messages":[{"role":"user","content":"hi"}],"stream":true}'
            writer.write(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body
            )
            row = await asyncio.wait_for(house.ended(), 60)
            assert (row.state, row.error) == (RequestState.GONE, "client_stuck")
            await asyncio.wait_for(gone.wait(), 60)
            assert not (await all_of(reader) or b"").endswith(b"0\r\n\r\n")

    async def test_an_engine_that_thinks_for_long_is_not_the_clients_fault(self, house: Any) -> None:
        """Only a piece that the client does not take counts."""
        looked = asyncio.Event()

        async def script(_seen: Any, wire: Any) -> None:
            await wire.head()
            await wire.chunk(b"data: 1\n\n")
            asyncio.get_running_loop().call_later(0.7, looked.set)
            await looked.wait()
            await wire.chunk(b"data: 2\n\n")
            await wire.end()

        house.engine.script = script
        reply = await house.chat(stream=True)
        assert reply.content == b"data: 1\n\ndata: 2\n\n"
        assert (await house.ended()).state is RequestState.DONE
