"""An engine on a real socket whose every byte a test writes, for what no well-behaved server would send.

Must not know who asks it: it speaks HTTP/1.1 and no engine's dialect.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """One request as the engine got it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Wire:
    """The engine's end of one connection: exact bytes out, and word of the client's leaving."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self, status: int = 200, content_type: str = "text/event-stream", **more: str) -> None:
        """Status line and headers; the body follows in chunks."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def answer(self, body: bytes, status: int = 200, content_type: str = "application/json", **more: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def client_left(self) -> None:
        """Returns when the gateway has closed the connection."""
        while await self.reader.read(65536):
            pass

    def abort(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Seen, Wire], Awaitable[None]]


async def ok(_seen: Seen, wire: Wire) -> None:
    await wire.answer(b'{"ok":true}')


@dataclass
class FakeEngine:
    """A small HTTP/1.1 server. `script` answers each request."""

    script: Script = ok
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            method, target, _ = first.split(" ", 2)
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.seen.append(Seen(method, target, headers, body))
            await self.script(self.seen[-1], Wire(reader, writer))
            if writer.is_closing():
                return


@asynccontextmanager
async def engine_on_a_socket(script: Script = ok) -> AsyncIterator[FakeEngine]:
    engine = FakeEngine(script)
    server = await asyncio.start_server(engine.connected, "127.0.0.1", 0, limit=2**20)
    engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield engine
    finally:
        server.close()
        for task in list(engine.tasks):
            task.cancel()
        await asyncio.gather(*engine.tasks, return_exceptions=True)
        await server.wait_closed()


def answering(body: bytes, status: int = 200, content_type: str = "application/json", **more: str) -> Script:
    async def script(_seen: Seen, wire: Wire) -> None:
        await wire.answer(body, status, content_type, **more)

    return script


def streaming(*chunks: bytes, dies: bool = False, **head: Any) -> Script:
    """A script of a stream, whole or ended by a reset of its connection; `head`: see `Wire.head`."""

    async def script(_seen: Seen, wire: Wire) -> None:
        await wire.head(**head)
        for chunk in chunks:
            await wire.chunk(chunk)
        if dies:
            wire.abort()
        else:
            await wire.end()

    return script


def replaying(body: bytes) -> Script:
    """A script that streams a recorded body in pieces of 100 bytes."""
    return streaming(*(body[at : at + 100] for at in range(0, len(body), 100)))


async def dying(_seen: Seen, wire: Wire) -> None:
    """An engine that takes the request and dies."""
    wire.abort()


class Hanging:
    """A script of a stream that says no more after these chunks, or of an engine that does not begin to answer."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.left = asyncio.Event()
        """Set once the gateway has closed the connection."""

    async def __call__(self, _seen: Seen, wire: Wire) -> None:
        self.asked.put_nowait(None)
        if self._chunks:
            await wire.head()
        for chunk in self._chunks:
            await wire.chunk(chunk)
        await wire.client_left()
        self.left.set()
