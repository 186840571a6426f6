"""Exchange: one HTTP request and its one answer, over raw ASGI.

Owns: reading a body within its limits, starting an answer once, sending pieces of it, cutting a client that stands still.
Must not know engines or leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from sparkdash.access.key import Key
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway import problems
from sparkdash.gateway.room import Place
from sparkdash.gateway.route import Dialect
from sparkdash.units import MIB
from sparkdash.wire import abort

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


KEY = "sparkdash.key"
"""Where in a scope the key is."""
CODING_SHOWN = 40
SLOWEST_BODY = 64 * 1024
"""Bytes per second under which a body is too slow, once its time is up."""


class ClientGone(Exception):  # noqa: N818 - not an error of ours
    """The client closed its connection."""


class ClientStuck(ClientGone):
    """It took nothing any more, and its connection was cut."""


class Exchange:
    """One request. `started`: has the status line gone out?"""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.raw_path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.query: str = scope["query_string"].decode("latin-1")
        self.request_id = ""
        """Its row in the table of requests, once it has one."""
        self.started = False
        self.finished = False
        self._receive = receive
        self._send = send
        self._sent = 0
        """Pieces that the client's connection has taken."""
        self._sending = False

    @property
    def key(self) -> Key | None:
        """Whose request it is; None when no key was asked for. Kept in the scope: one request may be answered in two costumes."""
        found: Key | None = self.scope.get(KEY)
        return found

    async def body(self, limit_mib: int, place: Place, limit_s: float) -> bytes:
        """The whole request body, which takes its `place`. It must come within `limit_s`, and a second more for every 64 KiB.

        Raises:
            AdmissionError: code `body_encoded`, status 415, before anything is read: it is compressed; code
                `body_too_large`, status 413; nothing beyond the limit is kept; code `body_too_slow`, status 408; as
                `Place.take` does.
            ClientGone: it hung up before the end.
        """
        limit = limit_mib * MIB
        if (coding := self.headers.get("content-encoding", "").strip().lower()) not in ("", "identity"):
            raise _encoded(coding)
        if int(self.headers.get("content-length") or 0) > limit:
            raise _too_large(limit_mib)
        try:
            async with asyncio.timeout(limit_s) as deadline:
                return await self._parts(limit_mib, place, deadline)
        except TimeoutError:
            raise _too_slow(limit_s) from None

    async def _parts(self, limit_mib: int, place: Place, deadline: asyncio.Timeout) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit_mib * MIB:
                raise _too_large(limit_mib)
            place.take(len(part))
            deadline.reschedule((deadline.when() or 0.0) + len(part) / SLOWEST_BODY)
            parts.append(part)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def client_gone(self) -> None:
        """Wait for the client to hang up; to be called once the body is read.

        Raises:
            ClientGone: it did, and the answer was not finished.
        """
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.finished:
            raise ClientGone

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the status line and the headers."""
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the body; waits while the client is slow."""
        self._sending = True
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._sending = False
        self._sent += 1

    @asynccontextmanager
    async def taken_within(self, limit_s: float) -> AsyncIterator[None]:
        """Cut the client when it takes no piece of what is sent in here for `limit_s` (and at most twice that); 0: never.

        Costs nothing per piece but two marks; it is looked after every `limit_s`.

        Raises:
            ClientStuck: it was.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        before, seen, stuck = task.cancelling(), -1, False
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal seen, stuck, timer
            if self._sending and self._sent == seen:
                stuck = task.cancel()
            else:
                seen = self._sent
                timer = loop.call_later(limit_s, look)

        if limit_s:
            timer = loop.call_later(limit_s, look)
        try:
            yield
        except asyncio.CancelledError:
            if not stuck or task.uncancel() > before:
                raise
            abort(self.scope)
            raise ClientStuck from None
        finally:
            if timer is not None:
                timer.cancel()

    async def finish(self, last: bytes = b"") -> None:
        """Send the last piece."""
        self.finished = self._sending = True
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def answer(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A whole answer at once."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.finish(b"" if self.method == "HEAD" else body)

    async def refuse(self, error: SparkdashError, dialect: Dialect = Dialect.OTHER) -> None:
        """An error with its true status."""
        body = problems.encode(problems.envelope(error, dialect))
        await self.answer(error.status, body, problems.headers(error))


def _encoded(coding: str) -> AdmissionError:
    return AdmissionError(
        f"The request's body is compressed ({coding[:CODING_SHOWN]}), which sparkdash does not read.",
        code="body_encoded",
        status=415,
        hint="Send it plain, without Content-Encoding.",
    )


def _too_slow(limit_s: float) -> AdmissionError:
    return AdmissionError(
        f"The request's body did not come within {limit_s:g} s (and a second for every 64 KiB of it).",
        code="body_too_slow",
        status=408,
        hint="body_s in config.toml sets the limit.",
    )


def _too_large(limit_mib: int) -> AdmissionError:
    return AdmissionError(
        f"The request's body is larger than {limit_mib} MiB.",
        code="body_too_large",
        status=413,
        hint="body_limit_mib in config.toml sets the limit.",
    )
