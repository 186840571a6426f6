"""Upstream: requests to engines, each with its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Self

from sparkdash.errors import UpstreamError
from sparkdash.upstream.connection import EngineConnection, OutgoingBody, encode_headers
from sparkdash.upstream.engine_response import EngineResponse, chat_text, engine_refused, short_chat
from sparkdash.upstream.pool import Origin, Pool

Headers = Iterable[tuple[str, str]]
_SENDS_LENGTH = frozenset({"POST", "PUT", "PATCH"})
"""Methods for which an engine expects a length even without a body (RFC 9110 section 8.6)."""


class SmallResponse(NamedTuple):
    status: int
    content_type: str
    body: bytes


class Upstream:
    """HTTP client for engines: one object for the daemon's life. Use it as an async context manager.

    `socket`: path of a unix socket to which all requests go, whatever host an address has.
    """

    _pool: Pool

    def __init__(self, socket: str | None = None) -> None:
        self._socket = socket

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def get(self, url: str, *, timeout_s: float, headers: Headers = ()) -> SmallResponse:
        """Send a GET and return its answer, whatever its status.

        Raises:
            UpstreamError: code `engine_timeout` after `timeout_s`, or as `open` does.
        """
        try:
            async with asyncio.timeout(timeout_s), self.open("GET", url, _lines(headers)) as answer:
                return SmallResponse(answer.status, answer.content_type, await answer.read())
        except TimeoutError:
            raise self._silent(url, timeout_s) from None

    async def post(self, url: str, body: bytes, *, content_type: str, timeout_s: float) -> SmallResponse:
        """Send a POST and return its answer, whatever its status.

        Raises:
            UpstreamError: code `engine_timeout` after `timeout_s`, or as `open` does.
        """
        sent = _lines([("Content-Type", content_type)])
        try:
            async with asyncio.timeout(timeout_s), self.open("POST", url, sent, body) as answer:
                return SmallResponse(answer.status, answer.content_type, await answer.read())
        except TimeoutError:
            raise self._silent(url, timeout_s) from None

    def open(
        self,
        method: str,
        url: str,
        headers: bytes = b"",
        body: OutgoingBody = b"",
        called: str | None = None,
        *,
        upgrades: bool = False,
    ) -> OpenRequest:
        """Send a request and give its answer as soon as its head is there; no limit on how long that takes.

        An async context manager. `url`: encoded; `headers`: made by `encode_headers`, without Host and
        Content-Length. `called`: profile of the engine, which errors name instead of the address. `upgrades`:
        `headers` ask for another protocol, whose socket is the answer's `upgraded`. llama-server closes
        connections that it promised to keep: when a kept one turns out closed before the first byte of the answer,
        the request is sent once more, on a fresh connection.

        Raises:
            UpstreamError: code `engine_unreachable` when nothing listens, `engine_died` when the engine closed the
                connection without an answer.
        """
        return OpenRequest(self._pool, method, url, headers, body, called, upgrades=upgrades)

    async def generate(self, url: str, model: str, *, timeout_s: float, headers: Headers = ()) -> str:
        """Have a short streamed chat at temperature 0, and return all its text, content and reasoning, in order.

        `url` is the engine's root, or the whole address of its chat route.

        Raises:
            UpstreamError: `engine_refused` with the engine's own words on an HTTP error or an error in the
                stream, `engine_mute` when it says nothing, `engine_timeout` after `timeout_s`, or as `open` does.
        """
        address = url if url.endswith("/completions") else url.rstrip("/") + "/v1/chat/completions"
        sent = b"Content-Type: application/json\r\n" + _lines(headers)
        where = self._pool.origin(_split_url(address)[0]).where
        try:
            async with asyncio.timeout(timeout_s), self.open("POST", address, sent, short_chat(model)) as answer:
                if answer.status != 200:
                    raise engine_refused(where, answer.status, await answer.read())
                return await chat_text(answer, where)
        except TimeoutError:
            raise self._silent(address, timeout_s) from None

    def _silent(self, url: str, timeout_s: float) -> UpstreamError:
        where = self._pool.origin(_split_url(url)[0]).where
        return UpstreamError(f"The engine at {where} gave no answer within {timeout_s:g} s.", code="engine_timeout")


class OpenRequest:
    """A request and its answer: see `Upstream.open`."""

    __slots__ = ("_bodiless", "_body", "_called", "_connection", "_head", "_origin", "_pool", "_upgrades")

    _origin: Origin
    _connection: EngineConnection

    def __init__(
        self,
        pool: Pool,
        method: str,
        url: str,
        headers: bytes,
        body: OutgoingBody,
        called: str | None,
        *,
        upgrades: bool,
    ) -> None:
        root, target = _split_url(url)
        self._pool = pool
        self._origin = pool.origin(root)
        self._bodiless = method == "HEAD"
        self._called = called
        self._upgrades = upgrades
        first = _first_lines(method, target, self._origin.authority)
        if body or method in _SENDS_LENGTH:
            size = len(body) if isinstance(body, bytes) else body.size
            self._head = b"%b%bContent-Length: %d\r\n\r\n" % (first, headers, size)
        else:
            self._head = b"%b%b\r\n" % (first, headers)
        self._body = body

    async def __aenter__(self) -> EngineResponse:
        connection = self._pool.free(self._origin) or await self._pool.fresh(self._origin, self._called)
        try:
            await self._ask(connection)
        except UpstreamError:
            if connection.heard or not connection.reused:
                raise
            connection = await self._pool.fresh(self._origin, self._called)
            await self._ask(connection)
        self._connection = connection
        self._head = self._body = b""  # sent, and no longer needed while the answer comes
        return EngineResponse(connection)

    def _ask(self, connection: EngineConnection) -> Awaitable[None]:
        return connection.ask(
            self._head, self._body, bodiless=self._bodiless, called=self._called, upgrades=self._upgrades
        )

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pool.give_back(self._origin, self._connection)


@lru_cache(maxsize=256)
def _split_url(url: str) -> tuple[str, str]:
    """Split a URL into scheme://authority and the rest. A fragment never comes here."""
    slash = url.find("/", url.find("://") + 3)
    return (url, "/") if slash < 0 else (url[:slash], url[slash:])


@lru_cache(maxsize=256)
def _first_lines(method: str, target: str, authority: str) -> bytes:
    """Make the first lines of a request, which do not depend on the client.

    Raises:
        UpstreamError: code `engine_unreachable`: the address contains a line break, which would end the line.
    """
    first = f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\nAccept-Encoding: identity\r\n".encode("latin-1")
    if not first.count(b"\n") == first.count(b"\r") == 3:
        raise UpstreamError(
            f"The address of the request to {authority} contains a line break.",
            code="engine_unreachable",
            hint="Check the engine's URL in its profile.",
        )
    return first


def _lines(headers: Headers) -> bytes:
    return encode_headers((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)
