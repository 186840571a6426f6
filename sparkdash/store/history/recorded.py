"""RecordedHistory: the past as the gateway asks for it, answered in the store's thread.

Owns: which query answers which question. Must not know SQL, nor the thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from sparkdash.domain.history.answers import (
    FigureList,
    MarkList,
    PastRequests,
    RecentFigures,
    Series,
    UsageReport,
)
from sparkdash.domain.history.selections import (
    MarkSelection,
    RecentSelection,
    RequestSelection,
    SeriesSelection,
    UsageSelection,
    Visible,
)
from sparkdash.errors import DaemonError
from sparkdash.store.history import marks, past_requests, series, usage_reading

T = TypeVar("T")


class QueryRunner(Protocol):
    """Runs a query on the database."""

    def __call__(self, query: Callable[[sqlite3.Connection], T], /) -> Coroutine[Any, Any, T]:
        """Run it. Raises DaemonError while the database cannot be read."""
        ...


class RecordedHistory:
    """Answers about the past. `clock` gives Unix seconds."""

    def __init__(self, run: QueryRunner, clock: Callable[[], float] = time.time) -> None:
        self._run = run
        self._clock = clock

    async def figures(self, visible: Visible = None) -> FigureList:
        """List the recorded figures, and what has records."""
        return await self._run(partial(series.read_figures, visible=visible))

    async def series(self, selection: SeriesSelection) -> Series:
        """Read one figure over a period."""
        return await self._run(partial(series.read_series, asked=selection, now=self._clock()))

    async def recent(self, selection: RecentSelection) -> RecentFigures:
        """Read several figures over the last minutes."""
        return await self._run(partial(series.read_recent, asked=selection))

    async def usage(self, selection: UsageSelection) -> UsageReport:
        """Add up the requests of a period."""
        return await self._run(partial(usage_reading.read_usage, asked=selection))

    async def requests(self, selection: RequestSelection) -> PastRequests:
        """List ended requests."""
        return await self._run(partial(past_requests.read_requests, asked=selection))

    async def marks(self, selection: MarkSelection) -> MarkList:
        """List the events of a period."""
        return await self._run(partial(marks.read_marks, asked=selection))


def unavailable(what: str) -> DaemonError:
    """Build the error of a database that cannot be read."""
    return DaemonError(
        what, code="history_unavailable", status=503, hint="The daemon tries again by itself; its notices say why."
    )
