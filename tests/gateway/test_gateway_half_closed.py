"""Clients that send no more: one that still waits is answered, one that has left frees its engine. And the one Host of HTTP/1.1."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sparkdash.domain.lease import RequestState
from sparkdash.wire.half_closed import INTERIM

CHAT = b'{"model":"alpha","messages":[]}'


def request(path: bytes, version: bytes = b"1.1", body: bytes = b"", host: bytes = b"Host: localhost\r\n") -> bytes:
    method = b"POST" if body else b"GET"
    return b"%b %b HTTP/%b\r\n%bContent-Length: %d\r\n\r\n%b" % (method, path, version, host, len(body), body)


async def connected(house: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = house.base.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("path", [b"/health", b"/api/state", b"/v1/models"])
async def test_who_sends_no_more_is_answered(house: Any, path: bytes, version: bytes) -> None:
    """As `nc -N` asks: the request and the end of what it sends come together."""
    reader, writer = await connected(house)
    writer.write(request(path, version))
    writer.write_eof()
    assert (await asyncio.wait_for(reader.read(), 60)).partition(b"HTTP/1.1 200 ")[1]
    writer.close()


async def test_all_that_it_has_asked_is_answered(house: Any) -> None:
    """Requests behind one another too, and then the connection is over."""
    reader, writer = await connected(house)
    writer.write(3 * request(b"/health"))
    writer.write_eof()
    assert (await asyncio.wait_for(reader.read(), 60)).count(b"HTTP/1.1 200 ") == 3
    writer.close()


async def test_an_answer_that_takes_its_time_still_comes(house: Any) -> None:
    """Meanwhile interim statuses ask whether the client is there, which clients pass by."""
    house.supervisor.gate.clear()
    reader, writer = await connected(house)
    writer.write(request(b"/v1/chat/completions", body=CHAT))
    writer.write_eof()
    for _ in range(3):
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60) == INTERIM
    house.supervisor.gate.set()
    rest = await asyncio.wait_for(reader.read(), 60)
    assert rest.replace(INTERIM, b"").startswith(b"HTTP/1.1 200 ")
    assert rest.endswith(b'{"ok":true}')
    assert (await house.ended()).state is RequestState.DONE
    writer.close()


async def test_who_has_left_is_found_out_while_it_waits(house: Any) -> None:
    """Its end looks the same; what is written to it is answered by a reset."""
    house.supervisor.gate.clear()
    _, writer = await connected(house)
    writer.write(request(b"/v1/chat/completions", body=CHAT))
    await house.in_state(RequestState.WAITING)
    writer.close()
    assert (await asyncio.wait_for(house.ended(), 60)).state is RequestState.GONE
    house.supervisor.gate.set()


async def test_half_a_request_is_none(house: Any) -> None:
    """A body that cannot come any more is not waited for."""
    reader, writer = await connected(house)
    writer.write(request(b"/v1/chat/completions", body=CHAT)[:-5])
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


@pytest.mark.parametrize(
    ("version", "host", "status"),
    [
        (b"1.1", b"", b"400"),
        (b"1.1", b"Host: localhost\r\nHost: localhost\r\n", b"400"),
        (b"1.1", b"Host: localhost\r\n", b"200"),
        (b"1.0", b"", b"200"),
    ],
)
async def test_http_1_1_has_one_host(house: Any, version: bytes, host: bytes, status: bytes) -> None:
    """RFC 9112, section 3.2; HTTP/1.0 knew none."""
    reader, writer = await connected(house)
    writer.write(request(b"/health", version, host=host))
    writer.write_eof()
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert "Host" in json.loads(body)["error"]["message"] if status == b"400" else json.loads(body)["status"] == "ok"
    writer.close()
