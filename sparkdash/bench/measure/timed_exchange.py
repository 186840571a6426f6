"""HTTP exchange that stamps each piece of the answer with its arrival time.

Owns: connections to the measured server, kept between requests; when each piece arrived, and how late it was read.
Must not know: what the pieces say.
Rule 1: while an answer arrives, a piece costs one clock, one append and the parser's look for the end.
Rule 2: a piece is stamped with its arrival in the kernel (Linux, TCP: SO_TIMESTAMPNS, available to recvmsg since
4.13), so that a late client reads late but measures in time. Bytes that waited together have the moment of the last.
Unix sockets and TLS have no such stamp: there it is the moment of reading.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httptools

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
    """Moment at which the request is written."""
    status: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    """(arrival, part of the body), in order."""
    late_ns: list[int] = field(default_factory=list)
    """Delay of each read after its arrival; empty where the kernel reports none."""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(piece for _, piece in self.pieces)


class TimedConnections:
    """Connections to one server at a time, over TCP or the unix socket `uds`. One task at a time uses each."""

    def __init__(self, uds: Path | None = None) -> None:
        self._uds = uds
        self._root = ""
        self._idle: list[socket.socket] = []

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def post(self, root: str, path: str, headers: Mapping[str, str], body: bytes) -> TimedAnswer:
        """Send a POST and read the answer to its end. Time starts once the connection is established.

        Raises:
            OSError: nobody listens, the connection broke, or nothing came for SILENCE_S (TimeoutError).
        """
        parts = urlsplit(root)
        head = _head(f"{parts.path}{path}", {"Host": parts.netloc, **headers}, len(body))
        if parts.scheme == "https" and self._uds is None:
            return await _secure(parts.hostname or "", parts.port or 443, head + body)
        if root != self._root:
            self.close()
            self._root = root
        while (kept := self._kept()) is not None:
            with suppress(_StaleError):
                return await self._exchange(kept, head + body, kept=True)
        async with asyncio.timeout(CONNECT_S):
            fresh = await _connected(self._uds, parts.hostname or "", parts.port or 80)
        return await self._exchange(fresh, head + body, kept=False)

    def _kept(self) -> socket.socket | None:
        """Return an idle connection that its server has not closed."""
        while self._idle:
            sock = self._idle.pop()
            with suppress(BlockingIOError):
                sock.recv(1, socket.MSG_PEEK)  # an end, or an answer that nobody asked for
                sock.close()
                continue
            return sock
        return None

    async def _exchange(self, sock: socket.socket, request: bytes, *, kept: bool) -> TimedAnswer:
        loop = asyncio.get_running_loop()
        answer = _Answer(time.perf_counter_ns())
        reusable = False
        try:
            try:
                await loop.sock_sendall(sock, request)
                loop.add_reader(sock, _reader(sock, answer))
                await answer.whole()
            except (BrokenPipeError, ConnectionResetError, BrokenAnswerError):
                if kept and not answer.begun:
                    raise _StaleError from None
                raise
            finally:
                loop.remove_reader(sock)
            reusable = answer.keeps
        finally:
            if reusable:
                self._idle.append(sock)
            else:
                sock.close()
        return answer.timed


class _StaleError(Exception):
    """A kept connection was closed by its server before it took the request."""


class _Answer:
    """Callbacks of httptools: status, body parts, end."""

    def __init__(self, t0_ns: int) -> None:
        self.timed = TimedAnswer(t0_ns)
        self.begun = False
        self.keeps = False
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
            if self.begun and self._until_close and self.timed.status:
                self._over.set_result(None)
            else:
                self.broken(BrokenAnswerError("the connection ended before the answer did"))
            return
        self.begun, self._at, self._heard = True, at_ns, read_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.broken(BrokenAnswerError(f"the answer is no HTTP ({error})"))

    def broken(self, error: OSError) -> None:
        """End the answer with an error."""
        if not self._over.done():
            self._over.set_exception(error)

    async def whole(self) -> None:
        """Wait for the end of the answer."""
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
            self.keeps = bool(self._parser.should_keep_alive()) and not self._until_close
            self._over.set_result(None)


def _reader(sock: socket.socket, answer: _Answer) -> Callable[[], None]:
    """Return the loop's callback for readable bytes."""
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


class _Secured(asyncio.Protocol):
    """TLS variant; the kernel's timestamps describe cipher records and are not used."""

    answer: _Answer | None = None

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        if self.answer is not None:
            self.answer.feed(data, now, now)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.answer is not None:
            self.answer.feed(b"", 0, 0)


async def _secure(host: str, port: int, request: bytes) -> TimedAnswer:
    async with asyncio.timeout(CONNECT_S):
        transport, made = await asyncio.get_running_loop().create_connection(_Secured, host, port, ssl=True)
    try:
        made.answer = answer = _Answer(time.perf_counter_ns())
        transport.write(request)
        await answer.whole()
    finally:
        transport.close()
    return answer.timed


async def _connected(uds: Path | None, host: str, port: int) -> socket.socket:
    """Connect to the first address that answers."""
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
            if sys.platform == "linux":
                with suppress(OSError):  # a sandbox or an emulator may not know it; then no arrival is told
                    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _head(path: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode("latin-1")
