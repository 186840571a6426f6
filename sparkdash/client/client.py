"""AsyncClient: the control API as methods that are awaited.

Owns: sending a row of `api.control` with httpx, reading what comes back, and the lease that this client holds. Rule: a
method returns a value of the domain or of `api.answers`, or raises a SparkdashError.
Must not know: terminals, nor which calls there are, but for the lease.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from sparkdash.api.answers import LeaseGranted
from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, HttpCall, Stream
from sparkdash.client import address
from sparkdash.client.envelope import error_from_answer
from sparkdash.domain.event import Measuring
from sparkdash.domain.lease import LEASE_HEADER

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(ControlApi):
    """Client of the daemon at `url`, behind the socket `uds`, or where `address.find_daemon` says.

    Use it as an async context manager. Every method of the table raises SparkdashError; DaemonError when no daemon
    answers.
    """

    def __init__(self, url: str | None = None, *, uds: Path | None = None) -> None:
        self.address = address.resolve(url, uds)

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        """The connections; httpx is loaded with the first call, as the dashboard is on the screen before it."""
        from sparkdash.client.over_httpx import new_client

        return new_client(self.address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        if "_http" in vars(self):
            await self._http.aclose()

    async def hold(
        self,
        holder: str,
        expected_s: float | None = None,
        measuring: Measuring | None = None,
        *,
        shares: bool = False,
    ) -> LeaseGranted:
        """Take the lease of the gateway, or renew the one that this client holds; its later calls carry the token.

        `shares`: let others in, and be the only one that measures. On the daemon's own box the lease ends with this
        process.
        """
        granted = await self.lease(
            holder=holder,
            token=self._http.headers.get(LEASE_HEADER),
            expected_s=expected_s,
            measuring=measuring,
            shares=shares,
            pid=os.getpid() if self.address.uds is not None else None,
        )
        self._http.headers[LEASE_HEADER] = granted.token
        return granted

    async def let_go(self) -> None:
        """Give the lease back; a client without a lease does nothing."""
        if LEASE_HEADER in self._http.headers:
            try:
                await self.end_lease()
            finally:
                del self._http.headers[LEASE_HEADER]

    async def call(self, row: Call[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the call of a row of the table."""
        from sparkdash.client.over_httpx import speaking_to, timeouts

        request = row.prepare(*args, **kwargs)
        with speaking_to(self.address):
            reply = await self._http.request(
                request.method, request.target, json=request.body, timeout=timeouts(row.silence_s)
            )
            if reply.is_error:
                raise error_from_answer(reply.status_code, reply.content, self.address)
            return row.read(reply.content)

    async def stream(self, row: Stream[P, T], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        """Yield the items of a stream of the table, until it ends or the generator is closed."""
        from sparkdash.client.over_httpx import speaking_to

        reader = row.reader()
        with speaking_to(self.address):
            async with aclosing(self._chunks(row.prepare(*args, **kwargs), row.silence_s)) as chunks:
                async for chunk in chunks:
                    for item in reader.feed(chunk):
                        yield item
            for item in reader.end():
                yield item

    async def _chunks(self, request: HttpCall, silence_s: float | None) -> AsyncGenerator[bytes, None]:
        from sparkdash.client.over_httpx import timeouts

        method, target, body = request
        async with self._http.stream(method, target, json=body, timeout=timeouts(silence_s)) as reply:
            if reply.is_error:
                raise error_from_answer(reply.status_code, await reply.aread(), self.address)
            async for chunk in reply.aiter_bytes():
                yield chunk
