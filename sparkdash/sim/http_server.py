"""A small HTTP/1.1 server on httptools: enough for an engine, and quick to start."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

import httptools

BODY_LIMIT = 256 * 1024 * 1024
"""Largest request body in bytes; a client beyond it is disconnected."""


@dataclass(slots=True)
class HttpRequest:
    """Complete request."""

    method: str = ""
    path: str = ""
    client: str = ""
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


class SimulatedConnection(asyncio.Protocol):
    """Connection of one client. Requests are answered in order."""

    def __init__(self, site: HttpServer) -> None:
        self._site = site
        self._requests: deque[HttpRequest] = deque()
        self._parser = httptools.HttpRequestParser(self)
        self._request = HttpRequest()
        self._parts: list[bytes] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - tells mypy what create_server gives
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self._client = f"{host}:{port}"
        self._site.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; invalid data closes the connection."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio passes it
        """Cancel the current answer, as the client has left."""
        self._site.connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Abort the connection."""
        self._transport.abort()

    def pause_writing(self) -> None:
        """Wait for a slow reader."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resume once the reader has caught up."""
        self._writable.set()

    # httptools' side

    def on_message_begin(self) -> None:
        """Start a new request."""
        self._request, self._parts, self._size = HttpRequest(client=self._client), [], 0

    def on_url(self, url: bytes) -> None:
        """Append to the path."""
        self._request.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header under its name in lower case."""
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Answer `Expect: 100-continue`."""
        if self._request.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Collect the body, up to BODY_LIMIT."""
        self._size += len(body)
        if self._size > BODY_LIMIT:
            self._transport.abort()
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Queue the request, and start answering unless another answer is in progress."""
        request = self._request
        request.method = self._parser.get_method().decode("latin-1")
        request.path = request.path.split("?", 1)[0]
        request.body = b"".join(self._parts)
        request.keep_alive = self._parser.should_keep_alive()
        self._requests.append(request)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._answer_all(), name=f"sim client {self._client}")
            self._task.add_done_callback(self._ended)

    # answering

    async def _answer_all(self) -> None:
        while self._requests:
            request = self._requests.popleft()
            response = await self._site.handler(request)
            self._site.log(
                f'INFO:     {request.client} - "{request.method} {request.path} HTTP/1.1" {_reason(response.status)}'
            )
            await self._send(request, response)
            if not request.keep_alive:
                self._transport.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Abort the connection after an internal error and let the loop report it."""
        if not task.cancelled() and (error := task.exception()):
            asyncio.get_running_loop().call_exception_handler({"message": "an answer failed", "exception": error})
            self._transport.abort()

    async def _send(self, request: HttpRequest, response: HttpResponse) -> None:
        body = response.body
        if isinstance(body, bytes):
            head = _head(response, f"content-length: {len(body)}", request.keep_alive)
            self._transport.write(head if request.method == "HEAD" else head + body)
            return
        self._transport.write(_head(response, "transfer-encoding: chunked", request.keep_alive))
        async with aclosing(body):
            async for chunk in body:
                self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._writable.wait()
        self._transport.write(b"0\r\n\r\n")


@dataclass(slots=True)
class HttpServer:
    """Listening server and its connections."""

    handler: Handler
    log: Callable[[str], None]
    connections: set[SimulatedConnection] = field(default_factory=set)
    server: asyncio.Server | None = None

    def close(self) -> None:
        """Stop listening and abort all connections."""
        if self.server is not None:
            self.server.close()
        for connection in tuple(self.connections):
            connection.close()


async def serve_http(
    handler: Handler, sock: socket.socket, *, log: Callable[[str], None] = lambda _: None
) -> HttpServer:
    """Serve on a bound socket; `log` gets an access line per request."""
    site = HttpServer(handler, log)
    site.server = await asyncio.get_running_loop().create_server(lambda: SimulatedConnection(site), sock=sock)
    return site


def _head(response: HttpResponse, length: str, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {_reason(response.status)}", f"date: {formatdate(usegmt=True)}", "server: uvicorn", length]
    if response.content_type:
        lines.append(f"content-type: {response.content_type}")
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _reason(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"
