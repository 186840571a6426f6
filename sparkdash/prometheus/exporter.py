"""MetricsExporter: counts while the daemon lives, and writes the page when it is asked for."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sparkdash.bus import Bus
from sparkdash.domain.engine import Engine
from sparkdash.domain.event import EngineChanged, Fact, GuardChanged, ProfilesChanged, SwapChanged
from sparkdash.domain.request import Request
from sparkdash.domain.state import Snapshot
from sparkdash.prometheus.totals import OTHER, RequestTotals, ScrapedState, SwapTotals
from sparkdash.telemetry.totals import EngineTotals

TOGETHER = 64
"""Requests that are counted at once: one by one, each finds the code and the tables out of the processor's caches."""


class MetricsExporter:
    """Metrics of one daemon. `engines`: counters by profile; `database`: the store's file, `most_bytes` its limit."""

    def __init__(
        self,
        bus: Bus,
        engines: Callable[[], Mapping[str, EngineTotals]],
        database: Path | None = None,
        most_bytes: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._engines = engines
        self._database = database
        self._most_bytes = most_bytes
        self._clock = clock
        self._requests = RequestTotals()
        self._ended: list[Request] = []
        self._swaps = SwapTotals(bus.snapshot.swaps)
        self._profiles: frozenset[str] = frozenset()
        self._last_engines: dict[str, Engine] = {}
        self._look(bus.snapshot)

    async def run(self) -> None:
        """Count what the bus tells until it ends."""
        subscription = self._bus.subscribe(samples=False, requests=False)
        try:
            async for item in subscription:
                if isinstance(item, Snapshot):
                    self._look(item)
                else:
                    self._count(item.fact)
        finally:
            subscription.leave()

    def record(self, request: Request) -> None:
        """Count an ended request, at the latest with the next page; never waits."""
        self._ended.append(request)
        if len(self._ended) >= TOGETHER:
            self._count_ended()

    def _count_ended(self) -> None:
        for request in self._ended:
            profile = request.profile if request.profile in self._profiles else OTHER
            self._requests.add(request, profile, self._swaps.reason)
        self._ended.clear()

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Write the page in the format that `accept` asks for; return it with its content type."""
        return await asyncio.to_thread(_write_page, self.state(), self._database, accept)

    def state(self) -> ScrapedState:
        """Return what is known now, without the size of the database; nothing changes it any more.

        The page takes tens of milliseconds, so a thread makes it: on the loop every relayed chunk would wait for it.
        """
        self._count_ended()
        return ScrapedState(
            snapshot=self._bus.snapshot,
            now=self._clock(),
            engines={name: totals.copy() for name, totals in self._engines().items()},
            requests=self._requests.copy(),
            swaps=self._swaps.copy(),
            last_engines=dict(self._last_engines),
            store_limit_bytes=self._most_bytes,
        )

    def _look(self, snapshot: Snapshot) -> None:
        """Catch up with a snapshot, which stands in place of facts."""
        self._profiles = frozenset(profile.name for profile in snapshot.profiles)
        self._last_engines.update(snapshot.engines)
        for swap in reversed(snapshot.swaps):
            self._swaps.add(swap)
        if snapshot.guard is not None:
            self._swaps.see_guard(snapshot.guard)

    def _count(self, fact: Fact) -> None:
        match fact:
            case SwapChanged(swap=swap):
                self._swaps.add(swap)
            case EngineChanged(engine=engine):
                self._last_engines[engine.profile] = engine
            case ProfilesChanged(profiles=profiles):
                self._count_ended()
                self._profiles = frozenset(profile.name for profile in profiles)
            case GuardChanged(guard=guard):
                self._swaps.see_guard(guard)
            case _:
                pass


def _write_page(state: ScrapedState, database: Path | None, accept: str) -> tuple[bytes, str]:
    from sparkdash.prometheus.page import write_page

    if database is not None:
        with suppress(OSError):  # SQLite keeps files beside it
            size = sum(file.stat().st_size for file in database.parent.glob(f"{database.name}*"))
            state = replace(state, store_bytes=size)
    return write_page(state, accept)
