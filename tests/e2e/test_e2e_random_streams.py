"""Random answers of an engine come to the client byte for byte, however they are cut into pieces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import httpx
import pytest
from daemons import Daemon

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

STREAMS, AT_ONCE, LONGEST = 2_000, 16, 500_000
WORDS = (b" quiet", b"\xc3\xa9t\xc3\xa9", b"\\n\\n", b"error: {", b"[DONE]", b"\xf0\x9f\x8c\x99", b"0\\r\\n", b": ping")


def answer(seed: int) -> tuple[bytes, bytes, bool]:
    """Content type and body of an answer, and whether it comes in HTTP's chunks."""
    chance = random.Random(seed)
    size = int(LONGEST ** chance.random())
    if chance.random() < 0.3:  # no JSON, no text: a picture, speech
        return b"application/octet-stream", chance.randbytes(size), chance.random() < 0.5
    end, body = chance.choice((b"\n\n", b"\r\n\r\n")), bytearray()
    while len(body) < size:
        text = b"".join(chance.choices(WORDS, k=chance.randrange(1, 200)))
        body += b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}%b' % (text, end)
    return b"text/event-stream", bytes(body) + b"data: [DONE]" + end, True


class Engine(asyncio.Protocol):
    """Answers a request with the answer that its body's `seed` names, in pieces of any size."""

    def __init__(self, open_: set[asyncio.Transport]) -> None:
        self.open = open_

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.asked = transport, b""
        self.open.add(transport)

    def data_received(self, data: bytes) -> None:
        self.asked += data
        head, blank, body = self.asked.partition(b"\r\n\r\n")
        if blank and head.startswith(b"GET"):
            self.asked = body
            self.transport.write(
                b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"data":[]}'
            )
        elif body.endswith(b"}"):
            self.asked = b""
            self.answering = asyncio.ensure_future(self.speak(int(body.partition(b'"seed":')[2].partition(b"}")[0])))

    async def speak(self, seed: int) -> None:
        chance, (kind, body, chunked) = random.Random(-seed), answer(seed)
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
        sent = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (kind, framing)
        sent += b"".join(chunks(body, chance)) if chunked else body
        for piece in pieces(sent, lambda: int(80_000 ** chance.random())):
            self.transport.write(piece)
            await asyncio.sleep(0)


def pieces(whole: bytes, size: Callable[[], int]) -> list[bytes]:
    found, at = [], 0
    while at < len(whole):
        found.append(whole[at : at + (step := max(1, size()))])
        at += step
    return found


def chunks(body: bytes, chance: random.Random) -> list[bytes]:
    parts = pieces(body, lambda: int(60_000 ** chance.random()))
    return [*(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]


async def test_random_streams_pass_byte_for_byte(new_daemon: Callable[..., Daemon]) -> None:
    loop, connections = asyncio.get_running_loop(), set[asyncio.Transport]()
    server = await loop.create_server(lambda: Engine(connections), "127.0.0.1", 0)
    daemon = new_daemon(runtime="process")
    daemon.write(
        "alpha", f"profile: alpha\nengine: openai\nurl: http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n"
    )
    await asyncio.to_thread(daemon.start)
    limit, differ = asyncio.Semaphore(AT_ONCE), []

    async def ask(client: httpx.AsyncClient, seed: int) -> None:
        kind, body, _ = answer(seed)
        path = "/v1/chat/completions" if kind.startswith(b"text") else "/v1/audio/speech"
        async with limit:
            asked = b'{"model":"alpha","stream":true,"stream_options":{"include_usage":true},"seed":%d}' % seed
            got = await client.post(daemon.url + path, content=asked, headers={"content-type": "application/json"})
        if (got.status_code, got.content) != (200, body):
            differ.append((seed, got.status_code, len(got.content), len(body)))

    async with httpx.AsyncClient(timeout=120) as client:
        await asyncio.gather(*(ask(client, seed) for seed in range(1, STREAMS + 1)))
    server.close()
    for connection in connections:
        connection.abort()
    await asyncio.sleep(0)
    assert not differ
