"""Link: all that the dashboard may ask of a daemon, and the one that reaches it through `client`.

Owns: that protocol and its adapter. Must not know: terminals, panels.
Rule: methods return domain values or raise SparkdashError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from sparkdash.bench.report.report import Report
from sparkdash.bench.run import Run
from sparkdash.client.client import AsyncClient
from sparkdash.client.feed import feed
from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import Event
from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.shelf import Shelf
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import DaemonError

LOG_TAIL = 1000
"""Lines of an engine's log that are asked for before following it."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The link is lost and is being mended; the next item says that it is back."""


Item = Snapshot | Event | Disconnected

T = TypeVar("T")
_RUNS = TypeAdapter(tuple[Run, ...])
_REPORT = TypeAdapter(Report)


class Link(Protocol):
    """A daemon, as far as the dashboard sees it. Everything may be awaited for seconds; nothing blocks."""

    address: str
    """Where it is, for people."""

    def feed(self) -> AsyncIterator[Item]:
        """A snapshot, then events for ever; Disconnected when the link is lost. Raises DaemonError when trying again will not help."""
        ...

    async def use(self, profile: str) -> Plan:
        """Bring a profile up; returns before the swap is over."""
        ...

    async def stop(self, profile: str | None) -> None:
        """Stop one engine, or all."""
        ...

    async def release(self, profile: str) -> None:
        """Let a parked profile be tried again."""
        ...

    async def cancel(self) -> None:
        """Give the swap under way up."""
        ...

    async def cancel_request(self, request_id: str) -> None:
        """End one request."""
        ...

    async def toggle(self, a: str | None, b: str | None, *, flip: bool) -> None:
        """Set the A/B pair (None leaves a side as it is) and, with `flip`, use the one that does not run."""
        ...

    async def plan(self, profile: str) -> Plan:
        """What `use` would evict, whether it fits, how long it takes."""
        ...

    async def shelf(self) -> Shelf:
        """What of each profile is on the daemon's box."""
        ...

    def logs(self, profile: str, *, follow: bool) -> AsyncIterator[str]:
        """Lines of an engine's log; with `follow`, until it ends."""
        ...

    async def traffic(self, *, on: bool) -> None:
        """Switch the demo's own traffic."""
        ...

    async def reload(self) -> None:
        """Make the daemon read the profiles again."""
        ...

    async def doctor(self) -> Diagnosis:
        """What the doctor finds on the daemon's box; takes seconds."""
        ...

    async def memory(self) -> MemoryAccount:
        """Who holds the memory of the daemon's box; takes up to a second."""
        ...

    async def runs(self) -> tuple[Run, ...]:
        """What was measured, the newest first."""
        ...

    async def report(self, run: str) -> Report:
        """What one run says; takes seconds."""
        ...

    async def end_measuring(self) -> None:
        """Ask the run that is measured to stop."""
        ...

    async def resume(self, run: str) -> None:
        """Have a run go on; returns once it was begun."""
        ...

    def pull(self, profile: str) -> AsyncIterator[PullProgress]:
        """Fetch a profile's image; the last item has `done`."""
        ...


class DaemonLink:
    """The Link over the daemon's HTTP API. `url` None: where `client.address` finds it. Make it inside a running loop."""

    def __init__(self, url: str | None = None) -> None:
        self._client = AsyncClient(url)
        self.address = str(self._client.address)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def feed(self) -> AsyncIterator[Item]:
        """See Link."""
        async with aclosing(feed(self._client)) as items:
            async for item in items:
                yield Disconnected() if item is None else item

    async def use(self, profile: str) -> Plan:
        """See Link."""
        return await self._client.use(profile)

    async def stop(self, profile: str | None) -> None:
        """See Link."""
        await self._client.stop(profile)

    async def release(self, profile: str) -> None:
        """See Link."""
        await self._client.release(profile)

    async def cancel(self) -> None:
        """See Link."""
        await self._client.cancel()

    async def cancel_request(self, request_id: str) -> None:
        """See Link."""
        await self._client.cancel_request(request_id)

    async def toggle(self, a: str | None, b: str | None, *, flip: bool) -> None:
        """See Link."""
        await self._client.toggle(a, b, flip=flip)

    async def plan(self, profile: str) -> Plan:
        """See Link."""
        return await self._client.plan(profile)

    async def shelf(self) -> Shelf:
        """See Link."""
        return await self._client.shelf()

    async def logs(self, profile: str, *, follow: bool) -> AsyncIterator[str]:
        """See Link."""
        async with aclosing(self._client.logs(profile, follow=follow, tail=LOG_TAIL)) as lines:
            async for line in lines:
                yield line

    async def traffic(self, *, on: bool) -> None:
        """See Link."""
        await self._client.traffic(on=on)

    async def reload(self) -> None:
        """See Link."""
        await self._client.reload()

    async def doctor(self) -> Diagnosis:
        """See Link."""
        return await self._client.doctor()

    async def memory(self) -> MemoryAccount:
        """See Link."""
        return await self._client.memory()

    async def runs(self) -> tuple[Run, ...]:
        """See Link."""
        return _understood(_RUNS, await self._client.runs())

    async def report(self, run: str) -> Report:
        """See Link."""
        return _understood(_REPORT, await self._client.report(run))

    async def end_measuring(self) -> None:
        """See Link."""
        await self._client.end_measuring()

    async def resume(self, run: str) -> None:
        """See Link."""
        await self._client.resume(run)

    async def pull(self, profile: str) -> AsyncIterator[PullProgress]:
        """See Link."""
        async with aclosing(self._client.pull(profile)) as steps:
            async for step in steps:
                yield step


def _understood(shape: TypeAdapter[T], body: bytes) -> T:
    try:
        return shape.validate_json(body)
    except ValidationError as error:
        raise DaemonError(
            "The daemon's account of the runs is not understood.",
            code="not_understood",
            hint="It and this dashboard are of different versions: `sparkdash version`.",
        ) from error
