"""Accounts of the box's memory, for all who ask.

Owns: that one look serves everybody who asks meanwhile, and how long it counts. Must not know how one is made.
Rule: nobody is looked for without being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparkdash.domain.memory.account import Holding, MemoryAccount
from sparkdash.units import GIB

SHARED_S = 1.0
"""A look that ended so recently serves the next one who asks."""
RECENT_S = 60.0
"""A look that ended so recently still names who holds most."""
LARGE = GIB
"""Least that a holder is named for."""


class MemoryAccounts:
    """`look` makes one account; `monotonic` is the clock."""

    def __init__(self, look: Callable[[], Awaitable[MemoryAccount]], monotonic: Callable[[], float]) -> None:
        self._look = look
        self._monotonic = monotonic
        self._task: asyncio.Task[MemoryAccount] | None = None
        self._last: tuple[float, MemoryAccount] | None = None

    async def now(self) -> MemoryAccount:
        """An account that is a second old at most. Raises whatever the look raises."""
        if (known := self._within(SHARED_S)) is not None:
            return known
        if self._task is None:
            self._task = asyncio.create_task(self._take(), name="memory account")
            self._task.add_done_callback(self._over)
        return await asyncio.shield(self._task)  # who leaves does not end it for the others

    def foreign(self) -> tuple[Holding, ...]:
        """Large holders that are not ours, largest first; none when nobody asked for an account lately. Answers at once."""
        known = self._within(RECENT_S)
        return () if known is None else known.foreign(LARGE)

    def _within(self, seconds: float) -> MemoryAccount | None:
        if self._last is None or self._monotonic() - self._last[0] > seconds:
            return None
        return self._last[1]

    async def _take(self) -> MemoryAccount:
        found = await self._look()
        self._last = self._monotonic(), found
        return found

    def _over(self, task: asyncio.Task[MemoryAccount]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # fetched, so that nobody having waited is no complaint
