"""HTTP client of the bench: chats whose pieces are stamped with their arrival, and small untimed questions."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httptools
import httpx

from sparkdash.bench.measure.stream_answer import StreamedAnswer, read_stream, refusal_text
from sparkdash.errors import UpstreamError

CONNECT_S = 5.0
SILENCE_S = 900.0
"""Longest silence. The longest published cold prefill (100,000 tokens) takes a tenth of it."""
SO_TIMESTAMPNS = 35
"""Not in Python's socket module; asm-generic/socket.h, the same on x86-64 and arm64."""
TOLD = struct.Struct("@ll")
"""Layout of a timespec of CLOCK_REALTIME."""
SIZE = 1 << 16
ROOM = socket.CMSG_SPACE(TOLD.size)


class BrokenAnswerError(OSError):
    """The connection ended before the answer did, or what came is no HTTP."""


@dataclass(slots=True)
class TimedAnswer:
    """Answer with arrival times. Times by `perf_counter_ns`."""

    t0_ns: int
    status: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    late_ns: list[int] = field(default_factory=list)
    """Delay of each read after its arrival; empty where the kernel reports none."""

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


async def timed_post(
    root: str, path: str, headers: Mapping[str, str], body: bytes, uds: Path | None = None
) -> TimedAnswer:
    """Send a POST over a connection of its own, and read the answer to its end. Time starts once it is established.

    Raises:
        OSError: nobody listens, the connection broke, or nothing came for SILENCE_S (TimeoutError).
    """
    parts = urlsplit(root)
    head = _head(f"{parts.path}{path}", {"Host": parts.netloc, **headers}, len(body))
    async with asyncio.timeout(CONNECT_S):
        sock = await _connected(uds, parts.hostname or "", parts.port or 80)
    loop, answer = asyncio.get_running_loop(), _Answer(time.perf_counter_ns())
    try:
        await loop.sock_sendall(sock, head + body)
        loop.add_reader(sock, _reader(sock, answer))
        await answer.whole()
    finally:
        loop.remove_reader(sock)
        sock.close()
    return answer.timed


class _Answer:
    """Callbacks of httptools: status, body parts, end."""

    def __init__(self, t0_ns: int) -> None:
        self.timed = TimedAnswer(t0_ns)
        self._at = self._heard = t0_ns
        self._until_close = True
        """True without a length or chunks: the body ends with the connection."""
        self._parser = httptools.HttpResponseParser(self)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def feed(self, data: bytes | memoryview, at_ns: int, read_ns: int) -> None:
        """Parse bytes that arrived at `at_ns` and were read at `read_ns`. Empty bytes are the connection's end."""
        if self._over.done():
            return
        if not data:
            if self._until_close and self.timed.status:
                self._over.set_result(None)
            else:
                self.broken(BrokenAnswerError("the connection ended before the answer did"))
            return
        self._at, self._heard = at_ns, read_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.broken(BrokenAnswerError(f"the answer is no HTTP ({error})"))

    def broken(self, error: OSError) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    async def whole(self) -> None:
        while not self._over.done():
            left_s = SILENCE_S - (time.perf_counter_ns() - self._heard) / 1e9
            if left_s <= 0:
                raise TimeoutError(f"nothing came for {SILENCE_S:g} s")
            await asyncio.wait((self._over,), timeout=left_s)
        self._over.result()

    # what httptools calls

    def on_header(self, name: bytes, _value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        self.timed.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.timed.pieces.append((self._at, body))

    def on_message_complete(self) -> None:
        if self.timed.status >= 200 and not self._over.done():
            self._over.set_result(None)


def _reader(sock: socket.socket, answer: _Answer) -> Callable[[], None]:
    late, monotonic, buffer = answer.timed.late_ns, time.perf_counter_ns, memoryview(bytearray(SIZE))
    t0, ahead = answer.timed.t0_ns, _wall_ahead_ns()

    def read() -> None:
        try:
            count, told, _, _ = sock.recvmsg_into((buffer,), ROOM)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            answer.broken(error)
            return
        at = now = monotonic()
        for level, kind, value in told:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = TOLD.unpack(value)
                arrived = seconds * 1_000_000_000 + nanoseconds - ahead
                if t0 <= arrived <= now:  # else somebody set the wall clock
                    late.append(now - arrived)
                    at = arrived
        answer.feed(buffer[:count], at, now)

    return read


def _wall_ahead_ns() -> int:
    """Return wall clock minus monotonic clock, the least interrupted of three readings. Both are slewed alike."""
    looks = []
    for _ in range(3):
        before, wall, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        looks.append((after - before, wall - (before + after) // 2))
    return min(looks)[1]


async def _connected(uds: Path | None, host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    if uds is not None:
        return await _connect(socket.AF_UNIX, str(uds))
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in found[:-1]:
        with suppress(OSError):
            return await _connect(family, address)
    return await _connect(found[-1][0], found[-1][4])


async def _connect(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _note_arrivals(sock)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _note_arrivals(sock: socket.socket) -> None:
    with suppress(OSError):  # a sandbox or an emulator may not know it; then no arrival is told
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def _head(path: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode("latin-1")


CHAT = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
TICK_S = 0.005
"""Interval of lateness checks while requests run. Precise to about a millisecond, as loops sleep."""


class LoopLag:
    """Largest lateness of the event loop while this is entered."""

    worst_ms = 0.0

    def __enter__(self) -> Self:
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + TICK_S
        self._timer = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self.worst_ms = max(self.worst_ms, (asyncio.get_running_loop().time() - self._due) * 1e3)
        self._arm()


class BenchClient:
    """Requests to one root URL (without /v1), through the socket `uds` where given. An async context manager."""

    _small: httpx.AsyncClient
    _noting: socket.socket

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, uds: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._uds = uds
        self.headers = headers or {}
        """Sent with every request to `url`, and to nobody else; whoever handed them in may change them."""

    async def __aenter__(self) -> Self:
        self._small = _client(self.url, self._uds)
        self._noting = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        _note_arrivals(self._noting)  # the kernel begins a moment after the first socket asks, and ends with the last
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._noting.close()
        await self._small.aclose()

    async def chat(self, body: Mapping[str, Any]) -> StreamedAnswer:
        """Send a streamed chat and time it. A failure is reported in `error`, never raised."""
        return (await self.chats([body]))[0]

    async def chats(self, bodies: Sequence[Mapping[str, Any]]) -> list[StreamedAnswer]:
        """Send several chats concurrently; they are parsed after all have ended, as parsing would delay the others."""
        data = [json.dumps({**body, "stream": True}).encode() for body in bodies]
        with LoopLag() as lag:
            timed = await asyncio.gather(*(self._timed(one) for one in data))
        return [_doubted(_read(one), lag.worst_ms) for one in timed]

    async def _timed(self, data: bytes) -> TimedAnswer | str:
        try:
            return await timed_post(self.url, "/v1/chat/completions", {**self.headers, **CHAT}, data, self._uds)
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
        except (ValueError, RecursionError):
            raise UpstreamError(f"{self.url}{path} answered {refusal_text(answer)!r}, which is not JSON.") from None


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
    """Return a client without the environment's proxy. It reads certificates, which takes 40 ms, for https only."""
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
        words = refusal_text(reply.content)
        raise UpstreamError(f"{url} answered {reply.status_code}: {words}.", status=reply.status_code)
    return reply.content
