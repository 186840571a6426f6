"""The only HTTP client towards engines: a quick look, a raw stream, a short generation.

Owns: connections to engines and what their failures are called. Must not know profiles, leases or clients.
Rule 1: bytes of an answer are handed on as they came; nothing is decoded, decompressed or collected.
Rule 2: leaving an answer before its end closes the connection, which is how an engine learns to stop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sparkdash.errors import UpstreamError

CONNECT_S = 2.0
"""Engines are on loopback: a connection that takes longer will not come."""
BODY_PIECE = 256 * 1024
"""Request bodies above 1 MiB are written in pieces of this size, so that one upload does not freeze every stream."""
LARGE_BODY = 1024 * 1024
READ_LIMIT = 16 * 1024 * 1024
"""Most that `get` and `Answer.read` keep of one answer; the largest /metrics seen is under 1 MiB."""
WORDS_LIMIT = 600
GENERATE_TOKENS = 16

Headers = Iterable[tuple[str, str]]


class Reply(NamedTuple):
    """A whole small answer."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body is still to come. `headers` are as the engine sent them."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    content_type: str
    """Media type without parameters, in lower case."""
    _response: aiohttp.ClientResponse
    _where: str

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the engine says so before it."""
        return self._response.content_length

    @property
    def ends_with_connection(self) -> bool:
        """Is the connection's end all that ends the body (no chunks, no length)? Then an engine's death looks like one."""
        return self.length is None and "chunked" not in self._response.headers.get("Transfer-Encoding", "").lower()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, never empty pieces.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        read = self._response.content.readany
        try:
            while chunk := await read():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise self.broke_off(_why(error)) from None

    def broke_off(self, why: str) -> UpstreamError:
        """The engine ended its answer too soon: code `engine_died`."""
        return UpstreamError(
            f"The engine at {self._where} broke off in the middle of its answer ({why}).",
            code="engine_died",
            hint="Its log says more: `sparkdash logs PROFILE`.",
        )

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """The body, at most `limit` bytes of it."""
        parts, size = [], 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size >= limit:
                break
        return b"".join(parts)[:limit]


class Upstream:
    """One object for the daemon's life. Use it as an async context manager."""

    _pooled: aiohttp.ClientSession
    _fresh: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._pooled = _session(aiohttp.TCPConnector(limit=0), _watch_reuse())
        self._fresh = _session(aiohttp.TCPConnector(limit=0, force_close=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pooled.close()
        await self._fresh.close()

    async def get(self, url: str, *, timeout_s: float, headers: Headers = ()) -> Reply:
        """One GET, whatever its status.

        Raises:
            UpstreamError: code `engine_timeout` after `timeout_s`, or as `open` does.
        """
        try:
            async with asyncio.timeout(timeout_s), self.open("GET", url, headers) as answer:
                return Reply(answer.status, answer.content_type, await answer.read())
        except TimeoutError:
            raise _silent(url, timeout_s) from None

    @asynccontextmanager
    async def open(self, method: str, url: str, headers: Headers = (), body: bytes = b"") -> AsyncIterator[Answer]:
        """Send a request and give its answer as soon as the status line is there; no limit on how long it takes.

        llama-server closes a connection that it promised to keep: when a pooled one turns out closed before the
        first byte of the answer, the request is sent once more on a fresh one.

        Raises:
            UpstreamError: code `engine_unreachable` when nothing listens, `engine_died` when the engine closed the
                connection without an answer.
        """
        target = URL(url, encoded=True)
        response = await self._send(method, target, headers, body)
        del body  # sent, and no longer needed while the answer comes
        try:
            yield Answer(response.status, response.raw_headers, response.content_type.lower(), response, _where(target))
        finally:
            response.close()

    async def generate(self, url: str, model: str, *, timeout_s: float, headers: Headers = ()) -> str:
        """A short streamed chat at temperature 0: all text it gave, content and reasoning, in order.

        `url` is the engine's root, or the whole address of its chat route.

        Raises:
            UpstreamError: `engine_refused` with the engine's own words on an HTTP error or an error in the
                stream, `engine_timeout` after `timeout_s`, or as `open` does.
        """
        where = url if url.endswith("/completions") else url.rstrip("/") + "/v1/chat/completions"
        body = json.dumps(_short_chat(model)).encode()
        sent = [("Content-Type", "application/json"), *headers]
        try:
            async with asyncio.timeout(timeout_s), self.open("POST", where, sent, body) as answer:
                if answer.status != 200:
                    raise _refused(where, answer.status, await answer.read())
                return "".join([text async for text in _texts(answer, where)])
        except TimeoutError:
            raise _silent(where, timeout_s) from None

    async def _send(self, method: str, url: URL, headers: Headers, body: bytes) -> aiohttp.ClientResponse:
        connection = SimpleNamespace(reused=False)
        try:
            return await _request(self._pooled, method, url, headers, body, connection)
        except UpstreamError as error:
            if not (connection.reused and error.code == "engine_died"):
                raise
        return await _request(self._fresh, method, url, headers, body)


def engine_words(body: bytes) -> str:
    """What an engine's error body says, shortened; engines put it in `error`, `error.message`, `message` or `detail`."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        value = body.decode("utf-8", "replace").strip()
    for key in ("error", "message", "detail"):
        value = value.get(key) or value if isinstance(value, dict) else value
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:WORDS_LIMIT] or "nothing"


def _session(connector: aiohttp.TCPConnector, *traces: aiohttp.TraceConfig) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        headers={"Accept-Encoding": "identity"},
        trace_configs=list(traces),
    )


def _watch_reuse() -> aiohttp.TraceConfig:
    async def note(_session: object, context: SimpleNamespace, _params: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx.reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(note)
    return trace


async def _request(
    session: aiohttp.ClientSession,
    method: str,
    url: URL,
    headers: Headers,
    body: bytes,
    connection: SimpleNamespace | None = None,
) -> aiohttp.ClientResponse:
    sent = CIMultiDict(headers)
    sent["Accept-Encoding"] = "identity"
    data: bytes | AsyncIterator[bytes] | None = body or None
    if len(body) > LARGE_BODY:
        sent["Content-Length"] = str(len(body))
        data = _pieces(body)
    try:
        return await session.request(
            method, url, headers=sent, data=data, allow_redirects=False, trace_request_ctx=connection
        )
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise UpstreamError(
            f"Nothing answers at {_where(url)} ({_why(error)}).",
            code="engine_unreachable",
            hint="The engine has ended or does not listen yet; `sparkdash status` shows it.",
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamError(
            f"The engine at {_where(url)} closed the connection without an answer ({_why(error)}).",
            code="engine_died",
            hint="Its log says more: `sparkdash logs PROFILE`.",
        ) from None


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), BODY_PIECE):
        yield body[start : start + BODY_PIECE]


def _short_chat(model: str) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to five."}],
        "max_tokens": GENERATE_TOKENS,
        "temperature": 0,
        "stream": True,
    }


async def _texts(answer: Answer, where: str) -> AsyncIterator[str]:
    rest = b""
    async for chunk in answer.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            for text in _texts_of(line.strip(), where):
                yield text


def _texts_of(line: bytes, where: str) -> Iterator[str]:
    if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
        return
    try:
        event = json.loads(line[5:])
    except ValueError:
        raise _refused(where, 200, line) from None
    if "error" in event:
        raise _refused(where, 200, line[5:])
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        yield from (delta[key] for key in ("reasoning", "reasoning_content", "content") if delta.get(key))


def _refused(url: str, status: int, body: bytes) -> UpstreamError:
    return UpstreamError(
        f"The engine at {_where(URL(url))} answered {status}: {engine_words(body)}", code="engine_refused"
    )


def _silent(url: str, timeout_s: float) -> UpstreamError:
    return UpstreamError(
        f"The engine at {_where(URL(url))} gave no answer within {timeout_s:g} s.", code="engine_timeout"
    )


def _where(url: URL) -> str:
    return f"{url.host}:{url.port}"


def _why(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
