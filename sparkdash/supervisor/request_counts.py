"""Request counts: how many requests use each engine, published for many comings and goings at once.

Owns: the delay of a count that changed alone, and the published counts. Must not know when the other figures change.
"""

from __future__ import annotations

import asyncio

from sparkdash.supervisor.planner import Planner
from sparkdash.supervisor.repair.watch import EngineWatch
from sparkdash.supervisor.scheduling.records import SchedulerRecords
from sparkdash.supervisor.tools import Tools

DELAY_S = 0.02
"""Seconds by which a new count of an engine's requests may be published late, where nothing else changed. Each
publication makes a new Engine and an event for everybody.
"""


class RequestCounts:
    """Counts of the requests on every engine; `run` it as a task."""

    def __init__(
        self, tools: Tools, planner: Planner, watch: EngineWatch, *, idle: asyncio.Event, news: asyncio.Event
    ) -> None:
        self._tools = tools
        self._planner = planner
        self._watch = watch
        self._idle = idle
        self._news = news
        self._changed = asyncio.Event()

    @property
    def pending(self) -> bool:
        """Whether a count changed and its delay is not over."""
        return self._changed.is_set()

    def note(self) -> None:
        """Note a changed count: the actor is not idle, and is woken for it after the delay."""
        if not self._changed.is_set():
            self._idle.clear()
            self._changed.set()

    async def run(self) -> None:
        """Wake the actor after each delay, until cancelled."""
        while True:
            await self._changed.wait()
            await self._tools.clock.sleep(DELAY_S)
            self._changed.clear()
            self._news.set()

    def publish(self, records: SchedulerRecords) -> None:
        """Publish the use of every engine; one without requests is not watched."""
        books = self._tools.books
        for name in list(books.engines):
            in_flight, resident = records.in_flight(name), records.residents.get(name)
            books.able(name, self._planner.tasks(name), self._planner.most_steps_s(name))
            books.busy(name, in_flight, resident.asked_at if resident else {})
            self._watch.used(name, now=in_flight > 0)
