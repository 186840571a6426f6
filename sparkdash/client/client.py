"""AsyncClient: the daemon's control API as methods.

Rule: a method returns a domain value or raises a SparkdashError; nothing of HTTP gets out.
Must not know: terminals.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import httpx

from sparkdash.client import calls, routes
from sparkdash.client.address import credentials
from sparkdash.client.envelope import error_of
from sparkdash.client.over_httpx import door, limits, speaking_to
from sparkdash.client.routes import Ask, Cause, Hold, ProfileList, Toggle
from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import Event
from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.lease import LEASE_HEADER
from sparkdash.domain.measuring import Measuring
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.profile import Profile
from sparkdash.domain.shelf import Shelf
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import SparkdashError
from sparkdash.sse import Frame, Frames, Lines

T = TypeVar("T")


class AsyncClient:
    """The daemon at `url`, behind the socket `uds`, or where `address.find` says. Use it as an async context manager.

    Every method raises SparkdashError; DaemonError when no daemon answers.
    """

    def __init__(self, url: str | None = None, *, uds: Path | None = None) -> None:
        self.address = calls.address(url, uds)
        transport = httpx.AsyncHTTPTransport(**door(self.address))
        self._http = httpx.AsyncClient(
            base_url=self.address.url, transport=transport, headers=credentials(self.address)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def state(self) -> Snapshot:
        """All that is known now."""
        return await self._ask(routes.state())

    async def profiles(self) -> ProfileList:
        """Every profile, and the problems of those left out."""
        return await self._ask(routes.profiles())

    async def profile(self, name: str) -> Profile:
        """One whole profile, by name or alias."""
        return await self._ask(routes.profile(name))

    async def plan(self, name: str) -> Plan:
        """What `use` would evict, and whether it fits."""
        return await self._ask(routes.plan(name))

    async def shelf(self) -> Shelf:
        """What of each profile is on the daemon's box: its image, its weights."""
        return await self._ask(routes.shelf())

    async def memory(self) -> MemoryAccount:
        """Who holds the memory of the daemon's box; takes up to a second."""
        return await self._ask(routes.memory())

    async def doctor(self) -> Diagnosis:
        """Have the doctor examine the daemon's box; takes seconds."""
        return await self._ask(routes.doctor())

    async def runs(self) -> bytes:
        """What was measured, as JSON; the bench knows its shape."""
        return await self._ask(routes.runs())

    async def report(self, run: str) -> bytes:
        """The report of one run, as JSON; takes seconds where the run is large."""
        return await self._ask(routes.report(run))

    async def use(self, name: str, cause: Cause = "user") -> Plan:
        """Bring a profile up. Returns at once; the feed tells how it goes."""
        return await self._ask(routes.use(name, cause))

    async def hold(
        self,
        holder: str,
        expected_s: float | None = None,
        measuring: Measuring | None = None,
        *,
        shares: bool = False,
    ) -> Hold:
        """Have the gateway to oneself, or be the only one to measure there while others are let in (`shares`): take that right, or
        renew the one that this client has. All that it asks from then on carries the token. On the daemon's own box the
        right ends with this process."""
        token = self._http.headers.get(LEASE_HEADER)
        pid = os.getpid() if self.address.uds is not None else None
        found = await self._ask(routes.hold(holder, token, expected_s, measuring, shares=shares, pid=pid))
        self._http.headers[LEASE_HEADER] = found.token
        return found

    async def end_measuring(self) -> None:
        """Ask the run that is measured to stop; what is measured is kept."""
        await self._ask(routes.end_measuring())

    async def resume(self, run: str) -> None:
        """Have a run go on, in a process beside the daemon."""
        await self._ask(routes.resume(run))

    async def let_go(self) -> None:
        """Let others in again; nothing happens for one that holds nothing."""
        if LEASE_HEADER in self._http.headers:
            try:
                await self._ask(routes.let_go())
            finally:
                del self._http.headers[LEASE_HEADER]

    async def stop(self, name: str | None = None, *, wait: bool = True) -> None:
        """Stop one engine, or all of them. With `wait`, return when they are gone, which takes as long as a drain."""
        await self._ask(routes.stop(name, wait=wait))

    async def release(self, name: str | None = None) -> None:
        """Let one parked profile, or all of them, be tried again."""
        await self._ask(routes.release(name))

    async def cancel(self) -> None:
        """Cancel every swap under way; return when what they began is cleaned away."""
        await self._ask(routes.cancel())

    async def cancel_request(self, request_id: str) -> None:
        """End one request, by the id of its row."""
        await self._ask(routes.cancel_request(request_id))

    async def toggle(self, a: str | None = None, b: str | None = None, *, flip: bool = False) -> Toggle:
        """Set the A/B pair (None leaves a side as it is) and, with `flip`, use the one that does not run."""
        return await self._ask(routes.toggle(a, b, flip=flip))

    async def reload(self) -> ProfileList:
        """Make the daemon read the profiles again; what it has found."""
        return await self._ask(routes.reload())

    async def traffic(self, *, on: bool) -> None:
        """Switch the demo's own traffic."""
        await self._ask(routes.traffic(on=on))

    async def shutdown(self, engines: Literal["keep", "stop"] = "keep") -> None:
        """End the daemon."""
        await self._ask(routes.shutdown(engines))

    async def health(self) -> bool:
        """Does a daemon answer? Never raises for one that does not."""
        try:
            await self._ask(Ask("/health", bool, silence_s=calls.HEALTH_S))
        except SparkdashError:
            return False
        return True

    async def logs(self, name: str, *, follow: bool = False, tail: int | None = None) -> AsyncGenerator[str, None]:
        """Lines of an engine's log."""
        lines = Lines()
        async with aclosing(self._chunks("GET", routes.logs(name, follow=follow, tail=tail))) as chunks:
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    yield line
        for line in lines.end():
            yield line

    async def pull(self, name: str) -> AsyncGenerator[PullProgress, None]:
        """Fetch a profile's image; the last item has `done`."""
        async with aclosing(self._frames("POST", "/api/pull-image", json={"profile": name})) as frames:
            async for frame in frames:
                yield calls.pulled(frame, self.address)

    async def events(self, since: int | None = None) -> AsyncGenerator[Snapshot | Event, None]:
        """One connection to the feed, until it ends; `client.feed` is the one that reconnects."""
        async with aclosing(self._frames("GET", routes.events(since), silence_s=calls.FEED_S)) as frames:
            async for frame in frames:
                if item := calls.item(frame, self.address):
                    yield item

    async def _ask(self, ask: Ask[T]) -> T:
        with speaking_to(self.address):
            reply = await self._http.request(ask.method, ask.path, json=ask.body, timeout=limits(ask.silence_s))
            if reply.is_error:
                raise error_of(reply.status_code, reply.content, self.address)
            return ask.read(reply.content)

    async def _frames(self, *request: str, **options: Any) -> AsyncGenerator[Frame, None]:
        frames = Frames()
        async with aclosing(self._chunks(*request, **options)) as chunks:
            async for chunk in chunks:
                for frame in frames.feed(chunk):
                    yield frame

    async def _chunks(
        self, method: str, path: str, *, json: Any = None, silence_s: float | None = calls.STREAM_S
    ) -> AsyncGenerator[bytes, None]:
        with speaking_to(self.address):
            async with self._http.stream(method, path, json=json, timeout=limits(silence_s)) as reply:
                if reply.is_error:
                    raise error_of(reply.status_code, await reply.aread(), self.address)
                async for chunk in reply.aiter_bytes():
                    yield chunk
