"""HTTP client of the bench, and the lateness of its own event loop.

Owns: the bench's HTTP client: timed chats (timed_exchange.py), and small untimed questions. Must not know: cells,
suites, the content of an answer (stream_answer.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from sparkdash.bench.measure.stream_answer import StreamedAnswer, read_stream, refusal_text
from sparkdash.bench.measure.timed_exchange import CONNECT_S, TimedAnswer, TimedConnections
from sparkdash.errors import UpstreamError

CHAT = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
TICK_S = 0.005
"""Interval of lateness checks while requests run. Precise to about a millisecond, as loops sleep."""


class LoopLag:
    """Largest lateness of the client's event loop since each mark."""

    def __init__(self) -> None:
        self._running = 0
        self._marks: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def begin(self) -> int:
        """Start a measurement; return its mark for `end`."""
        self._running += 1
        self._marks[mark := self._running] = 0.0
        if self._timer is None:
            self._arm()
        return mark

    def end(self, mark: int) -> float:
        """Return the largest lateness since that mark, in milliseconds."""
        worst = self._marks.pop(mark)
        if not self._marks and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return worst

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + TICK_S
        self._timer = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        late = max(0.0, asyncio.get_running_loop().time() - self._due) * 1e3
        for mark, worst in self._marks.items():
            if late > worst:
                self._marks[mark] = late
        self._arm()


class BenchClient:
    """Requests to one root URL (without /v1), through the socket `uds` where given. An async context manager."""

    _small: httpx.AsyncClient

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, uds: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._uds = uds
        self.headers = headers or {}
        """Sent with every request to `url`, and to nobody else; whoever handed them in may change them."""
        self.lag = LoopLag()
        self._connections = TimedConnections(uds)

    async def __aenter__(self) -> Self:
        self._small = _client(self.url, self._uds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()
        await self._small.aclose()

    async def chat(self, body: Mapping[str, Any]) -> StreamedAnswer:
        """Send a streamed chat and time it. A failure is reported in `error`, never raised."""
        return (await self.chats([body]))[0]

    async def chats(self, bodies: Sequence[Mapping[str, Any]]) -> list[StreamedAnswer]:
        """Send several chats concurrently.

        Answers are parsed after all have ended, as parsing one would delay the others.
        """
        data = [json.dumps({**body, "stream": True}).encode() for body in bodies]
        mark = self.lag.begin()
        try:
            timed = await asyncio.gather(*(self._timed(one) for one in data))
        finally:
            lag = self.lag.end(mark)
        return [_doubted(_read(one), lag) for one in timed]

    async def _timed(self, data: bytes) -> TimedAnswer | str:
        """Return the timed answer, or why there is none."""
        try:
            return await self._connections.post(self.url, "/v1/chat/completions", {**self.headers, **CHAT}, data)
        except OSError as problem:
            return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__

    async def get(self, path: str, *, timeout_s: float = 10.0, url: str | None = None) -> bytes:
        """Return the body of a GET, from `url` where given.

        Raises:
            UpstreamError: nothing answers, or with another status than 200.
        """
        if url is None:
            return await _asked(self._small, "GET", self.url + path, timeout_s, self.headers)
        async with _client(url) as other:
            return await _asked(other, "GET", url + path, timeout_s)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float = 60.0) -> Any:
        """Return the JSON of a POST. Raises as `get`, and for an answer that is no JSON."""
        sent = json.dumps(body).encode()
        answer = await _asked(self._small, "POST", self.url + path, timeout_s, self.headers, sent)
        try:
            return json.loads(answer)
        except ValueError:
            raise UpstreamError(f"{self.url}{path} answered {refusal_text(answer)!r}, which is not JSON.") from None


def _refused(url: str, status: int, body: bytes) -> UpstreamError:
    return UpstreamError(f"{url} answered {status}: {refusal_text(body)}.", status=status)


def _read(timed: TimedAnswer | str) -> StreamedAnswer:
    if isinstance(timed, str):
        return StreamedAnswer(0, error=timed)
    if timed.status != 200:
        return StreamedAnswer(timed.t0_ns, error=f"HTTP {timed.status}: {refusal_text(timed.body)}")
    return replace(read_stream(timed.t0_ns, timed.pieces), late_ns=tuple(timed.late_ns))


def _doubted(answer: StreamedAnswer, lag_ms: float) -> StreamedAnswer:
    """Set `lag_ms`, the largest possible error of the timestamps, when the loop was late by `lag_ms`.

    Where the kernel noted the arrivals, what waited together has the moment of the last. That is right for the last
    token, and for the rate, which counts the tokens of the first moment; the first token may be late when others
    came with it.
    """
    noted = bool(answer.late_ns) and answer.first_chunks <= 1
    return answer if noted else replace(answer, lag_ms=lag_ms)


def _client(url: str, uds: Path | None = None) -> httpx.AsyncClient:
    """Return a client with a transport of its own.
    No proxy of the environment intervenes, and certificates (40 ms to read) are loaded for https only.
    """
    transport = httpx.AsyncHTTPTransport(uds=str(uds) if uds else None, verify=url.startswith("https:"))
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=True)


async def _asked(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> bytes:
    sent = {**(headers or {}), "Content-Type": "application/json"}
    limits = httpx.Timeout(None, connect=CONNECT_S)
    try:
        async with asyncio.timeout(timeout_s):
            reply = await client.request(method, url, content=body, headers=sent, timeout=limits)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as problem:
        raise UpstreamError(f"{url} does not answer ({str(problem) or type(problem).__name__}).") from None
    if reply.status_code != 200:
        raise _refused(url, reply.status_code, reply.content)
    return reply.content
