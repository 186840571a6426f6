"""Upstream: requests to engines, each with its answer."""

import asyncio
import json
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from sparkdash.errors import UpstreamError
from sparkdash.sse import Lines, data_of
from sparkdash.upstream.connection import EngineConnection, EngineResponse, encode_headers

CONNECT_S = 10.0
"""Seconds for a connection: names are looked up, packets lost, certificates exchanged, a busy loop is late."""
KEPT_S = 15.0
"""Seconds (at most twice as many) for which an idle connection is kept: one that a router forgot swallows a request."""
_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True)
class Origin:
    """Address of an engine, and the idle connections to it, the one used last at the end."""

    root: str
    """Scheme and authority of its URLs."""
    host: str
    port: int
    tls: bool
    authority: str
    """Value of the Host header."""
    free: list[EngineConnection] = field(default_factory=list)

    @property
    def where(self) -> str:
        """host:port, for messages: without a login that the address may contain."""
        return f"{self.host}:{self.port}"


class Pool:
    """Open and idle connections. `socket`: as in Upstream. The owner must `close` it."""

    def __init__(self, socket: str | None = None) -> None:
        self._socket = socket
        self._origins: dict[str, Origin] = {}
        """By root. Origins without an idle connection are forgotten: each start of an engine has a port of its own."""
        self._open: set[EngineConnection] = set()
        self._all_closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def origin(self, root: str) -> Origin:
        """Return the origin for `scheme://host:port`. Raises UpstreamError `engine_unreachable`: it is no address."""
        found = self._origins.get(root)
        if found is None:
            found = self._origins[root] = _origin(root)
        return found

    def free(self, origin: Origin) -> EngineConnection | None:
        """Take an idle connection; None when there is none."""
        while origin.free:
            connection = origin.free.pop()
            if connection.is_free:
                return connection
        return None

    async def fresh(self, origin: Origin, called: str | None = None) -> EngineConnection:
        """Open a connection; errors name the profile `called`. Raises UpstreamError: code `engine_unreachable`."""
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await self._connected(origin)
        except TimeoutError:
            raise _unreachable(origin, called, f"no connection within {CONNECT_S:g} s") from None
        except OSError as error:
            raise _unreachable(origin, called, error.strerror or str(error)) from None
        self._open.add(connection)
        return connection

    async def _connected(self, origin: Origin) -> EngineConnection:
        made = partial(EngineConnection, origin.where, self._lost, partial(self._give_back, origin))
        if self._socket is not None:
            return (await self._loop.create_unix_connection(made, self._socket))[1]
        tls = _tls() if origin.tls else None
        return (await self._loop.create_connection(made, origin.host, origin.port, ssl=tls))[1]

    def _give_back(self, origin: Origin, connection: EngineConnection) -> None:
        """Keep a connection whose answer is over if it can be used again; otherwise cut it."""
        if not connection.is_free:
            connection.cut()
            return
        connection.renew()
        connection.idle_since = self._loop.time()
        # the origin may have been forgotten meanwhile
        self._origins.setdefault(origin.root, origin).free.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(KEPT_S, self._sweep)

    def _sweep(self) -> None:
        self._timer, since = None, self._loop.time() - KEPT_S
        for root, origin in list(self._origins.items()):
            old = [one for one in origin.free if one.idle_since <= since]
            for connection in old:
                connection.cut()
            origin.free = [one for one in origin.free if one not in old and one.is_free]
            if not origin.free:
                del self._origins[root]
        if self._origins:
            self._timer = self._loop.call_later(KEPT_S, self._sweep)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.cut()
        self._all_closed.clear()
        if self._open:
            await self._all_closed.wait()

    def _lost(self, connection: EngineConnection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _origin(root: str) -> Origin:
    try:
        parts = urlsplit(root)
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        host = None
    if not host:
        raise UpstreamError(f"{root.rpartition('@')[2]!r} is no address of an engine.", code="engine_unreachable")
    return Origin(root, host, port, parts.scheme == "https", parts.netloc.rpartition("@")[2])


def _unreachable(origin: Origin, called: str | None, why: str) -> UpstreamError:
    return UpstreamError(
        f"{called} does not answer ({why})." if called else f"Nothing answers at {origin.where} ({why}).",
        code="engine_unreachable",
        hint="The engine has ended or does not listen yet; `sparkdash status` shows it.",
    )


Headers = Iterable[tuple[str, str]]
_SENDS_LENGTH = frozenset({"POST", "PUT", "PATCH"})
"""Methods for which an engine expects a length even without a body (RFC 9110 section 8.6)."""


class EngineRequest:
    """Request to an engine but for its body. Make equal requests once, and open them many times.

    `url`: encoded; `headers`: made by `encode_headers`, without Host and Content-Length; `called`: profile of the
    engine, which errors name instead of the address. Raises UpstreamError `engine_unreachable`: it is no address.
    """

    __slots__ = ("bodiless", "called", "lines", "root", "sends_length")

    def __init__(self, method: str, url: str, headers: bytes = b"", called: str | None = None) -> None:
        self.root = _root(url)
        self.lines = _first_lines(method, url) + headers
        """First lines and headers as they are written."""
        self.bodiless = method == "HEAD"
        self.sends_length = method in _SENDS_LENGTH
        self.called = called


class SmallResponse(NamedTuple):
    """An answer that was read whole."""

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
        return await self._whole("GET", url, _lines(headers), b"", timeout_s)

    async def post(self, url: str, body: bytes, *, content_type: str, timeout_s: float) -> SmallResponse:
        return await self._whole("POST", url, _lines([("Content-Type", content_type)]), body, timeout_s)

    async def _whole(self, method: str, url: str, headers: bytes, body: bytes, timeout_s: float) -> SmallResponse:
        try:
            async with asyncio.timeout(timeout_s):
                with await self.open(EngineRequest(method, url, headers), body) as answer:
                    return SmallResponse(answer.status, answer.content_type, await answer.read())
        except TimeoutError:
            raise self._silent(url, timeout_s) from None

    async def open(self, request: EngineRequest, body: bytes = b"", *, upgrades: bool = False) -> EngineResponse:
        """Send a request and return its answer as soon as the head is there; no limit on how long that takes.

        The answer is a context manager, to be entered at once. `upgrades`: the headers ask for another protocol, whose
        socket is the answer's `upgraded`. llama-server closes connections that it promised to keep: when a kept one
        turns out closed before the first byte of the answer, the request is sent once more, on a fresh connection.

        Raises:
            UpstreamError: code `engine_unreachable` when nothing listens, `engine_died` when the engine closed the
                connection without an answer.
        """
        pool, called = self._pool, request.called
        origin = pool.origin(request.root)
        if body or request.sends_length:
            head = b"%bContent-Length: %d\r\n\r\n" % (request.lines, len(body))
        else:
            head = request.lines + b"\r\n"
        connection = pool.free(origin) or await pool.fresh(origin, called)
        try:
            await connection.ask(head, body, request.bodiless, called, upgrades)
        except UpstreamError:
            if connection.heard or not connection.reused:
                raise
            connection = await pool.fresh(origin, called)
            await connection.ask(head, body, request.bodiless, called, upgrades)
        return EngineResponse(connection)

    async def generate(self, url: str, model: str, *, timeout_s: float, headers: Headers = ()) -> str:
        """Have a short streamed chat at temperature 0, and return all its text, content and reasoning, in order.

        `url` is the engine's root, or the whole address of its chat route.

        Raises:
            UpstreamError: `engine_refused` with the engine's own words on an HTTP error or an error in the
                stream, `engine_mute` when it says nothing, `engine_timeout` after `timeout_s`, or as `open` does.
        """
        address = url if url.endswith("/completions") else url.rstrip("/") + "/v1/chat/completions"
        sent = b"Content-Type: application/json\r\n" + _lines(headers)
        where = self._pool.origin(_root(address)).where
        try:
            async with asyncio.timeout(timeout_s):
                with await self.open(EngineRequest("POST", address, sent), short_chat(model)) as answer:
                    if answer.status != 200:
                        raise engine_refused(where, answer.status, await answer.read())
                    return await chat_text(answer, where)
        except TimeoutError:
            raise self._silent(address, timeout_s) from None

    def _silent(self, url: str, timeout_s: float) -> UpstreamError:
        where = self._pool.origin(_root(url)).where
        return UpstreamError(f"The engine at {where} gave no answer within {timeout_s:g} s.", code="engine_timeout")


def _root(url: str) -> str:
    """Return scheme and authority of a URL. A fragment never comes here."""
    slash = url.find("/", url.find("://") + 3)
    return url if slash < 0 else url[:slash]


@lru_cache(maxsize=256)
def _first_lines(method: str, url: str) -> bytes:
    """Make a request's first lines, the same for all clients. Raises UpstreamError: a line break in the address."""
    root = _root(url)
    authority = _origin(root).authority
    target = url[len(root) :] or "/"
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


ERROR_TEXT_LIMIT = 600
GENERATE_TOKENS = 16


_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def readable(body: bytes) -> str:
    """Decode what an engine says; of bytes that are no text only the number."""
    if _NO_TEXT.search(body):
        return f"{len(body)} bytes that are no text"
    return body.decode("utf-8", "replace")


def engine_error_text(body: bytes) -> str:
    """Return the text of an engine's error body, from `error`, `error.message`, `message` or `detail`; shortened."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = readable(body).strip()
    for key in ("error", "message", "detail"):
        value = value.get(key) or value if isinstance(value, dict) else value
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:ERROR_TEXT_LIMIT] or "nothing"


def engine_refused(where: str, status: int, body: bytes) -> UpstreamError:
    return UpstreamError(f"The engine at {where} answered {status}: {engine_error_text(body)}", code="engine_refused")


def short_chat(model: str) -> bytes:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to five."}],
        "max_tokens": GENERATE_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    return json.dumps(body).encode()


async def chat_text(answer: EngineResponse, where: str) -> str:
    """Return all text of a streamed chat, content and reasoning, in order.

    The text of an answer that was cut by its length may be empty: some engines do not show their reasoning.

    Raises:
        UpstreamError: `engine_refused`; `engine_mute` when the answer ended by itself and contains no text.
    """
    texts: list[str] = []
    cut = False
    lines = Lines()
    async for chunk in answer.chunks():
        for choice in (choice for line in lines.feed(chunk) for choice in _choices(line.strip(), where)):
            texts += _delta_texts(choice)
            cut = cut or choice.get("finish_reason") == "length"
    text = "".join(texts)
    if not (cut or text.strip()):
        raise UpstreamError("its answer was empty", code="engine_mute")
    return text


def _delta_texts(choice: dict[str, Any]) -> list[str]:
    delta = choice.get("delta") or {}
    return [delta[key] for key in ("reasoning", "reasoning_content", "content") if delta.get(key)]


def _choices(line: str, where: str) -> list[dict[str, Any]]:
    data = data_of(line)
    if data is None or data.endswith("[DONE]"):
        return []
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise engine_refused(where, 200, line.encode()) from None
    if not isinstance(event, dict) or "error" in event:
        raise engine_refused(where, 200, data.encode())
    return event.get("choices") or []
