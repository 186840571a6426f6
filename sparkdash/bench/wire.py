"""One streamed request, timed: the bench's only HTTP client towards what it measures.

Owns: the moment of each piece, and what the pieces say once the stream is over. Must not know: cells, suites.
Rule 1: while a stream runs, a piece costs one timestamp and one append; it is read afterwards.
Rule 2: tokens are what the engine counts. Chunks are never counted as tokens.
The names are those of the metric dictionary: response (first event with choices), token (first event that carries a
token: content, reasoning or a tool call), visible (first content), last (last event that carries a token).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from sparkdash.client.sse import Frames
from sparkdash.errors import UpstreamError

CONNECT_S = 5.0
SILENCE_S = 900.0
"""No byte for so long: the longest cold prefill that was published (100,000 tokens) takes a tenth of it."""
TICK_S = 0.005
"""How often the loop's own lateness is looked at while requests run."""
WORDS = 300
"""Of an engine's refusal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one stream said. Times by `perf_counter_ns`; None: that never came, or was not told."""

    t0_ns: int
    response_ns: int | None = None
    token_ns: int | None = None
    visible_ns: int | None = None
    last_ns: int | None = None
    n: int | None = None
    k1: int = 1
    visible: int | None = None
    chunks: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    """What a reader sees."""
    thought: str = ""
    """The reasoning."""
    model: str | None = None
    error: str | None = None
    lag_ms: float = 0.0

    @property
    def output_sha256(self) -> str:
        """Of all that was generated."""
        return hashlib.sha256(f"{self.thought}\0{self.text}".encode()).hexdigest()


class Lag:
    """How late the client's own loop was: the most since each mark."""

    def __init__(self) -> None:
        self._running = 0
        self._marks: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.seen: list[float] = []
        """Every lateness in milliseconds."""

    def begin(self) -> int:
        """A mark to `end` with."""
        self._running += 1
        self._marks[mark := self._running] = 0.0
        if self._timer is None:
            self._arm()
        return mark

    def end(self, mark: int) -> float:
        """The most since that mark, in milliseconds."""
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
        self.seen.append(late)
        for mark, worst in self._marks.items():
            if late > worst:
                self._marks[mark] = late
        self._arm()


class Wire:
    """Requests to one root URL (without /v1), through the socket `uds` when there is one. Use it as an async context manager."""

    _session: aiohttp.ClientSession
    _others: aiohttp.ClientSession

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, uds: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._uds = uds
        self.headers = headers or {}
        """Sent with every request to `url`, and to nobody else; whoever handed them in may change them."""
        self.lag = Lag()

    async def __aenter__(self) -> Self:
        connector = aiohttp.UnixConnector(str(self._uds), limit=0) if self._uds else aiohttp.TCPConnector(limit=0)
        self._session = _session(connector)
        self._others = _session(aiohttp.TCPConnector())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._others.close()

    async def chat(self, body: Mapping[str, Any]) -> Answer:
        """Send a streamed chat and time it. A failure is told in `error`, never raised."""
        data = json.dumps({**body, "stream": True}).encode()
        headers = {**self.headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}
        notes: list[tuple[int, bytes]] = []
        mark = self.lag.begin()
        now, error = time.perf_counter_ns, None
        t0 = now()
        try:
            async with self._session.post(f"{self.url}/v1/chat/completions", data=data, headers=headers) as response:
                read = response.content.readany
                while piece := await read():
                    notes.append((now(), piece))
                if response.status != 200:
                    error = f"HTTP {response.status}: {_words(b''.join(piece for _, piece in notes))}"
        except (aiohttp.ClientError, OSError) as problem:
            error = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        finally:
            lag = self.lag.end(mark)
        answer = Answer(t0) if error else read_stream(t0, notes)
        return replace(answer, error=error or answer.error, lag_ms=lag)

    async def get(self, path: str, *, timeout_s: float = 10.0, url: str | None = None) -> bytes:
        """The body of a GET, of `url` where one is given.

        Raises:
            UpstreamError: nothing answers, or with another status than 200.
        """
        return await self._small("GET", (url or self.url) + path, None, timeout_s, own=url is None)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float = 60.0) -> Any:
        """The JSON of a POST; raises as `get`, and for an answer that is no JSON."""
        answer = await self._small("POST", self.url + path, json.dumps(body).encode(), timeout_s)
        try:
            return json.loads(answer)
        except ValueError:
            raise UpstreamError(f"{self.url}{path} answered {_words(answer)!r}, which is no JSON.") from None

    async def _small(self, method: str, url: str, data: bytes | None, timeout_s: float, *, own: bool = True) -> bytes:
        headers = {**(self.headers if own else {}), "Content-Type": "application/json"}
        session = self._session if own else self._others
        limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with session.request(method, url, data=data, headers=headers, timeout=limit) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            raise UpstreamError(f"{url} does not answer ({type(problem).__name__}).") from None
        if response.status != 200:
            raise UpstreamError(f"{url} answered {response.status}: {_words(answer)}.", status=response.status)
        return answer


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def read_stream(t0_ns: int, notes: Sequence[tuple[int, bytes]]) -> Answer:
    """What timed pieces of an event stream amount to. Pure."""
    reader, frames = _Reader(t0_ns), Frames()
    for at, piece in notes:
        for frame in frames.feed(piece):
            if frame.data != "[DONE]":
                reader.take(at, frame.data)
    return reader.answer()


