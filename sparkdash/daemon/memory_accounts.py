"""Accounts of the box's memory, shared between callers.

Owns: sharing one account between all who ask at the same time, and how long it stays valid. Must not know how an
account is made. Rule: no account is made without a caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparkdash.domain.memory import Holding, MemoryAccount
from sparkdash.units import GIB

SHARED_S = 1.0
"""Age up to which an account serves the next caller."""
RECENT_S = 60.0
"""Age up to which an account still names the largest holders."""
LARGE = GIB
"""Least memory of a holder that is named."""


class MemoryAccounts:
    """Cache of the last account. `look` makes one; `monotonic` is the clock."""

    def __init__(self, look: Callable[[], Awaitable[MemoryAccount]], monotonic: Callable[[], float]) -> None:
        self._look = look
        self._monotonic = monotonic
        self._task: asyncio.Task[MemoryAccount] | None = None
        self._last: tuple[float, MemoryAccount] | None = None

    async def now(self) -> MemoryAccount:
        """Return an account that is at most SHARED_S old. Raises whatever `look` raises."""
        if (known := self._within(SHARED_S)) is not None:
            return known
        if self._task is None:
            self._task = asyncio.create_task(self._take(), name="memory account")
            self._task.add_done_callback(self._over)
        return await asyncio.shield(self._task)  # one caller's cancellation must not end it for the others

    def foreign(self) -> tuple[Holding, ...]:
        """Large holders that are not ours, largest first, without waiting; none without a recent account."""
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
            task.exception()  # retrieved, so that asyncio does not warn when no caller is left
