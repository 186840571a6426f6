"""A small HTTP/1.1 server on httptools: enough for an engine, and quick to start."""

import asyncio
import socket
from asyncio import Queue, StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

import httptools

PIECE = 65536


@dataclass(slots=True)
class HttpRequest:
    """Complete request."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Response: bytes with a length, or a generator that is sent in chunks."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = 200
    content_type: str | None = "application/json"


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class _RequestParser:
    """Puts each complete request into `requests`. httptools calls the methods that begin with `on`."""

    def __init__(self) -> None:
        self.requests: Queue[HttpRequest] = Queue()
        self._parser = httptools.HttpRequestParser(self)
        self.feed = self._parser.feed_data

    def on_message_begin(self) -> None:
        self._request = HttpRequest()

    def on_url(self, url: bytes) -> None:
        self._request.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._request.body += body

    def on_message_complete(self) -> None:
        self._request.method = self._parser.get_method().decode("latin-1")
        self._request.path = self._request.path.split("?", 1)[0]
        self._request.keep_alive = self._parser.should_keep_alive()
        self.requests.put_nowait(self._request)


class HttpServer:
    """Server with its connections. `log` gets an access line per request."""

    def __init__(self, handler: Handler, log: Callable[[str], None]) -> None:
        self._handler = handler
        self._log = log
        self._writers: set[StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, sock: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=sock)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer the requests of one client in turn, until it leaves or sends nonsense."""
        parser = _RequestParser()
        self._writers.add(writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                answering = tasks.create_task(self._answer_all(parser.requests, writer))
                with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade, ConnectionError):
                    while data := await reader.read(PIECE):
                        parser.feed(data)
                answering.cancel()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer_all(self, requests: Queue[HttpRequest], writer: StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        while not writer.is_closing():
            request = await requests.get()
            response = await self._handler(request)
            line = f'"{request.method} {request.path} HTTP/1.1" {_reason(response.status)}'
            self._log(f"INFO:     {host}:{port} - {line}")
            with suppress(ConnectionError):
                await _send(writer, request, response)
            if not request.keep_alive:
                writer.close()


async def _send(writer: StreamWriter, request: HttpRequest, response: HttpResponse) -> None:
    body = response.body
    if isinstance(body, bytes):
        head = _head(response, f"content-length: {len(body)}", request.keep_alive)
        writer.write(head if request.method == "HEAD" else head + body)
        return
    writer.write(_head(response, "transfer-encoding: chunked", request.keep_alive))
    async with aclosing(body):
        async for chunk in body:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
    writer.write(b"0\r\n\r\n")


async def serve_http(
    handler: Handler, sock: socket.socket, *, log: Callable[[str], None] = lambda _: None
) -> HttpServer:
    server = HttpServer(handler, log)
    await server.listen(sock)
    return server


def _head(response: HttpResponse, length: str, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {_reason(response.status)}", f"date: {formatdate(usegmt=True)}", "server: uvicorn", length]
    if response.content_type:
        lines.append(f"content-type: {response.content_type}")
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _reason(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"