class _Reader:
    """Events in the order of their coming."""

    def __init__(self, t0_ns: int) -> None:
        self._t0 = t0_ns
        self._response: int | None = None
        self._first: int | None = None
        self._visible_at: int | None = None
        self._last: int | None = None
        self._count = 0
        """Tokens so far, as far as chunks tell."""
        self._k1 = 1
        self._thoughts = 0
        """Of them, those that came with reasoning."""
        self._told = False
        """Do chunks tell the count?"""
        self._chunks = 0
        self._usage: Mapping[str, Any] = {}
        self._finish: str | None = None
        self._text: list[str] = []
        self._thought: list[str] = []
        self._model: str | None = None
        self._error: str | None = None

    def take(self, at: int, data: str) -> None:
        try:
            event = json.loads(data)
        except ValueError:
            self._error = self._error or f"an event is no JSON: {data[:WORDS]}"
            return
        if event.get("error"):
            self._error = self._error or _words(data.encode())
            return
        self._model = self._model or event.get("model")
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = {**self._usage, **usage}
        for choice in event.get("choices") or ():
            if self._response is None:
                self._response = at
            self._choice(at, choice, usage if isinstance(usage, dict) else {})

    def _choice(self, at: int, choice: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or {}
        content = delta.get("content") or ""
        thought = delta.get("reasoning") or delta.get("reasoning_content") or ""
        self._finish = choice.get("finish_reason") or self._finish
        before = self._count
        if isinstance(count := usage.get("completion_tokens"), int):
            self._count, self._told = count, True
        elif isinstance(ids := choice.get("token_ids"), list):
            self._count, self._told = before + len(ids), True
        if not (content or thought or delta.get("tool_calls") or self._count > before):
            return
        self._chunks += 1
        self._last = at
        if self._first is None:
            self._first = at
        if at == self._first:
            self._k1 = max(1, self._count) if self._told else self._chunks
        if thought:
            self._thoughts += self._count - before
            self._thought.append(thought)
        if content:
            self._text.append(content)
            if self._visible_at is None:
                self._visible_at = at

    def answer(self) -> Answer:
        n = self._usage.get("completion_tokens")
        return Answer(
            t0_ns=self._t0,
            response_ns=self._response,
            token_ns=self._first,
            visible_ns=self._visible_at,
            last_ns=self._last,
            n=n,
            k1=self._k1,
            visible=self._seen(n),
            chunks=self._chunks,
            prompt_tokens=self._usage.get("prompt_tokens"),
            cached_tokens=_details(self._usage, "prompt_tokens_details").get("cached_tokens"),
            finish_reason=self._finish,
            text="".join(self._text),
            thought="".join(self._thought),
            model=self._model,
            error=self._error,
        )

    def _seen(self, n: int | None) -> int | None:
        """Tokens outside the reasoning: as `usage` tells, else as the chunks do."""
        if n is None or not self._thought:
            return n
        told = _details(self._usage, "completion_tokens_details").get("reasoning_tokens")
        hidden = told if isinstance(told, int) else self._thoughts if self._told else None
        return None if hidden is None else n - hidden


def _details(usage: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = usage.get(key)
    return found if isinstance(found, Mapping) else {}


def _words(body: bytes) -> str:
    """An engine's refusal in its own words, shortened."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        value = body.decode("utf-8", "replace").strip()
    for key in ("error", "message", "detail"):
        value = (value.get(key) or value) if isinstance(value, dict) else value
    return (value if isinstance(value, str) else json.dumps(value))[:WORDS] or "nothing"
